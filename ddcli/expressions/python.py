"""Python functions that a pipeline names: their definitions, read from the text of their module, their import, and their errors.

The definition shows that a function exists, its arguments, and its identity. Nothing is imported for it, so a pipeline with untrusted code can be checked and planned. A function whose
text leaves its arguments open is accepted, with the reason in `unseen`: its name is assigned, decorated, imported from compiled code, or bound in several places. A module may import any other.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import inspect
import sys
import textwrap
import tokenize
from dataclasses import replace
from functools import lru_cache
from importlib.util import decode_source
from typing import TYPE_CHECKING, Any, Self

from ddcli.dataclass import frozen
from ddcli.errors import InputError, SpecError, suggestion
from ddcli.expressions.modules import WHERE, digest, find, imported, parse, reached, read
from ddcli.privacy import hides

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ddcli.errors import Span, Text
    from ddcli.expressions.modules import Module


RAISED = (Exception, SystemExit)
"""The errors that a function may raise for a record. A function that wants to exit must not end a process that does more than call it."""


class AtHand(str):
    """The name of a function that a program passes as an object, which needs no import.

    The name identifies the function while `held`, the program's object, is alive.
    """

    __slots__ = ("function", "held")
    function: Callable[..., Any]
    held: object

    def __new__(cls, function: Callable[..., Any], role: str, held: object) -> Self:
        """Return the name of `function`, which plays a `role` for the program's object."""
        called = getattr(held, "__qualname__", type(held).__qualname__)
        named = super().__new__(cls, f"{called} at {id(held):#x} ({role})")
        named.function = function
        named.held = held
        return named


class Named(str):
    """The name `module:function` of a function that a pipeline file names, with the definition that is known without running it.

    It is searched in the pipeline's `folder`, then in the environment. Names are equal if they mean the same function of the same
    text: `meaning` is the hash of its definition, `text` the digest of its module. `span` is its place in the file.
    """

    __slots__ = ("folder", "meaning", "span", "text")
    folder: str
    text: str
    meaning: str
    span: Span | None

    def __new__(cls, name: str, folder: str, text: str = "", meaning: str = "", span: Span | None = None) -> Self:
        named = super().__new__(cls, name)
        named.folder, named.text, named.meaning, named.span = folder, text, meaning, span
        return named

    def __getnewargs__(self) -> tuple[str, str, str, str, Span | None]:  # type: ignore[override]
        return str(self), self.folder, self.text, self.meaning, self.span

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Named):
            return str(self) == str(other) and (self.folder, self.text) == (other.folder, other.text)
        return str(self) == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return super().__hash__()


def named(name: Text, folder: str, given: int, what: str) -> Named:
    """Return the name of a function with its definition in its module's text; it will be called with `given` arguments, described by `what`.

    Runs nothing. Raises SpecError, at the place of the name, if it doesn't exist or can't be called with these.
    """
    try:
        found = define(name.value, folder)
    except SpecError as error:
        raise SpecError(error.problem, span=name.span, hint=error.hint) from error
    if refusal := found.refusal(given):
        raise SpecError(f"`{name.value}` {refusal}", span=name.span, hint=f"it is called with {what}")
    return Named(name.value, folder, found.text, found.meaning, name.span)


def load_function(name: str) -> Callable[..., Any]:
    """Return the function `module:function`, or the one that a program has passed. This runs its module. Raises SpecError."""
    if isinstance(name, AtHand):
        return name.function
    span = name.span if isinstance(name, Named) else None
    module_name, _, function_name = name.partition(":")
    try:
        if isinstance(name, Named):
            module = imported(module_name, name.folder, name.text)
        else:
            module = importlib.import_module(module_name)
    except SpecError as error:
        raise SpecError(error.problem, span=span, hint=error.hint) from error
    except RAISED as error:  # a user's module may raise anything while it is imported
        problem = f"module `{module_name}` can't be imported: {message_of(error)}"
        where = "it is searched next to the pipeline file and in the environment"
        raise SpecError(problem, span=span, hint=where if isinstance(error, ImportError) else None) from error
    found = getattr(module, function_name, None)
    if not callable(found):
        named = [each for each in vars(module) if callable(getattr(module, each))]
        hint = suggestion(function_name, named, "", mark="`")
        raise SpecError(f"module `{module_name}` has no function `{function_name}`", span=span, hint=hint or None)
    function: Callable[..., Any] = found
    return function


def failure(
    error: BaseException, name: str, function: Callable[..., Any], argument: str, hint: str | None = None
) -> Exception:
    """Return the error to raise for the `error` of a function; `argument` names the row or batch of the call.

    A lack of memory need not be the record's fault, so a `MemoryError` stays one: Spark repeats the task in a fresh process.
    """
    if isinstance(error, MemoryError):
        return MemoryError(f"in {name}{argument}")
    return InputError(f"{name} raised {message_of(error)}{argument}", place=line_of(error, function), hint=hint)


