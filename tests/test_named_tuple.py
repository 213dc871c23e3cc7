"""Our named tuples do what the standard library's do."""

from __future__ import annotations

import copy
import inspect
import pickle
import typing

import pytest

from ddcli.named_tuple import TEMPLATES, NamedTuple
from tests.test_dataclass import outcome


def family(base):
    """Return classes with fields with and without defaults, with methods of their own, and one that inherits from such a class."""

    class Pair(base):
        """Two numbers."""

        one: int
        other: dict[str, int] | None = None

    class Single(base):
        """One field."""

        one: object

    class Own(base):
        """Its own methods."""

        one: int
        other: int = 3

        @property
        def both(self) -> int:
            return self.one + self.other

        @classmethod
        def of(cls, text: str) -> typing.Self:
            return cls(*map(int, text.split()))

        def __repr__(self) -> str:
            return f"own {self.both}"

    class Below(Pair):
        """A class below."""

        def total(self) -> int:
            return self.one

    return Pair, Single, Own, Below


def looks(classes):
    """Return what can be seen of some classes and their objects."""
    found = []
    for cls in classes:
        kinds = [lambda cls=cls: cls(1), lambda cls=cls: cls(1, 2), lambda cls=cls: cls(one=1), lambda cls=cls: cls()]
        kinds += [lambda cls=cls: cls(1, 2, 3), lambda cls=cls: cls(1, unknown=2), lambda cls=cls: cls(2, one=2)]
        kinds += [lambda cls=cls: cls._make([4, 5]), lambda cls=cls: cls._make([4])]
        for each in map(outcome, kinds):
            found.append(
                each if isinstance(each, tuple) and type(each) is tuple else (type(each).__name__, tuple(each))
            )
            if type(each) is tuple:
                continue
            found += [repr(each), each == tuple(each), hash(each) == hash(tuple(each)) if each[-1] != {} else None]
            found += [
                each._asdict(),
                each.one,
                list(each),
                each[0],
                copy.copy(each) == each,
                type(copy.copy(each)) is cls,
            ]
            found += [
                outcome(lambda each=each: tuple(each._replace(one=9))),
                outcome(lambda each=each: each._replace(no=9)),
            ]
            found += [outcome(lambda each=each: setattr(each, "one", 5)), outcome(lambda each=each: each.none)]
            found += [copy.deepcopy(each) == each, isinstance(each, tuple), hasattr(each, "__dict__")]
        found += [
            cls._fields,
            cls._field_defaults,
            cls.__match_args__,
            cls.__doc__ and cls.__doc__[:5],
            cls.__mro__[-2:],
        ]
        found += [
            [(each.name, each.default) for each in inspect.signature(cls).parameters.values()],
            list(cls.__annotations__),
            cls.__name__,
            cls.__module__,
            type(cls),
        ]
        found += [cls.__new__.__qualname__.rpartition(".")[2], issubclass(cls, tuple)]
    return found


def test_a_named_tuple_is_as_the_standard_librarys():
    theirs, ours = looks(family(typing.NamedTuple)), looks(family(NamedTuple))
    for one, other in zip(ours, theirs, strict=True):
        assert one == other


def test_methods_of_its_own():
    own = family(NamedTuple)[2]
    assert own.of("4 5").both == 9
    assert repr(own(1)) == "own 4"
    match own(1, 2):
        case own(first, second):
            assert (first, second) == (1, 2)


@pytest.mark.parametrize("count", range(1, len(TEMPLATES) + 1))
def test_each_number_of_fields(count):
    names = [f"field_{at}" for at in range(count)]
    body = {"__annotations__": dict.fromkeys(names, "int"), "__module__": __name__, "__qualname__": "Made"}
    cls = type(NamedTuple.__mro_entries__(())[0])("Made", (), body)
    assert cls(*range(count)) == cls(**dict(zip(names, range(count), strict=True))) == tuple(range(count))
    assert [getattr(cls(*range(count)), name) for name in names] == list(range(count))
    with pytest.raises(TypeError):
        cls(*range(count + 1))


class Pickled(NamedTuple):
    """What a task is sent."""

    one: int
    other: tuple[str, ...] = ()


def test_objects_are_pickled():
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        read = pickle.loads(pickle.dumps(Pickled(1, ("a",)), protocol))  # noqa: S301 - our own
        assert read == Pickled(1, ("a",))
        assert type(read) is Pickled


def test_a_field_without_a_default_after_one_with_a_default_is_refused():
    with pytest.raises(TypeError, match="without a default"):

        class Wrong(NamedTuple):
            one: int = 1
            other: str
