"""Dataclasses whose methods are made when they are first used: the standard library's compile six functions a class at import.

To type checkers this is `dataclasses.dataclass`, and `fields`, `replace`, `field` and `is_dataclass` of the standard library work as ever. `__init__`
is the standard library's own from the instance after `FEW` on: of some 250 classes that a run imports, it makes a few instances of a third, and
many of a handful. The others are ordinary closures, as fast as generated ones where it matters.
"""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

FEW = 100
"""Instances of a class that are made without code of its own: to generate that takes as long as to make so many."""

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 - what others import from here
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


def _made(
    cls: type,
    *,
    init: bool = True,
    repr: bool = True,  # noqa: A002 - the standard library's name
    eq: bool = True,
    frozen: bool = False,
    slots: bool = False,
    kw_only: bool = False,
) -> type:
    """Return the dataclass that `cls` describes."""
    own = vars(cls).keys()
    written = {name for name in ("__init__", "__repr__", "__eq__", "__setattr__", "__delattr__") if name in own}
    hashed = "__hash__" in own and not (vars(cls)["__hash__"] is None and "__eq__" in own)
    # All that needs no generated code; `__eq__` and `frozen` would.
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)(cls)
    given = dataclasses.fields(made)
    methods: dict[str, Any] = {}
    if init:
        methods["__init__"] = _first_init(made, frozen=frozen)
    if repr:
        methods["__repr__"] = _repr([field.name for field in given if field.repr])
    if eq:
        values = _values([field.name for field in given if field.compare])
        methods["__eq__"] = _eq(values)
        if not hashed:
            made.__hash__ = _hash(values) if frozen else None
    if frozen:
        methods["__setattr__"], methods["__delattr__"] = _frozen(made, frozenset(field.name for field in given))
        if slots:  # their state would be set attribute by attribute
            methods["__getstate__"], methods["__setstate__"] = _state([field.name for field in given])
    for name, method in methods.items():
        if name not in written:
            method.__name__, method.__qualname__ = name, f"{made.__qualname__}.{name}"
            setattr(made, name, method)
    found: type = made
    return found


def _first_init(cls: Any, *, frozen: bool) -> Callable[..., None]:
    """Return an `__init__` that makes few instances by itself, then puts the standard library's in its place; so it does where that refuses the arguments."""
    given = dataclasses.fields(cls)
    places = [field.name for field in given if field.init and not field.kw_only]
    settable = {field.name for field in given if field.init}
    defaults: dict[str, Any] = {}
    for field in given:
        if field.default is not dataclasses.MISSING:
            defaults[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            defaults[field.name] = field
    needed = settable - defaults.keys()
    finishes, left, later = hasattr(cls, "__post_init__"), FEW, object()
    put = object.__setattr__ if frozen else setattr

    def __init__(self: Any, /, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - it is one
        nonlocal left
        left -= 1
        values = dict(zip(places, args, strict=False))
        sound = len(args) <= len(places) and settable >= kwargs.keys() and values.keys().isdisjoint(kwargs)
        values.update(kwargs)
        if left < 0 or not sound or not values.keys() >= needed:
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
    """Return what gets some attributes of an object as a tuple."""
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


def _frozen(cls: Any, names: frozenset[str]) -> tuple[Callable[..., None], Callable[..., None]]:
    """Return what refuses to set and to delete the fields of a class, and any attribute of what is no subclass's."""

    def __setattr__(self: Any, name: str, value: Any) -> None:  # noqa: N807 - as above
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:  # noqa: N807 - as above
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return __setattr__, __delattr__


def _state(names: list[str]) -> tuple[Callable[[Any], list[Any]], Callable[[Any, list[Any]], None]]:
    """Return how an object's fields are pickled, and set again."""

    def __getstate__(self: Any) -> list[Any]:  # noqa: N807 - as above
        return [getattr(self, name) for name in names]

    def __setstate__(self: Any, state: list[Any]) -> None:  # noqa: N807 - as above
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    return __getstate__, __setstate__