def message_of(error: BaseException) -> str:
    r"""Return the name and the message of an exception, in a line; the name alone where its message may quote a hidden value.

    >>> message_of(ValueError("no such\n  day")), message_of(ValueError())
    ('ValueError: no such day', 'ValueError')
    """
    lines = () if hides() else (line.strip() for line in str(error).splitlines())
    return ": ".join(filter(None, [type(error).__name__, " ".join(filter(None, lines))]))


def line_of(error: BaseException, function: Callable[..., Any]) -> str | None:
    """Return the innermost line of the function's own file that an exception came through, or None."""
    code, found, at = getattr(function, "__code__", None), None, error.__traceback__
    while code is not None and at is not None:
        if at.tb_frame.f_code.co_filename == code.co_filename:
            found = f"{code.co_filename}:{at.tb_lineno}"
        at = at.tb_next
    return found


LITERALS = (
    *(ast.Constant, ast.JoinedStr, ast.Tuple, ast.List, ast.Set, ast.Dict),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Compare),
)
"""Expressions whose values can't be called."""
WRITERS = {"globals", "vars", "locals", "setattr", "exec", "eval"}
"""Functions that can bind names that a text does not have."""

NAMES = 100
"""The number of names, one after the other, that a function may be known by."""


@frozen
class Definition:
    """A function as the text of its module shows it.

    `meaning` is a hash of its own text, without comments and formatting; empty if there is no
    text. It takes `least` arguments and up to `most` (None: any number), unless their number is unknown: then `unseen` is the reason. `keyword`
    is one that must be given by its name. `text` is the digest of the text of the module that the pipeline names.
    """

    meaning: str = ""
    least: int = 0
    most: int | None = None
    keyword: str | None = None
    unseen: str = ""
    text: str = ""

    def refusal(self, given: int) -> str | None:
        """Return the reason why it can't be called with `given` arguments; None if none is known."""
        if self.unseen:
            return None
        if self.keyword is not None:
            return f"needs the argument `{self.keyword}` by its name"
        if self.least <= given and (self.most is None or given <= self.most):
            return None
        least = f"at least {self.least}" if self.most != self.least else str(self.least)
        count = least if self.most is None or given < self.least else str(self.most)
        return f"takes {count} {'argument' if count in ('1', 'at least 1') else 'arguments'}"


def define(name: str, folder: str) -> Definition:
    """Return the definition of the function `module:function`, in a pipeline's folder or in the environment.

    Raises SpecError if there is no such module or function, or if it is certain that it can't be called.
    """
    module_name, _, function = name.partition(":")
    module = find(module_name, folder)
    if not module.beside or module.file is None:
        return _defined(module, function, folder, set())
    # First the digest: a run refuses any other text, so a change from here on doesn't run.
    text = digest(read(module.file))
    _check_imports(module, folder, text)
    return replace(_defined(module, function, folder, set()), text=text)


@lru_cache(maxsize=64)
def _check_imports(module: Module, folder: str, _text: str) -> None:
    """Raise SpecError if the imports of a module are ambiguous. Done once for all functions of a text: `load_function` checks again."""
    reached(module, folder)


def _defined(module: Module, name: str, folder: str, seen: set[tuple[str, str]]) -> Definition:
    """Return the definition of a function in a module's text, or in the text of a module from which the name is imported."""
    if module.file is None:
        return _without_text(module, name)
    data = read(module.file)
    tree, bound = parse(data, module.file), _bindings(data, module.file).get(name, [])
    if not bound:
        return _not_bound(module, tree, name)
    if len(bound) > 1 and bound[-1] not in tree.body:  # the last one counts, if it is not one of several branches
        text = "\n".join(ast.unparse(each) for each in bound)
        return Definition(_hash(text), unseen=f"`{name}` is defined in several places of {module.file}")
    if (module.name, name) in seen or len(seen) > NAMES:
        raise SpecError(f"`{name}` of module `{module.name}` is imported in a circle, or by more than {NAMES} names")
    seen.add((module.name, name))
    return _judged(bound[-1], module, name, folder, seen, data)


