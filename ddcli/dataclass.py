"""Dataclasses whose methods are made when they are first used: the standard library's compile six functions a class at import.

To type checkers `dataclass` is `dataclasses.dataclass`, and `fields`, `replace`, `field` and `is_dataclass` of the standard library work as ever. `__init__`
is the standard library's own from the instance after `FEW` on: of some 250 classes that a run imports, it makes a few instances of a third, and
many of a handful. The other methods are ordinary closures, as fast as generated ones where it matters. Fields are described here, too: the standard library
searches each annotation for other meanings, and makes a class with slots before its methods.

msgspec makes a class in a quarter of the time, but to import it takes 10 ms: a run with nothing new makes its 61 classes in 3 ms, one of 1 000 rows its 240 in some 12.
"""

from __future__ import annotations

import abc
import dataclasses
from functools import partial
from operator import attrgetter
from reprlib import recursive_repr
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

FEW = 100
"""The instances of a class that are made without code of its own: to generate that takes as long as to make these."""

METHODS = ("__init__", "__repr__", "__eq__", "__setattr__", "__delattr__")
"""Methods that a class keeps where it has them itself."""
UNUSUAL = {"InitVar", "KW_ONLY", "dataclasses", "typing"}
"""Annotations that may mean something else than a field's type."""
PLAIN = partial(dataclasses.dataclass, init=False, repr=False, eq=False)
_plain = vars(PLAIN()(type("Plain", (), {"__doc__": "Without fields."})))
REAL: Any = dataclasses._FIELD  # type: ignore[attr-defined]  # noqa: SLF001 - the mark of a field of objects
ALIKE = {name: _plain[name] for name in ("__dataclass_params__", "__replace__") if name in _plain}
"""The attributes that the standard library of this version adds to every class."""

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 - others import it from here
else:

    def dataclass(cls: type | None = None, /, **options: bool) -> Any:
        """Return the class as a dataclass; options as of `dataclasses.dataclass`, without ordering.

        >>> @dataclass(frozen=True, slots=True)
        ... class Pair:
        ...     '''Two numbers.'''
        ...
        ...     one: int
        ...     other: int = 2
        >>> Pair(1), Pair(1) == Pair(1, 2), len({Pair(1), Pair(1, 2)}), dataclasses.replace(Pair(1), other=3)
        (Pair(one=1, other=2), True, 1, Pair(one=1, other=3))
        """
        return _made(cls, **options) if cls is not None else lambda given: _made(given, **options)


T = TypeVar("T", bound=type)


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def frozen(cls: T) -> T:
    """Return the class as a dataclass with slots, whose instances don't change."""
    return _made(cls, frozen=True, slots=True)  # type: ignore[no-any-return]  # the class itself, made anew


def _made(
    cls: type,
    *,
    init: bool = True,
    repr: bool = True,  # noqa: A002 - the standard library's name
    eq: bool = True,
    frozen: bool = False,
    slots: bool = False,
    kw_only: bool = False,
) -> Any:
    """Return the dataclass that `cls` describes."""
    own = vars(cls).keys()
    written = {name for name in METHODS if name in own}
    hashed = "__hash__" in own and not (vars(cls)["__hash__"] is None and "__eq__" in own)
    fields = _describe(cls, kw_only=kw_only)
    made = [cls]  # with slots it is another class, which has the methods from the beginning
    methods: dict[str, Any] = {}
    if init:
        methods["__init__"] = _first_init(made, frozen=frozen)
    if repr:
        methods["__repr__"] = _repr([field.name for field in fields if field.repr])
    if eq:
        values = _values([field.name for field in fields if field.compare])
        methods["__eq__"] = _eq(values)
    if frozen:
        methods["__setattr__"], methods["__delattr__"] = _frozen(made, frozenset(field.name for field in fields))
        if slots:  # their state would be set attribute by attribute
            methods["__getstate__"], methods["__setstate__"] = _state([field.name for field in fields])
    methods = {name: method for name, method in methods.items() if name not in written}
    for name, method in methods.items():
        method.__name__, method.__qualname__ = name, f"{cls.__qualname__}.{name}"
    if eq and not hashed:
        methods["__hash__"] = _hash(values) if frozen else None
    if slots:
        made[0] = _with_slots(cls, [field.name for field in fields], methods)
    else:
        for name, method in methods.items():
            setattr(cls, name, method)
    abc.update_abstractmethods(made[0])
    return made[0]


def _describe(cls: Any, *, kw_only: bool) -> tuple[dataclasses.Field[Any], ...]:
    """Describe the fields of a class on it, as the standard library does; return them.

    A class with other annotations than the names of types and of class variables is left to the standard library, which is slower as it
    has to find the meaning of each annotation.
    """
    found: dict[str, dataclasses.Field[Any]] = {}
    for base in cls.__mro__[-1:0:-1]:
        found |= getattr(base, "__dataclass_fields__", {})
    added = []
    for name, kind in vars(cls).get("__annotations__", {None: None}).items():
        if type(kind) is not str or UNUSUAL.intersection(kind.partition("[")[0].split(".")):
            return dataclasses.fields(PLAIN(kw_only=kw_only)(cls))
        if kind.partition("[")[0] == "ClassVar":
            continue
        default = getattr(cls, name, dataclasses.MISSING)
        if type(default) is MemberDescriptorType:  # of a base with slots
            default = dataclasses.MISSING
        given = type(default) is dataclasses.Field
        field: Any = default if given else dataclasses.field(default=default)
        if field.default.__class__.__hash__ is None:
            return dataclasses.fields(PLAIN(kw_only=kw_only)(cls))  # refuses mutable defaults
        field.name, field.type, field._field_type = name, kind, REAL  # noqa: SLF001 - as the standard library sets it
        if field.kw_only is dataclasses.MISSING:
            field.kw_only = kw_only
        found[name] = field
        if given:
            added.append(field)
    for field in added:
        if field.default is dataclasses.MISSING:
            delattr(cls, field.name)
        else:
            setattr(cls, field.name, field.default)
    cls.__dataclass_fields__ = found
    for name, value in ALIKE.items():
        setattr(cls, name, value)
    fields = tuple(found.values())
    if "__match_args__" not in vars(cls):
        matched = tuple(field.name for field in fields if field.init and not field.kw_only)
        cls.__match_args__ = matched  # type: ignore[misc]
    return fields


