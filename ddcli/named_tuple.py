"""Named tuples that cost little to import: the standard library compiles a function, and an expression for each annotation, of every class.

To type checkers this is `typing.NamedTuple`. A class has the same attributes, but for its `__new__`, which is that of a template with as many fields under other
names, and as fast: to make a class takes 15 instead of 200 us.
"""

from __future__ import annotations

import collections
import sys
from types import FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NamedTuple as NamedTuple  # noqa: PLC0414 - others import it from here

_new = tuple.__new__
# One for each number of fields; their names are replaced.
TEMPLATES = (
    lambda _cls, a: _new(_cls, (a,)),
    lambda _cls, a, b: _new(_cls, (a, b)),
    lambda _cls, a, b, c: _new(_cls, (a, b, c)),
    lambda _cls, a, b, c, d: _new(_cls, (a, b, c, d)),
    lambda _cls, a, b, c, d, e: _new(_cls, (a, b, c, d, e)),
    lambda _cls, a, b, c, d, e, f: _new(_cls, (a, b, c, d, e, f)),
    lambda _cls, a, b, c, d, e, f, g: _new(_cls, (a, b, c, d, e, f, g)),
    lambda _cls, a, b, c, d, e, f, g, h: _new(_cls, (a, b, c, d, e, f, g, h)),
    lambda _cls, a, b, c, d, e, f, g, h, i: _new(_cls, (a, b, c, d, e, f, g, h, i)),
)
UNEXPECTED = TypeError if sys.version_info >= (3, 13) else ValueError
"""The error that `_replace` raises for a name that is no field, as the standard library's of that version."""


class Maker(type):
    """Makes a subclass of `tuple` of a class that inherits from `NamedTuple`."""

    def __new__(cls, name: str, _bases: tuple[type, ...], body: dict[str, Any]) -> Any:
        fields = tuple(body.get("__annotations__", ()))
        defaults = {field: body.pop(field) for field in fields if field in body}
        if tuple(defaults) != fields[len(fields) - len(defaults) :]:
            raise TypeError(f"{name}: a field without a default follows one with a default")
        code = TEMPLATES[len(fields) - 1].__code__.replace(co_varnames=("_cls", *fields), co_name="__new__")
        made = FunctionType(code, globals(), "__new__", tuple(defaults.values()))
        made.__qualname__, made.__module__ = f"{name}.__new__", body["__module__"]
        own = {
            "__new__": made,
            "__slots__": (),
            "_fields": fields,
            "_field_defaults": defaults,
            "__match_args__": fields,
        }
        own |= {field: collections._tuplegetter(at, "") for at, field in enumerate(fields)}  # type: ignore[attr-defined]  # noqa: SLF001 - an attribute of the standard library's
        body.pop("__orig_bases__", None)
        return type(name, (tuple,), COMMON | own | body)


def _make(cls: Any, values: Iterable[Any]) -> Any:
    made = _new(cls, values)
    if len(made) != len(cls._fields):
        raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
    return made


def _replace(self: Any, /, **values: Any) -> Any:
    made = self._make(map(values.pop, self._fields, self))
    if values:
        raise UNEXPECTED(f"Got unexpected field names: {list(values)!r}")
    return made


def _asdict(self: Any) -> dict[str, Any]:
    return dict(zip(self._fields, self, strict=True))


def _plain(self: Any) -> tuple[Any, ...]:
    return tuple(self)


def _repr(self: Any) -> str:
    return f"{type(self).__name__}({', '.join(f'{field}={value!r}' for field, value in zip(self._fields, self, strict=True))})"


COMMON = {
    "_make": classmethod(_make),
    "_replace": _replace,
    "_asdict": _asdict,
    "__replace__": _replace,
    "__repr__": _repr,
    "__getnewargs__": _plain,
}
"""The methods that all of them have, unless a class has its own."""

if not TYPE_CHECKING:

    class _Base:
        """Stands for `NamedTuple` among the bases of a class."""

        def __mro_entries__(self, _bases: tuple[Any, ...]) -> tuple[type, ...]:
            return (_marked,)

    _marked = type.__new__(Maker, "NamedTuple", (), {})
    NamedTuple = _Base()
