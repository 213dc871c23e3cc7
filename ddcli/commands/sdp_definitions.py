"""The tables, views and flows that an SQL file of Spark's declarative pipelines defines, statement by statement.

The project's specification, `spark-pipeline.yml`, names the files.
"""

from __future__ import annotations

import ast
import glob
import os
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from ddcli.commands.projects import span
from ddcli.dataclass import frozen
from ddcli.errors import Span, SpecError, UsageError, first_line
from ddcli.spec.tree import too_deep

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


KINDS = {
    ("MATERIALIZED", "VIEW"): "materialized view",
    ("STREAMING", "TABLE"): "streaming table",
    ("TEMPORARY", "VIEW"): "temporary view",
    ("TEMP", "VIEW"): "temporary view",
    ("VIEW",): "view",
    ("FLOW",): "flow",
}
NAMED = (TokenType.STRING, TokenType.RAW_STRING, TokenType.IDENTIFIER)
"""The tokens that are never words."""
LAYOUT = ("TBLPROPERTIES", "PARTITIONED BY", "CLUSTER BY", "OPTIONS")
"""Clauses in parentheses about a table's storage, not its rows."""


CHANGE_CLAUSES = {
    ("KEYS",): "keys",
    ("IGNORE", "NULL", "UPDATES"): "ignore null updates",
    ("APPLY", "AS", "DELETE", "WHEN"): "apply as delete",
    ("SEQUENCE", "BY"): "sequence by",
    ("COLUMNS",): "columns",
    ("STORED", "AS"): "stored as",
    ("TRACK", "HISTORY", "ON"): "track history",
    ("APPLY", "AS", "TRUNCATE", "WHEN"): "apply as truncate",
    ("SYSTEM", "SEQUENCE", "BY"): "system sequence by",
}
"""The clauses of a flow of changes, in any order."""
UNKNOWN_CLAUSES = ("apply as truncate", "system sequence by")
ACTIONS = {("DROP", "ROW"): "drop", ("FAIL", "UPDATE"): "fail"}
DECORATORS = {
    "expect": "",
    "expect_all": "",
    "expect_or_drop": " on violation drop row",
    "expect_all_or_drop": " on violation drop row",
    "expect_or_fail": " on violation fail update",
    "expect_all_or_fail": " on violation fail update",
}
"""The decorators of tables in Python that are expectations, with the same in SQL."""


@frozen
class Expectation:
    """A constraint of a table or a view: its condition, and the consequence for a row that violates it: none, `drop` or `fail`."""

    name: str
    condition: tuple[Token, ...]
    action: str
    place: Span


@frozen
class ColumnList:
    """Some columns, or all but these."""

    names: tuple[str, ...]
    excluded: bool


@frozen
class ChangeFlow:
    """The clauses of `auto cdc`: the name of the source, or its query, and how its rows change the target."""

    source: tuple[str, ...]
    query: tuple[Token, ...]
    keys: tuple[str, ...]
    sequence: tuple[Token, ...]
    deletes: tuple[Token, ...]
    columns: ColumnList
    tracked: ColumnList
    history: bool
    """True: SCD type 2, a row for each interval."""
    ignores_nulls: bool


@frozen
class SparkDefinition:
    """A table, a view or a flow, whose name begins at the character `start`; the target table of a flow; and the tokens of the query,
    if there is one, or the changes that it applies.
    """

    kind: str
    name: tuple[str, ...]
    target: tuple[str, ...]
    file: str
    text: str
    place: Span
    start: int
    query: tuple[Token, ...] = ()
    changes: ChangeFlow | None = None
    expectations: tuple[Expectation, ...] = ()


def read_definitions(file: str, text: str) -> tuple[list[SparkDefinition], list[SpecError]]:
    """Return the definitions of a file, and an error for each that can't be imported."""
    found: list[SparkDefinition] = []
    errors: list[SpecError] = []
    try:
        tokens = Spark().tokenize(text)
    except (SqlglotError, RecursionError) as error:
        return [], [SpecError(f"this can't be read as SQL: {first_line(error):.200}", span=span(file, text, 0))]
    for statement in _statements(tokens):
        try:
            found.append(_SparkStatement(file, text, statement).read())
        except SpecError as error:
            errors.append(error)
    return found, errors


