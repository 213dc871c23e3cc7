"""Our dataclasses do what the standard library's do, for every way in which the project makes one."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import pickle
from typing import ClassVar

import pytest

from ddcli.dataclass import dataclass, frozen

OPTIONS = [
    {},
    {"eq": False},
    {"frozen": True},
    {"frozen": True, "eq": False},
    {"frozen": True, "slots": True},
    {"frozen": True, "slots": True, "kw_only": True},
    {"slots": True},
    {"slots": True, "eq": False},
    {"slots": True, "eq": False, "repr": False},
]


def families(maker, options):
    """Return a class, one that inherits fields, and one that says some methods itself."""

    @maker(**options)
    class Base:
        """The first."""

        one: int
        other: list[int] = dataclasses.field(default_factory=list)
        aside: object = dataclasses.field(default=None, compare=False, repr=False)

    @maker(**options)
    class Derived(Base):
        """More of it."""

        more: str = "x"
        later: dict[str, int] = dataclasses.field(init=False, default_factory=dict)
        last: int = dataclasses.field(init=False)

        def __post_init__(self):
            self.later["was"] = self.one
            object.__setattr__(self, "last", 2 * self.one)

    @maker(**options)
    class Own(Base):
        """Its own methods."""

        def __eq__(self, other):
            return isinstance(other, Own)

        def __hash__(self):
            return 7

        def __repr__(self):
            return "own"

    @maker(**options)
    class Single:
        """One field."""

        one: object = ()

    @maker(**options)
    class Again(Base):
        """A field of the first with another default, what all have in common, and a field that is given by its name."""

        shared: ClassVar[int] = 3
        other: list[int] = dataclasses.field(default_factory=lambda: [7])
        named: int = dataclasses.field(default=5, kw_only=True)

    return Base, Derived, Own, Single, Again, maker(**options)(unusual())


def unusual():
    """Return a class whose annotations are types, not their names."""
    annotations = {"one": int, "other": list, "shared": ClassVar[int]}
    body = {"other": dataclasses.field(default_factory=list), "shared": 4, "__doc__": "By types."}
    return type("Unusual", (), {**body, "__annotations__": annotations, "__module__": __name__})


def outcome(call):
    """Return what a call gives, or which error it raises; a class and what is inside it by name."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - the point is which
        return type(error), str(error)


def looks(made):
    """Return what can be seen of the classes of a family and of their objects."""
    found = []
    for cls in made:
        kinds = [lambda cls=cls: cls(one=1), lambda cls=cls: cls(one=2, other=[3])]
        kinds += [lambda cls=cls: cls(1), lambda cls=cls: cls(1, [2], aside=9), lambda cls=cls: cls()]
        kinds += [lambda cls=cls: cls(1, unknown=2)]
        objects = [outcome(kind) for kind in kinds]
        for each in objects:
            if isinstance(each, tuple):
                found.append(each)
                continue
            found += [outcome(lambda each=each: repr(each)) if "object at" not in repr(each) else "plain"]
            found += [outcome(lambda each=each: type(hash(each)).__name__)]
            found += [outcome(lambda each=each: setattr(each, "one", 5) or each.one)]
            # Of an object that lacks an attribute, Python 3.13 says that it is itself, older ones don't.
            found += [outcome(lambda each=each, other=other: each == other) for other in objects]
            found += [outcome(lambda each=each: delattr(each, "one"))]
            found += [outcome(lambda cls=cls: dataclasses.replace(cls(one=1), one=8).one)]
            found += [outcome(lambda cls=cls: copy.copy(cls(one=1)).one)]
        found += [[(field.name, field.type, field.init) for field in dataclasses.fields(cls)], cls.__match_args__]
        found += [getattr(cls, "__slots__", None), cls.__doc__, dataclasses.is_dataclass(cls)]
        found += [list(inspect.signature(cls).parameters)]
    return found


@pytest.mark.parametrize("few", [0, 3, 1000])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_dataclass_is_as_the_standard_librarys(options, few, monkeypatch):
    """Whether its `__init__` is generated at once, soon, or not before arguments are refused."""
    monkeypatch.setattr("ddcli.dataclass.FEW", few)
    theirs, ours = (looks(families(maker, options)) for maker in (dataclasses.dataclass, dataclass))
    assert ours == theirs


def test_frozen_is_a_frozen_dataclass_with_slots():
    options = {"frozen": True, "slots": True}
    assert looks(families(lambda **_: frozen, options)) == looks(families(dataclasses.dataclass, options))


@frozen
class Pickled:
    """What a task is sent."""

    one: int
    other: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cached:
    """A frozen class with something computed once."""

    one: int

    @functools.cached_property
    def twice(self):
        return self.one * 2


def test_objects_are_pickled_and_keep_what_they_computed():
    given = [Pickled(1, ("a",)), Cached(4)]
    assert given[1].twice == 8
    read = pickle.loads(pickle.dumps(given))  # noqa: S301 - our own
    assert read == given
    assert read[1].twice == 8
    with pytest.raises(dataclasses.FrozenInstanceError):
        read[0].one = 2


def test_init_is_generated_for_many_objects_only(monkeypatch):
    monkeypatch.setattr("ddcli.dataclass.FEW", 3)

    @dataclass
    class Late:
        """One."""

        one: int

    stub = Late.__init__
    assert Late(1) != Late(one=2) != Late(4)
    assert Late.__init__ is stub
    assert Late(one=2) == Late(2)
    assert Late.__init__ is not stub


def test_what_the_standard_library_refuses_is_refused():
    class Mutable:
        """A default that objects would share."""

        one: list[int] = []  # noqa: RUF012 - what is refused

    with pytest.raises(ValueError, match="mutable default"):
        dataclass(Mutable)