def _judged(
    statement: ast.stmt, module: Module, name: str, folder: str, seen: set[tuple[str, str]], data: bytes
) -> Definition:
    """Return the definition of a function from the statement that binds its name."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        meaning = _meaning(data, min(node.lineno for node in (statement, *statement.decorator_list)))
        if statement.decorator_list:
            return Definition(meaning, unseen=f"`{name}` is decorated")
        if isinstance(statement, ast.ClassDef):
            return Definition(meaning, unseen=f"`{name}` is a class")
        if isinstance(statement, ast.AsyncFunctionDef):
            hint = "write `def`: it would return a coroutine"
            raise SpecError(f"`{name}` of module `{module.name}` is `async`", hint=hint)
        return _taking(statement.args, meaning)
    if isinstance(statement, ast.ImportFrom):
        original = next(alias.name for alias in statement.names if (alias.asname or alias.name) == name)
        try:
            origin = find(module.absolute(statement.module, statement.level), folder)
        except SpecError as error:
            if error.hint != WHERE:
                raise
            return Definition(unseen=f"`{name}` is imported from a module that does not exist here")
        return _defined(origin, original, folder, seen)
    value = _assigned(statement, name)
    if isinstance(value, ast.Lambda):
        return _taking(value.args, _meaning(data, value.lineno))
    if isinstance(value, ast.Name) and value.id != name:
        return _defined(module, value.id, folder, seen)
    if isinstance(value, LITERALS) or isinstance(statement, ast.Import):
        raise SpecError(f"`{name}` of module `{module.name}` is not a function")
    # A function made from another of the module, such as a decorated one, is identified by that; `partial` has no text.
    meaning = ""
    if isinstance(value, ast.Call) and value.args and not ast.unparse(value.func).endswith("partial"):
        wrapped = value.args[0]
        if isinstance(wrapped, ast.Name) and wrapped.id != name and wrapped.id in _bindings(data, str(module.file)):
            meaning = _defined(module, wrapped.id, folder, seen).meaning
    return Definition(meaning, unseen=f"`{name}` is assigned")


def _not_bound(module: Module, tree: ast.Module, name: str) -> Definition:
    """Return an unknown definition for a name that a module may bind in ways that its text does not show; raise SpecError if it can't."""
    for node in ast.walk(tree):
        star = isinstance(node, ast.ImportFrom) and node.names[0].name == "*"
        asked = isinstance(node, ast.FunctionDef) and node.name == "__getattr__"
        written = isinstance(node, ast.Name) and node.id in WRITERS
        inside = isinstance(node, ast.Global) and name in node.names
        if star or asked or written or inside:
            return Definition(unseen=f"`{name}` is not in the text of module `{module.name}`")
    raise _missing(module, name, [each.name for each in tree.body if isinstance(each, ast.FunctionDef | ast.ClassDef)])


def _without_text(module: Module, name: str) -> Definition:
    """Return the definition of a function of a compiled module; its names are known only if it is imported already, as `math` is."""
    loaded = sys.modules.get(module.name)
    names = {} if module.beside or loaded is None else vars(loaded)
    if names and "__getattr__" not in names and not callable(names.get(name)):
        raise _missing(module, name, [other for other, value in names.items() if callable(value)])
    return Definition(unseen=f"module `{module.name}` has no text to read")


def _missing(module: Module, name: str, known: Iterable[str]) -> SpecError:
    hint = suggestion(name, known, "", mark="`") or None
    return SpecError(f"module `{module.name}` has no function `{name}`", hint=hint)


@lru_cache(maxsize=2)
def _bindings(data: bytes, file: str) -> dict[str, list[ast.stmt]]:
    """Return the statements of a module, also those in its branches and loops, by the names that they bind, in their order."""
    found: dict[str, list[ast.stmt]] = {}
    pending: list[ast.stmt] = parse(data, file).body[::-1]
    while pending:
        statement = pending.pop()
        for name in dict.fromkeys(_bound(statement)):
            found.setdefault(name, []).append(statement)
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = [node for node in ast.iter_child_nodes(statement) if isinstance(node, ast.stmt | _BRANCHES)]
            nested = [each for node in inner for each in ([node] if isinstance(node, ast.stmt) else node.body)]
            pending += nested[::-1]
    return found


_BRANCHES = ast.ExceptHandler | ast.match_case


def _bound(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement binds itself, not the names of statements inside of it."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
        return
    if isinstance(statement, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in statement.names)
        return
    pending: list[ast.AST] = [statement]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.comprehension | ast.Lambda):  # their names are their own
            continue
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            yield node.name
        pending += [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.stmt)]


def _assigned(statement: ast.stmt, name: str) -> ast.expr | None:
    """Return the expression that a statement assigns to a name as a whole; None if it is unpacked, or nothing is assigned."""
    if isinstance(statement, ast.AnnAssign):
        return statement.value
    if isinstance(statement, ast.Assign):
        return (
            statement.value
            if any(isinstance(each, ast.Name) and each.id == name for each in statement.targets)
            else None
        )
    return None


def _taking(arguments: ast.arguments, meaning: str) -> Definition:
    positional = len(arguments.posonlyargs) + len(arguments.args)
    asked = [
        each.arg for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if default is None
    ]
    least, most = positional - len(arguments.defaults), None if arguments.vararg else positional
    return Definition(meaning, least, most, asked[0] if asked else None)


def _meaning(data: bytes, line: int) -> str:
    """Return the hash of the block of a text that begins at a line, as `inspect.getsource` cuts it out; states have these hashes."""
    lines = decode_source(data).splitlines(keepends=True)
    try:
        block = textwrap.dedent("".join(inspect.getblock(lines[line - 1 :])))
        return _hash(ast.unparse(ast.parse(block)))
    except (SyntaxError, tokenize.TokenError):
        return ""
    except RecursionError:  # text that is nested so deeply is hashed with comments and formatting
        return _hash(block)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