def _with_slots(cls: type, names: list[str], methods: dict[str, Any]) -> type:
    """Return the class with slots for its fields, and these methods."""
    body = {name: value for name, value in vars(cls).items() if name not in names}
    for own in ("__dict__", "__weakref__"):
        body.pop(own, None)
    inherited = {slot for base in cls.__mro__[1:-1] for slot in vars(base).get("__slots__", ())}
    body["__slots__"] = tuple(name for name in names if name not in inherited)
    body["__qualname__"] = cls.__qualname__
    return type(cls)(cls.__name__, cls.__bases__, body | methods)


def _first_init(made: list[Any], *, frozen: bool) -> Callable[..., None]:
    """Return an `__init__` that makes few instances by itself, then puts the standard library's in its place; it does so at once for arguments that are refused."""
    left, later, put = FEW, object(), object.__setattr__ if frozen else setattr
    given: tuple[dataclasses.Field[Any], ...] = ()
    places: list[str] = []
    settable: set[str] = set()
    needed: set[str] = set()
    defaults: dict[str, Any] = {}
    finishes = looked = False

    def look() -> None:
        """Look at the fields, once there is an instance: hardly half of the classes have one in a run."""
        nonlocal given, places, settable, needed, finishes, looked
        given = dataclasses.fields(made[0])
        places = [field.name for field in given if field.init and not field.kw_only]
        settable = {field.name for field in given if field.init}
        for field in given:
            if field.default is not dataclasses.MISSING:
                defaults[field.name] = field.default
            elif field.default_factory is not dataclasses.MISSING:
                defaults[field.name] = field
        needed = settable - defaults.keys()
        finishes = hasattr(made[0], "__post_init__")
        looked = True  # last: another thread may be about to

    def __init__(self: Any, /, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - it is one
        nonlocal left
        if not looked:
            look()
        left -= 1
        values = dict(zip(places, args, strict=False))
        sound = len(args) <= len(places) and settable >= kwargs.keys() and values.keys().isdisjoint(kwargs)
        values.update(kwargs)
        if left < 0 or not sound or not values.keys() >= needed:
            cls = made[0]
            cls.__init__ = _standard_init(cls, frozen=frozen)
            cls.__init__(self, *args, **kwargs)
            return
        for field in given:
            value = values.get(field.name, defaults.get(field.name, later))
            if value is not later:
                put(self, field.name, field.default_factory() if value is field else value)
        if finishes:
            self.__post_init__()

    return __init__


def _standard_init(cls: Any, *, frozen: bool) -> Any:
    """Return the `__init__` that the standard library makes of the fields of a class."""
    given = dataclasses.fields(cls)
    assert all(field.init or field.default is dataclasses.MISSING for field in given), "a value for no argument"
    body: dict[str, Any] = {"__annotations__": {field.name: field.type for field in given}, "__doc__": cls.__doc__}
    body |= {field.name: _copy(field) for field in given}
    if hasattr(cls, "__post_init__"):
        body["__post_init__"] = cls.__post_init__
    twin = type(cls.__name__, (), {**body, "__module__": cls.__module__, "__qualname__": cls.__qualname__})
    made: Any = dataclasses.dataclass(repr=False, eq=False, frozen=frozen)(twin).__init__  # type: ignore[misc]
    return made


def _copy(field: dataclasses.Field[Any]) -> Any:
    """Return a field of a class as one for another."""
    given: dict[str, Any] = {"default": field.default, "default_factory": field.default_factory}
    given = {name: value for name, value in given.items() if value is not dataclasses.MISSING}
    return dataclasses.field(**given, init=field.init, kw_only=field.kw_only)


def _values(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that returns some attributes of an object as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)


def _eq(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any, Any], bool]:
    def __eq__(self: Any, other: object) -> bool:  # noqa: N807 - as above
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hash(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], int]:
    def __hash__(self: Any) -> int:  # noqa: N807 - as above
        return hash(values(self))

    return __hash__


def _repr(names: list[str]) -> Callable[[Any], str]:
    @recursive_repr()
    def __repr__(self: Any) -> str:  # noqa: N807 - as above
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return __repr__


def _frozen(made: list[Any], names: frozenset[str]) -> tuple[Callable[..., None], Callable[..., None]]:
    """Return methods that refuse to set and to delete the fields of a class, and any attribute of an object of the class itself."""

    def __setattr__(self: Any, name: str, value: Any) -> None:  # noqa: N807 - as above
        if type(self) is made[0] or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(made[0], self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:  # noqa: N807 - as above
        if type(self) is made[0] or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(made[0], self).__delattr__(name)

    return __setattr__, __delattr__


def _state(names: list[str]) -> tuple[Callable[[Any], list[Any]], Callable[[Any, list[Any]], None]]:
    """Return methods that pickle an object's fields, and set them again."""

    def __getstate__(self: Any) -> list[Any]:  # noqa: N807 - as above
        return [getattr(self, name) for name in names]

    def __setstate__(self: Any, state: list[Any]) -> None:  # noqa: N807 - as above
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    return __getstate__, __setstate__
