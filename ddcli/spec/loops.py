"""Collections, which begin `from` others, as a loop or with a query; and loops, whose bodies are collections."""

from __future__ import annotations

from typing import Any

from ddcli.spec import model
from ddcli.spec.apply import A_SOURCE, FLOW
from ddcli.spec.column_shapes import NAME
from ddcli.spec.names import NO_ONE
from ddcli.spec.reader import JsonSchema, NodePlace, Notes, Refused, Shape
from ddcli.spec.shapes import As, ByKind, Defined, Key, Many, Pairs, Record
from ddcli.spec.tree import Mapping, Node
from ddcli.spec.values import QueryText, Whole, Words


def _iterate(place: NodePlace, arguments: dict[str, Any]) -> model.Iterate:
    body = {name.value: collection for name, collection in arguments.pop("body")}
    rounds = arguments.pop("rounds", {})
    return model.Iterate(body=body, span=place.word.span, place=place.path, **arguments, **rounds)


def _collection(place: NodePlace, arguments: dict[str, Any]) -> model.CollectionSpec:
    return model.CollectionSpec(place.word, **arguments)


def _a_collection() -> Shape[model.CollectionSpec]:
    return COLLECTION


A_COLLECTION: Shape[model.CollectionSpec] = Defined("collection", _a_collection)
RESULT = Words("the name of a collection in the body")
RESULTS: Shape[Any] = ByKind(
    "a collection of the body, or a list of them",
    scalar=RESULT,
    sequence=Many(RESULT, "a list of collections of the body", distinct=True),
)
GUARD = {"guard": Key(Whole(1), required=True, about="an error if it still changes after so many rounds")}
ROUNDS: Shape[dict[str, Any]] = ByKind(
    "a number of rounds, or a mapping",
    scalar=As(Whole(1), lambda _, rounds: {"bound": rounds}),
    mapping=Record(lambda _, arguments: arguments, GUARD, "a mapping", "{guard: 100}"),
    hint="write `max_rounds: 20` to stop there, `max_rounds: {guard: 20}` for an error if it changes still",
)
ITERATE: Shape[model.Iterate] = Record(
    _iterate,
    {
        "variables": Key(
            Pairs(NAME, A_SOURCE, "a mapping of variables to their initial collections"),
            required=True,
            about="each with its initial collection: an input, a collection, or one in place",
        ),
        "body": Key(
            Pairs(NAME, A_COLLECTION, "a mapping of names to collections", things=True),
            required=True,
            about="a collection for each variable, its value in the next round, and any others",
        ),
        "result": Key(RESULTS, required=True, about="the loop's result; of a list, each as name.result"),
        "max_rounds": Key(ROUNDS, about="a bound, or {guard: n}; default: {guard: 10000}", argument="rounds"),
    },
    "a mapping",
    "{variables: {best: labels}, body: {best: {from: best, apply: [distinct]}}, result: best}",
)
ON = {
    "on": Key(
        Words("an engine", "spark|local", "the engines are `spark` and `local`"),
        about="where it is computed with `--engine auto`: spark or local; default: by how much there is to do",
    )
}
BEGINNING = Record(_collection, FLOW | ON, "a mapping with `from`", "{from: orders, apply: [distinct]}")
LOOPING = Record(
    _collection,
    {"iterate": Key(ITERATE, required=True, about="a loop", argument="sources"), "apply": FLOW["apply"]} | ON,
    "a mapping with `iterate`",
    "{iterate: {variables: {best: labels}, body: {best: {from: best}}, result: best}}",
)


QUERYING = Record(
    _collection,
    {
        "sql": Key(
            QueryText(), required=True, about="a query, over inputs and collections by name", argument="sources"
        ),
        "apply": FLOW["apply"],
    }
    | ON,
    "a mapping with `sql`",
    "{sql: select id from orders where amount > 100}",
)


class LoopStart(Shape[model.CollectionSpec]):
    """A collection: with `iterate` a loop, with `sql` a query, else `from` others."""

    def _read(self, node: Node, place: NodePlace, notes: Notes) -> model.CollectionSpec:
        words = {word.value: word for word, _ in node.entries} if isinstance(node, Mapping) else {}
        if isinstance(node, Mapping) and "sql" in words:
            for other in ("from", "iterate"):
                if other in words:
                    problem = f"begins with `{other}` and with `sql`: it is one or the other"
                    raise notes.refuse(place.path, problem, words[other].span, "name other collections in the query")
            return QUERYING.read(node, place, notes)
        if not isinstance(node, Mapping) or "iterate" not in words:
            return BEGINNING.read(node, place, notes)
        wrong = "from" in words
        if wrong:
            problem = "begins `from` others and with `iterate`: it is one or the other"
            notes.refuse(
                place.path, problem, words["from"].span, "name the loop's initial collections under `variables`"
            )
            node = Mapping(tuple(entry for entry in node.entries if entry[0].value != "from"), node.span, node.flow)
        read = LOOPING.read(node, place, notes)
        if read.apply and isinstance(read.sources, model.Iterate) and isinstance(read.sources.result, tuple):
            problem = f"{NO_ONE} to apply operators to"
            hint = f"begin a collection `from: {read.names[0]}`, or name one result without brackets"
            notes.refuse(place.path, problem, words["apply"].span, hint)
            wrong = True
        if wrong:
            raise Refused
        return read

    def _schema(self) -> JsonSchema:
        return {"anyOf": [BEGINNING.schema(), LOOPING.schema(), QUERYING.schema()]}


COLLECTION = LoopStart()