def _statements(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    some: list[Token] = []
    for token in tokens:
        if token.token_type != TokenType.SEMICOLON:
            some.append(token)
        elif some:
            yield some
            some = []
    if some:
        yield some


def word_of(token: Token) -> str:
    """Return a token's word in capitals; of a quoted name or a text, an empty text."""
    return "" if token.token_type in NAMED else " ".join(token.text.upper().split())


class _SparkStatement:
    """The parser of one statement, from its beginning."""

    def __init__(self, file: str, text: str, tokens: list[Token]) -> None:
        self.file, self.text, self.tokens, self.at = file, text, tokens, 0

    def read(self) -> SparkDefinition:
        if not self.take("CREATE"):
            raise self.error(f"`{self.here()}` can't be imported")
        if self.take("OR"):
            self.at += 1
        kind = next((kind for words, kind in KINDS.items() if self.take(*words)), None)
        if kind is None:
            raise self.error(f"`create {self.here().lower()}` can't be imported")
        self.take("IF", "NOT", "EXISTS")
        place, start = self.place(), self.tokens[min(self.at, len(self.tokens) - 1)].start
        name, target = self.name(), tuple[str, ...]()
        expectations = tuple(self.expectations()) if kind != "flow" and self.word() == "(" else ()
        self.clauses()
        made = SparkDefinition(kind, name, target, self.file, self.text, place, start, expectations=expectations)
        if kind == "flow":
            if self.take("AS", "AUTO", "CDC", "INTO"):
                return replace(made, target=self.name(), changes=self.changes())
            if not self.take("AS", "INSERT", "INTO"):
                raise self.error("a flow that is neither `insert into` nor `auto cdc into` can't be imported")
            made = replace(made, target=self.name())
            self.take("BY", "NAME")
        elif kind == "streaming table" and self.take("FLOW", "AUTO", "CDC"):
            return replace(made, changes=self.changes())
        elif not self.take("AS"):
            if self.at < len(self.tokens) or kind != "streaming table":
                raise self.error("this clause can't be imported" if self.at < len(self.tokens) else "there is no query")
            return made
        query = tuple(self.tokens[self.at :])
        if not query:
            raise self.error("there is no query")
        return replace(made, query=query)

    def expectations(self) -> Iterator[Expectation]:
        """Read a list in parentheses, and yield its constraints. Raises SpecError for other items."""
        self.take("(")
        while True:
            place = self.place()
            if not self.take("CONSTRAINT"):
                raise self.error("its columns are declared", "cast and name them in the query")
            name = ".".join(self.name())
            if not self.take("EXPECT") or self.word() != "(":
                raise self.error("a constraint that is not `expect (condition)` can't be imported")
            condition = self.inside()
            action = ""
            if self.take("ON", "VIOLATION"):
                action = next((action for words, action in ACTIONS.items() if self.take(*words)), "")
                if not action:
                    raise self.error("`on violation` is followed by `drop row` or `fail update`")
            yield Expectation(name, condition, action, place)
            if not self.take(","):
                break
        if not self.take(")"):
            raise self.error("there is no `)` after the constraint")

    def changes(self) -> ChangeFlow:
        """Read the clauses after `auto cdc into table`."""
        if not self.take("FROM"):
            raise self.error("there is no `from`")
        stream = self.take("STREAM")
        source, query = tuple[str, ...](), tuple[Token, ...]()
        if self.word() == "(" and not stream:
            query = self.inside()
        elif self.word() == "(":
            self.take("(")
            source = self.name()
            self.take(")")
        else:
            source = self.name()
        found: dict[str, tuple[Token, ...]] = {}
        while self.at < len(self.tokens):
            place = self.error("this clause can't be imported")
            clause = next((clause for words, clause in CHANGE_CLAUSES.items() if self.take(*words)), None)
            if clause is None or clause in found or clause in UNKNOWN_CLAUSES:
                raise place
            found[clause] = self.until_clause()
        for clause in ("keys", "sequence by"):
            if not found.get(clause):
                raise self.error(f"there is no `{clause}`")
        if found.get("ignore null updates"):
            raise self.error("`ignore null updates` of some columns can't be imported")
        stored = [word_of(token) for token in found.get("stored as", ())]
        if stored not in ([], ["SCD", "TYPE", "1"], ["SCD", "TYPE", "2"]):
            raise self.error("a target is stored as `scd type 1` or `scd type 2`")
        history = stored[-1:] == ["2"]
        if "track history" in found and not history:
            raise self.error("`track history on` is for `scd type 2`")
        keys, columns, tracked = (self.columns(found.get(clause)) for clause in ("keys", "columns", "track history"))
        if keys.excluded:
            raise self.error("`keys` are a list of columns")
        sequence, deletes = found["sequence by"], found.get("apply as delete", ())
        ignores = "ignore null updates" in found
        return ChangeFlow(source, query, keys.names, sequence, deletes, columns, tracked, history, ignores)

    def until_clause(self) -> tuple[Token, ...]:
        """Return the tokens before the next clause of a flow of changes."""
        first, depth = self.at, 0
        while self.at < len(self.tokens):
            depth += {"(": 1, ")": -1}.get(self.word(), 0)
            here = self.at
            if not depth and any(self.take(*words) for words in CHANGE_CLAUSES):
                self.at = here
                break
            self.at += 1
        return tuple(self.tokens[first : self.at])

    def columns(self, tokens: tuple[Token, ...] | None) -> ColumnList:
        """Return the columns that a clause lists, in parentheses or without; all if there is no clause."""
        if tokens is None:
            return ColumnList((), excluded=True)
        excluded = [word_of(token) for token in tokens[:2]] == ["*", "EXCEPT"]
        listed = tokens[2:] if excluded else tokens
        if listed and word_of(listed[0]) == "(" and word_of(listed[-1]) == ")":
            listed = listed[1:-1]
        names, commas = listed[::2], listed[1::2]
        if len(names) != len(commas) + 1 or any(word_of(comma) != "," for comma in commas):
            raise self.error("a list of columns is `(a, b)` or `* except (a, b)`")
        return ColumnList(tuple(token.text for token in names), excluded)

    def clauses(self) -> None:
        """Skip comments, and clauses about a table's storage."""
        while True:
            if self.take("COMMENT") or self.take("USING"):
                self.at += 1
            elif self.word() in LAYOUT or f"{self.word()} {self.word(1)}" in LAYOUT:
                self.at += 1 if self.word() in LAYOUT else 2
                self.parentheses()
            else:
                return

    def inside(self) -> tuple[Token, ...]:
        """Skip a pair of parentheses, and return the tokens in it."""
        first = self.at
        self.parentheses()
        if self.at - first < 3:
            raise self.error("there is nothing in the parentheses")
        return tuple(self.tokens[first + 1 : self.at - 1])

    def parentheses(self) -> None:
        depth = 0
        while self.at < len(self.tokens):
            depth += {"(": 1, ")": -1}.get(self.word(), 0)
            self.at += 1
            if not depth:
                return
        raise self.error("a parenthesis is not closed")

    def name(self) -> tuple[str, ...]:
        """Read a name and return its parts."""
        parts = []
        while self.at < len(self.tokens) and self.here():
            parts.append(self.tokens[self.at].text)
            self.at += 1
            if self.word() != ".":
                break
            self.at += 1
        if not parts or parts == ["("]:
            raise self.error("there is no name")
        return tuple(parts)

    def take(self, *words: str) -> bool:
        """Skip some words if they are next, and return whether they were."""
        known = [word for at in range(len(words)) for word in self.word(at).split(" ")][: len(words)]
        if known != list(words):
            return False
        while words:
            words = words[len(self.word().split(" ")) :]
            self.at += 1
        return True

    def word(self, ahead: int = 0) -> str:
        at = self.at + ahead
        return word_of(self.tokens[at]) if at < len(self.tokens) else ""

    def here(self) -> str:
        return self.tokens[self.at].text if self.at < len(self.tokens) else ""

    def place(self) -> Span:
        token = self.tokens[min(self.at, len(self.tokens) - 1)]
        return span(self.file, self.text, token.start, token.end + 1 - token.start)

    def error(self, problem: str, hint: str | None = None) -> SpecError:
        return SpecError(problem, span=self.place(), hint=hint)


SPECS = ("spark-pipeline.yml", "spark-pipeline.yaml")
FIELDS = {"name", "storage", "catalog", "database", "schema", "configuration", "libraries"}
LARGEST = 1 << 20
"""The most bytes of the specification, and of an SQL file."""
Key = tuple[str, ...]


@frozen
class SparkProject:
    """A project's specification: the paths of its definitions, and the default catalog and database."""

    path: Path
    name: str
    libraries: tuple[str, ...]
    before: tuple[str, str]
    """The default catalog and database of a table's name, in lower case; '' if there is none."""
    configuration: dict[str, str]

    def key(self, parts: Key) -> Key:
        """Return the full name of a table."""
        lower = tuple(part.lower() for part in parts)
        return (*self.before[: max(0, 3 - len(lower))], *lower)


def read_spec(project: Path) -> SparkProject:
    """Return the specification in a folder, or of a file. Raises UsageError for one that Spark would refuse, too."""
    path = project
    if project.is_dir():
        there = [project / name for name in SPECS if (project / name).is_file()]
        if len(there) != 1:
            problem = f"there are {' and '.join(SPECS)}" if there else f"there is no {SPECS[0]}"
            raise UsageError(problem, place=str(project), hint="name the file of the pipeline's specification")
        (path,) = there
    try:
        tree = yaml_value(text_of(path))
    except (yaml.YAMLError, ValueError) as error:
        problem = f"this is not YAML: {first_line(error):.200}"
        raise UsageError(problem, place=str(path), hint="correct the file") from None
    try:
        return _spec_of(tree, path)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        why = f"`{error.args[0]}` is missing" if isinstance(error, KeyError) else str(error)
        hint = "correct the file: `spark-pipelines dry-run` refuses it, too"
        raise UsageError(f"this is not a pipeline's specification: {why:.200}", place=str(path), hint=hint) from None


def _spec_of(tree: Any, path: Path) -> SparkProject:
    """Return the specification of a file's tree. An unfit tree raises AttributeError, KeyError, TypeError or ValueError."""
    if not isinstance(tree, dict):
        raise TypeError("it is no mapping")
    if unknown := sorted(map(str, tree.keys() - FIELDS)):
        raise ValueError(f"`{unknown[0]}` is not a field of it")
    given = {name: tree.get(name) for name in ("name", "catalog", "database", "schema")}
    if not isinstance(tree["name"], str) or any(not isinstance(each, str | None) for each in given.values()):
        raise ValueError("a name is not text")
    libraries = tuple(each["glob"]["include"] for each in tree.get("libraries") or ())
    configuration = dict(tree.get("configuration") or {})
    if not all(isinstance(each, str) for each in (*libraries, *configuration, *configuration.values())):
        raise ValueError("a path or a setting is not text")
    for each in libraries:
        if glob.has_magic(each.removesuffix("/**")):
            raise ValueError(f"`{each}` is neither a file nor a folder followed by `/**`")
    before = (given["catalog"] or "").lower(), (given["database"] or given["schema"] or "").lower()
    return SparkProject(path, tree["name"], libraries, before, configuration)


def yaml_value(text: str) -> Any:
    """Return the content of a YAML text, read by libyaml, which reads `string?` in braces right. Raises YAMLError and ValueError."""
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    if too_deep(text, loader):
        raise ValueError("nested too deeply")
    return yaml.load(text, Loader=loader)  # noqa: S506 - a safe one


def expectations_in_python(file: str, path: Path) -> list[SpecError]:
    """Return an error for each expectation of a table in a Python file: it is left out with its table. The file is only parsed; one that can't be has none."""
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(text_of(path))
    except (UsageError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    found = []
    for table in ast.walk(tree):
        for call in getattr(table, "decorator_list", ()):
            word = getattr(call, "func", None)
            action = DECORATORS.get(getattr(word, "attr", getattr(word, "id", "")))
            for name, condition in _pairs(call) if action is not None else ():
                problem = f"expectation `{name}` of `{getattr(table, 'name', '?')}`: it is written in Python"
                hint = f"write the table in SQL, with `constraint {name} expect ({condition}){action}`"
                found.append(SpecError(problem, span=Span(file, call.lineno, call.col_offset + 1), hint=hint))
    return found


def _pairs(call: ast.Call) -> list[tuple[str, str]]:
    """Return the names and the conditions of a decorator: two arguments, or a mapping; `...` for what is no text."""
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    both = given[0] if given else None
    pairs = zip(both.keys, both.values, strict=True) if isinstance(both, ast.Dict) else [(*given, None, None)[:2]]
    return [(_text_in(name), _text_in(condition)) for name, condition in pairs]


def _text_in(node: ast.expr | None) -> str:
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, str) else "..."


def text_of(path: Path) -> str:
    """Return the text of a file. Raises UsageError."""
    try:
        if path.stat().st_size > LARGEST:
            raise UsageError(f"larger than {LARGEST >> 20} MiB", place=str(path))
        return path.read_text(encoding="utf-8").replace("\r\n", "\n")
    except OSError as error:
        raise UsageError(f"can't read it: {error.strerror}", place=str(path)) from None
    except UnicodeDecodeError:
        raise UsageError("not UTF-8", place=str(path)) from None


def library_files(spec: SparkProject) -> list[Path]:
    """Return the files that the libraries name, each once, in order."""
    folder = spec.path.parent
    below = os.path.normpath(folder.absolute())
    found: dict[Path, None] = {}
    for each in spec.libraries:
        if not each.endswith("/**"):
            paths = [folder / each]
        else:
            paths = [
                Path(place, name) for place, _, names in os.walk(folder / each.removesuffix("/**")) for name in names
            ]
        if outside := next(
            (path for path in paths if not Path(os.path.normpath(path.absolute())).is_relative_to(below)), None
        ):
            raise UsageError(
                "the library is outside of the project", place=str(outside), hint="move it into the project"
            )
        found |= dict.fromkeys(
            path for path in sorted(paths) if path.is_file() and "__pycache__" not in path.parts and path != spec.path
        )
    return list(found)
