"""Broken pipeline files and what is said of each: place, problem, hint."""

from pathlib import Path

import pytest
import yaml

from ddcli.errors import SpecErrors, UsageError
from ddcli.plan.operators.table import OPERATORS
from ddcli.plan.pipeline_file import load_spec, parse_spec

HEAD = "dd: 1\nname: p\ninputs: {orders: in/, customers: {path: c/}}\n"
OUT = "outputs: {big: out/}\n"
ORDERS = "outputs: {orders: o/}\n"


def applied(apply, source="orders"):
    """Return a pipeline whose line 8 is the first of some operators, at column 7."""
    lines = "".join(f"      {line}\n" for line in apply.split("\n"))
    return f"{HEAD}collections:\n  big:\n    from: {source}\n    apply:\n{lines}{OUT}"


def customers(more):
    """Return a pipeline whose input `customers` has further keys, in line 3 from column 45 on."""
    return HEAD.replace("{path: c/}", f"{{path: c/, {more}}}") + ORDERS


# name: text, then for each error "line:column problem" and the hint
BROKEN = {
    "long_number": (
        f"dd: 1\nname: p\nshards: {'9' * 5_000}\ninputs: {{a: in/}}\noutputs: {{a: out/}}\n",
        f"3:9 shards: must be a whole number from 1 to 4096, found '{'9' * 60}...'",
        None,
    ),
    "long_name": (
        f"dd: 1\nname: {'x' * 256}\ninputs: {{a: in/}}\noutputs: {{a: out/}}\n",
        "2:7 name: 'xxxxxxxxxxxxxxxxxxxx...' is too long for a name",
        "a name in a path has at most 255 bytes, a path 3000",
    ),
    "nul_in_path": (
        'dd: 1\nname: p\ninputs: {a: in/}\noutputs: {a: "out\\0/"}\n',
        "4:14 outputs.a: 'out\\x00/' can't be a path",
        "leave out the NUL",
    ),
    "long_path": (
        f"dd: 1\nname: p\ninputs: {{a: in/{'ß' * 128}/}}\noutputs: {{a: {'out/' * 751}}}\n",
        "3:13 inputs.a: 'in/ßßßßßßßßßßßßßßßßß...' is too long for a path",
        "a name in a path has at most 255 bytes, a path 3000",
        "4:14 outputs.a: 'out/out/out/out/out/...' is too long for a path",
        "a name in a path has at most 255 bytes, a path 3000",
    ),
    "unknown_name": (
        applied("- distinct", "order"),
        "6:11 collections.big: no input or collection is named 'order'",
        "did you mean `orders`? (in scope: customers, orders)",
    ),
    "comma": (
        applied("- map: {region: coalesce(region, 0), day: d}"),
        "8:23 collections.big.apply[0].map: a comma cuts the expression after 'coalesce(region'",
        'quote the expression: "coalesce(region, 0)"',
    ),
    "comma2": (
        applied("- {filter: coalesce(x, 0) > 1}"),
        "8:18 collections.big.apply[0]: a comma cuts the expression after 'coalesce(x'",
        'quote the expression: "coalesce(x, 0) > 1"',
    ),
    "comma3": (
        applied("- top_k: {k: 1, order_by: [coalesce(a, b) desc]}"),
        "8:34 collections.big.apply[0].top_k.order_by: a comma cuts the expression after 'coalesce(a'",
        'quote the expression: "coalesce(a, b) desc"',
    ),
    "comma_quote": (
        applied("- map: {region: coalesce(region, 'unknown'), day: d}"),
        "8:49 ')' is unexpected inside braces",
        "quote the expression: brackets, braces, quotes and commas cut a plain one",
    ),
    "hash": (
        applied("- filter: name = 'a #1'"),
        "8:27 collections.big.apply[0].filter: ` #` cuts the expression: a comment begins here",
        "quote the expression",
    ),
    "hash_in_query": (
        "dd: 1\nname: p\ninputs: {a: in/}\ncollections:\n  b:\n    sql: select * from a where name = 'a #1'\noutputs: {b: out/}\n",
        "6:42 collections.b.sql: ` #` cuts the query: a comment begins here",
        "write it as a block: `sql: |`, and the query below, indented",
    ),
    "hash2": (
        applied("- filter: #1 = x"),
        "8:17 collections.big.apply[0].filter: ` #` cuts the expression: a comment begins here",
        "quote the expression",
    ),
    "hash3": (
        applied("- filter: status = #1"),
        "8:26 collections.big.apply[0].filter: ` #` cuts the expression: a comment begins here",
        "quote the expression",
    ),
    "brackets": (
        applied("- map: {a: xs[1]}"),
        "8:20 '[' is unexpected inside braces",
        "quote the expression: brackets, braces, quotes and commas cut a plain one",
    ),
    "tab": (
        applied("- map:\n\ta: 1"),
        "9:7 a tab in the indentation",
        "indent with spaces",
    ),
    "empty": (
        "",
        "1:1 the file is empty",
        "add `inputs: {orders: landing/orders/}`",
    ),
    "comment_only": (
        "# hello\n",
        "1:1 the file is empty",
        "add `inputs: {orders: landing/orders/}`",
    ),
    "misspelt_format": (
        "inputs:\n  a: {path: b, fromat: upsert, key: [k]}\noutputs: {a: c}\n",
        "2:16 inputs.a: unknown key 'fromat'",
        "did you mean `format`? (keys: path, format, columns, file_name, csv, rounding, late, max_ahead, quarantine, consumed, changed, missing, time, key, delete_when, order_by)",
    ),
    "version": (
        HEAD.replace("dd: 1", "dd: 2") + "foo: 1\n",
        "1:5 unknown version '2' of the file's language",
        "this dd reads version 1: write `dd: 1`, or get a newer dd",
    ),
    "dup": (
        HEAD + "inputs: {a: b}\n" + OUT,
        "4:1 duplicate key 'inputs', first at p.yaml:3:1",
        "keep one of the two",
        "5:11 outputs.big: no input or collection is named 'big'",
        "in scope: customers, orders",
    ),
    "dup2": (
        HEAD + "collections:\n  big: {from: orders}\n  big: {from: customers}\n" + OUT,
        "6:3 collections: duplicate key 'big', first at p.yaml:5:3",
        "keep one of the two",
    ),
    "unk_key": (
        HEAD + "colections: {}\n" + ORDERS,
        "4:1 unknown key 'colections'",
        "did you mean `collections`? (keys: dd, name, include, clock, timezone, inputs, collections, outputs, state, history, shards, errors, spark, budget, checks, tests)",
    ),
    "unk_op": (
        applied("- fliter: a > 0"),
        "8:9 collections.big.apply[0]: unknown operator 'fliter'",
        f"did you mean `filter`? (operators: {', '.join(OPERATORS)})",
    ),
    "nocolon": (
        applied("- filter amount > 0"),
        "8:9 collections.big.apply[0]: 'filter' is not followed by a colon",
        "write `- filter: amount > 0`",
    ),
    "indent": (
        applied("- join:\n  with: customers\n  on: [id]"),
        "9:9 collections.big.apply[0]: one item is one operator, found 'join', 'with', 'on'",
        "indent what belongs to `join` further than `join` itself",
    ),
    "nodash": (
        applied("- filter: a\n  map: {a: a}"),
        "9:9 collections.big.apply[0]: one item is one operator, found 'filter', 'map'",
        "begin each operator with a dash: `- map: ...`",
    ),
    "bare": (
        applied("- filter"),
        "8:9 collections.big.apply[0].filter: must be a condition, found nothing",
        "write it after the colon, quoted if it has a comma or begins with a special character",
    ),
    "bare_join": (
        applied("- join"),
        "8:9 collections.big.apply[0].join: must be a mapping, found nothing",
        "for example `join: {with: customers, on: [customer_id]}`",
    ),
    "distinct_arg": (
        applied("- distinct: {on: x}"),
        "8:19 collections.big.apply[0].distinct: must be empty, found a mapping",
        "write `- distinct`",
    ),
    "how": (
        applied("- join: {with: customers, on: [id], how: outer}"),
        "8:48 collections.big.apply[0].join.how: unknown kind of join 'outer'",
        "known: inner, left, right, full",
    ),
    "on_nothing": (
        applied("- join: {with: customers, on: }"),
        "8:33 collections.big.apply[0].join.on: must be a list of common columns, or a mapping of left to right columns, found nothing",
        "write `on: [customer_id]` or `on: {manager: employee}`",
    ),
    "with": (
        applied("- join: {with: customer, on: [id]}"),
        "8:22 collections.big.apply[0].join: no input or collection is named 'customer'",
        "did you mean `customers`? (in scope: customers, orders)",
    ),
    "type": (
        customers("columns: {a: itn64, b: decimal}"),
        "3:58 inputs.customers.columns.a: unknown type 'itn64'",
        "did you mean `int64`? (types: int8, int16, int32, int64, uint8, uint16, uint32, uint64, float32, float64, bool, date, time, string, binary, null, decimal(p, s), datetime[us], duration[us], list[...]; a `?` allows nulls)",
        "3:68 inputs.customers.columns.b: unknown type 'decimal'",
        "did you mean `decimal(12, 2)`? (types: int8, int16, int32, int64, uint8, uint16, uint32, uint64, float32, float64, bool, date, time, string, binary, null, decimal(p, s), datetime[us], duration[us], list[...]; a `?` allows nulls)",
    ),
    "format": (
        customers("format: upsrt"),
        "3:53 inputs.customers.format: unknown format 'upsrt'",
        "did you mean `upsert`? (known: updates, append, upsert, snapshots, debezium, delta_cdf)",
    ),
    "format's key": (
        customers("order_by: x"),
        "3:45 inputs.customers: the format 'updates' has no key 'order_by'",
        "it is a key of the formats upsert, snapshots, debezium",
    ),
    "no key": (
        customers("format: upsert"),
        "3:23 inputs.customers: the key 'key' is missing",
        "for example `{path: landing/orders/, format: upsert, key: [order_id]}`",
    ),
    "no key of a flattened event": (
        customers("format: debezium, flattened: true"),
        "3:23 inputs.customers: the key 'key' is missing",
        "a flattened event holds its key's new record: name the columns, `key: [id]`",
    ),
    "key of no column": (
        customers("format: upsert, key: b, columns: {a: int64}"),
        "3:66 inputs.customers.key: 'b' is not under `columns`",
        "declared are: a",
    ),
    "key that is the time": (
        customers("format: snapshots, key: [a, day], time: day"),
        "3:73 inputs.customers.key: 'day' is the time",
        "a key has it for all times",
    ),
    "several times": (
        customers("format: upsert, key: a, time: [e, v]"),
        "3:75 inputs.customers.time: must be a column's name, found a list",
        None,
    ),
    "max_delete": (
        customers("format: snapshots, max_delete: half"),
        "3:76 inputs.customers.max_delete: 'half' can't be a share or a number of rows",
        "write a share of the table, `50%`, or a number of rows",
    ),
    "file_name": (
        customers("file_name: people.csv"),
        "3:56 inputs.customers.file_name: 'people.csv' can't be a pattern of names",
        "it names columns in braces, `people-{day}.csv`, and stands for the file's own name",
    ),
    "cycle": (
        HEAD + "collections:\n  a: {from: b}\n  b: {from: orders, apply: [{concat: [a]}]}\noutputs: {a: o/}\n",
        "5:13 collections.a: depends on itself: a -> b -> a",
        "collections may refer to each other in any order, but not in a circle: that takes `iterate`",
    ),
    "selfcycle": (
        HEAD + "collections:\n  a: {from: a}\noutputs: {a: o/}\n",
        "5:13 collections.a: depends on itself: a -> a",
        "collections may refer to each other in any order, but not in a circle: that takes `iterate`",
    ),
    "both": (
        HEAD + "collections:\n  orders: {from: customers}\noutputs: {orders: o/}\n",
        "5:3 collections.orders: an input is named 'orders' too, at p.yaml:3:10",
        "inputs and collections share their names: rename one",
    ),
    "outs": (
        HEAD + "outputs: {orders: o/, customers: o}\n",
        "4:34 outputs.customers: writes to the same path as the output 'orders'",
        "give each output a directory of its own",
    ),
    "outs_in": (
        HEAD + "outputs: {orders: in}\n",
        "4:19 outputs.orders: writes where the input 'orders' reads",
        "give the output a directory of its own",
    ),
    "out_name": (
        HEAD + "outputs: {order: o/}\n",
        "4:11 outputs.order: no input or collection is named 'order'",
        "did you mean `orders`? (in scope: customers, orders)",
    ),
    "k": (
        applied("- top_k: {k: 0, order_by: [a]}"),
        "8:20 collections.big.apply[0].top_k.k: must be a whole number from 1, found '0'",
        None,
    ),
    "k2": (
        applied("- top_k: {k: many, order_by: a}"),
        "8:20 collections.big.apply[0].top_k.k: must be a whole number from 1, found 'many'",
        None,
    ),
    "percent": (
        applied("- sample: {by: a, percent: 10%}"),
        "8:34 collections.big.apply[0].sample.percent: must be a number from 0 to 100, found '10%'",
        "for example `percent: 0.5`",
    ),
    "percent2": (
        applied("- sample: {by: a, percent: 1e1}"),
        "8:34 collections.big.apply[0].sample.percent: must be a number from 0 to 100, found '1e1'",
        "for example `percent: 0.5`",
    ),
    "flag": (
        applied("- map: {function: 'm:f', columns: {a: int64}, batch: yes}"),
        "8:60 collections.big.apply[0].map.batch: must be true or false, found 'yes'",
        "write `true`",
    ),
    "fun": (
        applied("- map: {function: upper(a), b: b}"),
        "8:25 collections.big.apply[0].map.function: 'upper(a)' can't be a Python function",
        "write `module:function`; a column can't be called `function` here",
    ),
    "reduce_none": (
        applied("- reduce: {by: [a]}"),
        "8:9 collections.big.apply[0].reduce: no column is computed",
        "add a column with its aggregate, `orders: count(*)`; for the groups alone use `project` and `distinct`",
    ),
    "reduce_dup": (
        applied("- reduce: {by: [a], a: count(*)}"),
        "8:27 collections.big.apply[0].reduce: the column 'a' is in `by` too",
        "rename one of the two",
    ),
    "quoted": (
        applied("- filter: 'paid' = status"),
        "8:24 text after a quoted value",
        "an expression that begins with a quote is quoted whole: \"'paid' = status\"",
    ),
    "colon": (
        applied("- filter: a: b"),
        "8:18 a colon in a place where no key can be",
        "quote the value if the colon belongs to it; if not, check the indentation",
    ),
    "alias": (
        applied("- project: *"),
        "8:19 `*` begins an alias, and there is no such anchor above",
        'quote the value: "..." (a plain one can\'t hold `: `, ` #`, or begin with a special character)',
    ),
    "at": (
        applied("- filter: @x"),
        "8:17 a value can't begin with '@'",
        'quote the value: "..." (a plain one can\'t hold `: `, ` #`, or begin with a special character)',
    ),
    "unclosed": (
        applied("- map: {a: b"),
        "8:14 a '}' is missing",
        "close it with '}'",
    ),
    "quote": (
        applied("- filter: 'abc"),
        "8:17 a quote is not closed",
        "close it on the same line",
    ),
    "merge": (
        HEAD + "collections:\n  big:\n    <<: {from: orders}\n" + OUT,
        "5:3 collections.big: the key 'from' is missing",
        "for example `{from: orders, apply: [distinct]}`",
        "6:5 collections.big: merge keys (`<<`) are not part of YAML 1.2",
        "write the keys out, or give the whole value an anchor",
    ),
    "complex": (
        HEAD + "collections:\n  ? [a]\n  : {from: orders}\noutputs: {orders: o/}\n",
        "5:5 collections: a key can't be a list",
        "keys are plain words; quote one that has brackets or braces",
    ),
    "tag": (
        applied("- filter: !sql a > 0"),
        "8:17 collections.big.apply[0].filter: the tag '!sql' means nothing here",
        "remove it, or quote the value",
    ),
    "rec": (
        applied("- concat: &a [*a]"),
        "8:17 collections.big.apply[0].concat[0]: an anchor contains itself",
        "an alias is not allowed inside its own anchor",
    ),
    "list_root": (
        "- dd: 1\n",
        "1:1 must be a mapping, found a list",
        "add `inputs: {orders: landing/orders/}`",
    ),
    "scalar_root": (
        "hello\n",
        "1:1 must be a mapping, found 'hello'",
        "add `inputs: {orders: landing/orders/}`",
    ),
    "two_docs": (
        HEAD + OUT + "---\n" + HEAD,
        "5:1 a second document begins here",
        "a pipeline file is one document: remove the `---`",
    ),
    "ctl": (
        HEAD + "a: \x01",
        "4:4 the character '\\x01' is not allowed in YAML",
        "remove it, or escape it in double quotes",
    ),
    "null_filter": (
        applied("- filter: null"),
        "8:17 collections.big.apply[0].filter: must be a condition, found YAML's 'null'",
        "write the SQL null with its type: cast(null as int64)",
    ),
    "filter_list": (
        applied("- filter:\n  - a > 0\n  - b > 0"),
        "9:9 collections.big.apply[0].filter: must be a condition, found a list",
        "combine conditions with `and`",
    ),
    "name": (
        HEAD.replace("name: p", "name: p/q") + ORDERS,
        "2:7 name: 'p/q' can't be a name",
        "a name is made of letters, digits, `_`, `-` and `.`: the state's directory has it",
    ),
    "cname": (
        HEAD.replace("orders: in/", '"a b": in/') + "outputs: {customers: o/}\n",
        "3:10 inputs.a b: 'a b' can't be a name",
        "a name is made of letters, digits, `_` and `-`",
    ),
    "tests": (
        HEAD + "outputs: {orders: o/}\ntests: {a: b}\n",
        "5:8 tests: must be a list of tests, found a mapping",
        "begin each test with `- `",
    ),
    "twice": (
        applied("- project: [a, b, a]"),
        "8:25 collections.big.apply[0].project: 'a' is listed twice",
        "keep one of the two",
    ),
    "collections_list": (
        HEAD + "collections:\n  - a\noutputs: {orders: o/}\n",
        "5:3 collections: must be a mapping of names to collections, found a list",
        "write `key: value`, without dashes or brackets",
    ),
    "indented": (
        applied("- map: {a: b}").replace("    apply", "   apply"),
        "7:4 the line does not fit those above it",
        "check the indentation and the colons",
    ),
    "path": (
        HEAD.replace("path: c/", "pth: c/") + ORDERS,
        "3:35 inputs.customers: unknown key 'pth'",
        "did you mean `path`? (keys: path, format, columns, file_name, csv, rounding, late, max_ahead, quarantine, consumed, changed, missing, time, diff, negative)",
    ),
    "pathnull": (
        HEAD.replace("path: c/", "path: ") + ORDERS,
        "3:35 inputs.customers.path: must be a path, found nothing",
        None,
    ),
}


LOOP = """\
collections:
  labels: {from: orders}
  big:
    iterate:
      variables: {best: labels}
      body:
        best: {from: [best, near]}
        near: {from: customers, apply: [{semijoin: {with: best, on: [id]}}]}
      result: best
"""
EXAMPLE = "for example `{variables: {best: labels}, body: {best: {from: best, apply: [distinct]}}, result: best}`"
ROUNDS = "write `max_rounds: 20` to stop there, `max_rounds: {guard: 20}` for an error if it changes still"

# name: what is replaced in the loop above (whose first line is 4) by what, then as in `BROKEN`
LOOPS = {
    "variable_without_body": (
        ("best: {from: [best, near]}", "bst: {from: [best, near]}"),
        "8:19 collections.big.iterate.variables: the body does not compute 'best' for the next round",
        "did you mean `bst`? (add `best:` to `body`; in the body: bst, near)",
        "12:15 collections.big.iterate.result: no collection of the body is named 'best'",
        "did you mean `bst`? (in the body: bst, near)",
    ),
    "variables_without_body": (
        ("{best: labels}", "{best: labels, q: orders, x: labels}"),
        "8:33 collections.big.iterate.variables: the body does not compute 'q' for the next round",
        "add `q:` to `body`; in the body: best, near",
        "8:44 collections.big.iterate.variables: the body does not compute 'x' for the next round",
        "add `x:` to `body`; in the body: best, near",
    ),
    "unknown_initial": (
        ("{best: labels}", "{best: label}"),
        "8:25 collections.big.iterate: no input or collection is named 'label'",
        "did you mean `labels`? (in scope: customers, labels, orders)",
    ),
    "variable_as_initial": (
        ("{best: labels}", "{best: {from: best}}"),
        "8:32 collections.big.iterate.variables.best: no input or collection is named 'best'",
        "did you mean `labels`? (in scope: customers, labels, orders)",
    ),
    "unknown_variable": (
        ("with: best", "with: bast"),
        "11:59 collections.big.iterate.body.near.apply[0].semijoin: no input or collection is named 'bast'",
        "did you mean `best`? (in scope: best, customers, labels, orders)",
    ),
    "unknown_result": (
        ("result: best", "result: beast"),
        "12:15 collections.big.iterate.result: no collection of the body is named 'beast'",
        "did you mean `best`? (in the body: best, near)",
    ),
    "result_from_outside": (
        ("result: best", "result: [best, labels]"),
        "12:22 collections.big.iterate.result: no collection of the body is named 'labels'",
        "did you mean `best`? (in the body: best, near)",
        "13:11 outputs.big: 'big' names several collections",
        "a loop with a list of results is not one collection; name one: big.best, big.labels",
    ),
    "result_twice": (
        ("result: best", "result: [best, best]"),
        "12:22 collections.big.iterate.result: 'best' is listed twice",
        "keep one of the two",
        "13:11 outputs.big: 'big' names several collections",
        "a loop with a list of results is not one collection; name one: big.best",
    ),
    "results_applied": (
        ("result: best", "result: [best]\n    apply: [distinct]"),
        "13:5 collections.big: a loop with a list of results is not one collection to apply operators to",
        "begin a collection `from: big.best`, or name one result without brackets",
        "14:11 outputs.big: 'big' names several collections",
        "a loop with a list of results is not one collection; name one: big.best",
    ),
    "no_result": (
        ("      result: best\n", ""),
        "7:5 collections.big.iterate: the key 'result' is missing",
        EXAMPLE,
    ),
    "no_variables": (
        ("      variables: {best: labels}\n", ""),
        "7:5 collections.big.iterate: the key 'variables' is missing",
        EXAMPLE,
    ),
    "empty_variables": (
        ("{best: labels}", "{}"),
        "8:18 collections.big.iterate.variables: must be a mapping of variables to their initial collections, found an empty one",
        None,
    ),
    "circle": (
        ("with: best", "with: near"),
        "11:59 collections.big.iterate.body.near: depends on itself: near -> near",
        "collections may refer to each other in any order, but not in a circle: only a variable refers to the round before",
    ),
    "circle_outside": (
        ("labels: {from: orders}", "labels: {from: big}"),
        "5:18 collections.labels: depends on itself: labels -> big -> labels",
        "collections may refer to each other in any order, but not in a circle: that takes `iterate`",
    ),
    "itself": (
        ("from: customers", "from: big"),
        "11:22 collections.big: depends on itself: big -> big",
        "collections may refer to each other in any order, but not in a circle: that takes `iterate`",
    ),
    "misspelt": (
        ("variables:", "variable:"),
        "8:7 collections.big.iterate: unknown key 'variable'",
        "did you mean `variables`? (keys: variables, body, result, max_rounds)",
    ),
    "from_and_iterate": (
        ("    iterate:", "    from: orders\n    iterate:"),
        "7:5 collections.big: begins `from` others and with `iterate`: it is one or the other",
        "name the loop's initial collections under `variables`",
    ),
    "no_rounds": (
        ("result: best", "result: best\n      max_rounds: 0"),
        "13:19 collections.big.iterate.max_rounds: must be a whole number from 1, found '0'",
        None,
    ),
    "no_guard": (
        ("result: best", "result: best\n      max_rounds: {guard: 0}"),
        "13:27 collections.big.iterate.max_rounds.guard: must be a whole number from 1, found '0'",
        None,
    ),
    "many_rounds": (
        ("result: best", "result: best\n      max_rounds: [1]"),
        "13:19 collections.big.iterate.max_rounds: must be a number of rounds, or a mapping, found a list",
        ROUNDS,
    ),
    "hides_a_collection": (
        ("near", "labels"),
        "11:9 collections.big.iterate.body: 'labels' is a name outside of the loop too, at p.yaml:5:3",
        "inside it would be hidden: rename one of the two",
    ),
    "hides_an_input": (
        ("best", "orders"),
        "8:19 collections.big.iterate.variables: 'orders' is a name outside of the loop too, at p.yaml:3:10",
        "inside it would be hidden: rename one of the two",
    ),
    "enter_outside": (
        ("labels: {from: orders}", "labels: {from: orders, apply: [{enter: {at: id}}]}"),
        "5:35 collections.labels.apply[0].enter: `enter` is outside of a loop",
        "it sets the round of the loop around it in which a record enters: put it into the `body` of `iterate`",
    ),
    "enter_the_result": (
        ("result: best", "result: best\n    apply: [{enter: {at: id}}]"),
        "13:14 collections.big.apply[0].enter: `enter` is outside of a loop",
        "it sets the round of the loop around it in which a record enters: put it into the `body` of `iterate`",
    ),
    "enter_the_initial": (
        ("{best: labels}", "{best: {from: labels, apply: [enter: {at: id}]}}"),
        "8:48 collections.big.iterate.variables.best.apply[0].enter: `enter` is outside of a loop",
        "it sets the round of the loop around it in which a record enters: put it into the `body` of `iterate`",
    ),
    "enter_nowhere": (
        ("[best, near]", "{from: near, apply: [enter: {}]}"),
        "10:43 collections.big.iterate.body.best.from.apply[0].enter: the key 'at' is missing",
        "for example `enter: {at: priority}`",
    ),
    "filter_nowhen": (
        ("from: orders", "from: orders, apply: [temporal_filter: {}]"),
        "5:51 collections.labels.apply[0].temporal_filter: must be a mapping with `from`, `until` or both, found an empty one",
        "for example `temporal_filter: {from: placed_at, until: closed_at}`",
    ),
    "filter_to": (
        ("from: orders", "from: orders, apply: [temporal_filter: {from: a, to: b}]"),
        "5:61 collections.labels.apply[0].temporal_filter: unknown key 'to'",
        "keys: from, until",
    ),
    "function_of_nothing": (
        ("from: orders", "from: orders, apply: [join_function: 'm:f']"),
        "5:49 collections.labels.apply[0].join_function: must be a mapping, found 'm:f'",
        "for example `{function: 'prices:convert', columns: {price: int64}}`",
    ),
}
NESTED = """\
collections:
  big:
    iterate:
      variables: {outer: orders}
      body:
        outer:
          iterate:
            variables: {inner: outer}
            body:
              inner: {from: [inner, outer, side, other]}
              other: {from: customers, apply: [{enter: {at: id}}]}
            result: [inner, other]
        side: {from: outer}
        last: {from: [outer.inner, outer.other]}
      result: last
"""
# As above, of a loop in a loop
LOOPS_INSIDE = {
    "no_body_of_that_name": (
        ("", ""),
        "7:19 collections.big.iterate.variables: the body does not compute 'outer' for the next round",
        "a loop with a list of results is not one collection: name one result without brackets",
    ),
    "circle_through_the_inside": (
        ("result: [inner, other]", "result: inner"),
        "17:23 collections.big.iterate.body.last: no input or collection is named 'outer.inner'",
        "did you mean `outer`? (in scope: customers, orders, outer, side)",
        "17:36 collections.big.iterate.body.last: no input or collection is named 'outer.other'",
        "did you mean `outer`? (in scope: customers, orders, outer, side)",
    ),
    "hides_a_variable": (
        ("{inner: outer}", "{outer: orders}"),
        "7:19 collections.big.iterate.variables: the body does not compute 'outer' for the next round",
        "a loop with a list of results is not one collection: name one result without brackets",
        "11:25 collections.big.iterate.body.outer.iterate.variables: the body does not compute 'outer' for the next round",
        "did you mean `other`? (add `outer:` to `body`; in the body: inner, other)",
        "11:25 collections.big.iterate.body.outer.iterate.variables: 'outer' is a name outside of the loop too, at p.yaml:7:19",
        "inside it would be hidden: rename one of the two",
        "13:30 collections.big.iterate.body.outer.iterate.body.inner: depends on itself: inner -> inner",
        "collections may refer to each other in any order, but not in a circle: only a variable refers to the round before",
    ),
}


def looping(case):
    """Return the text of a case of `LOOPS` or `LOOPS_INSIDE`, and what is said of it."""
    (change, *expected), text = (LOOPS[case], LOOP) if case in LOOPS else (LOOPS_INSIDE[case], NESTED)
    assert change[0] in text
    return HEAD + text.replace(*change) + OUT, expected


@pytest.mark.parametrize("case", [*LOOPS, *LOOPS_INSIDE])
def test_broken_loop(case):
    text, expected = looping(case)
    assert said(text) == expected


RIGHT = [
    LOOP,
    LOOP.replace("best", "big"),  # a loop's own name can't be meant inside, so it is free there
    LOOP.replace("result: best", "result: [best, near]").replace("collections:", "collections:\n  more: {from: [big.best, big.near]}"),
    NESTED.replace("variables: {outer: orders}", "variables: {side: orders}").replace("outer, side, other]", "side, other]").replace("inner: outer}", "inner: side}").replace("from: outer}", "from: outer.inner}"),
]  # fmt: skip


@pytest.mark.parametrize("text", RIGHT)
def test_right_loop(text):
    """Nothing is wrong with what the broken ones are made from."""
    output = "more" if "more" in text else "big"
    assert parse_spec(f"{HEAD}{text}outputs: {{{output}: out/}}\n", "p.yaml")


def said(text):
    """Return what is said of a broken file, in the form of `BROKEN`."""
    with pytest.raises(SpecErrors) as caught:
        parse_spec(text, "p.yaml")
    return [part for e in caught.value.errors for part in (f"{e.span.line}:{e.span.column} {e.problem}", e.hint)]


@pytest.mark.parametrize("name", BROKEN)
def test_broken_file(name):
    text, *expected = BROKEN[name]
    assert said(text) == expected


@pytest.mark.parametrize("name", BROKEN)
def test_broken_file_without_libyaml(name, monkeypatch):
    """PyYAML's own parser and libyaml word their complaints differently; ours are the same."""
    monkeypatch.delattr(yaml, "CBaseLoader", raising=False)
    text, *expected = BROKEN[name]
    assert said(text) == expected


def test_rendering_shows_the_line_and_a_caret():
    with pytest.raises(SpecErrors) as caught:
        parse_spec(applied("- distinct", "order"), "pipelines/orders.yaml")
    assert caught.value.render() == (
        "pipelines/orders.yaml:6:11: error: collections.big: no input or collection is named 'order'\n"
        "           6 |     from: order\n"
        "             |           ^^^^^\n"
        "hint: did you mean `orders`? (in scope: customers, orders)"
    )


NINE = """\
dd: 1
name: nine
inputs:
  orders: {path: in/, clumns: {id: int64}}
  customers:
    path: c/
    columns:
      id: int46
      region: string?
collections:
  big:
    from: order
    apply:
      - filtr: amount > 0
      - map: {id: id, region: coalesce(region, 0)}
      - join: {with: customers, on: [[id]]}
  big:
    from: orders
  loop: {from: loop}
outputs:
  big: {path: out/, form: big}
"""


def test_nine_errors_at_once():
    """An error hides no other: each of the nine is told, in the order of the file."""
    assert said(NINE)[::2] == [
        "4:23 inputs.orders: unknown key 'clumns'",
        "8:11 inputs.customers.columns.id: unknown type 'int46'",
        "12:11 collections.big: no input or collection is named 'order'",
        "14:9 collections.big.apply[0]: unknown operator 'filtr'",
        "15:31 collections.big.apply[1].map: a comma cuts the expression after 'coalesce(region'",
        "16:38 collections.big.apply[2].join.on[0]: must be a column's name, found a list",
        "17:3 collections: duplicate key 'big', first at p.yaml:11:3",
        "19:16 collections.loop: depends on itself: loop -> loop",
        "21:21 outputs.big: unknown key 'form'",
    ]


def test_two_circles_are_two_errors():
    rest = "  c: {from: [d, orders]}\n  d: {from: c}\n  e: {from: [a, c]}\noutputs: {a: o/}\n"
    assert said(HEAD + "collections:\n  a: {from: b}\n  b: {from: a}\n" + rest)[::2] == [
        "5:13 collections.a: depends on itself: a -> b -> a",
        "7:14 collections.c: depends on itself: c -> d -> c",
    ]


def test_references_inside_a_collection_in_place():
    apply = "- concat:\n    from: order\n    apply: [{semijoin: {with: {from: custmers}, on: [id]}}]"
    assert said(applied(apply))[::2] == [
        "9:17 collections.big.apply[0].concat: no input or collection is named 'order'",
        "10:44 collections.big.apply[0].concat.apply[0].semijoin.with: no input or collection is named 'custmers'",
    ]


def test_one_error_names_its_problem_and_several_their_number():
    assert "order" in SpecErrors(caught(applied("- distinct", "order")).errors).problem
    assert caught(NINE).problem == "9 errors"


def caught(text):
    with pytest.raises(SpecErrors) as found:
        parse_spec(text, "p.yaml")
    return found.value


def test_too_deep_or_too_large_is_refused():
    """Nothing that a file says ends the process: composing recurses in C, and aliases multiply."""
    for many in (200, 300_000):  # from 1000 on the parser itself may refuse them
        assert "nested too deeply" in caught("[" * many).problem
        assert "nested too deeply" in caught("- " * many + "a").problem
    laughs = "".join(f"  - &x{n} [{', '.join([f'*x{n - 1}'] * 10)}]\n" for n in range(1, 12))
    found = caught(f"{HEAD}tests:\n  - &x0 [a, b]\n{laughs}outputs: {{orders: o/}}\n")
    assert any("aliases become too many nodes" in error.problem for error in found.errors)


@pytest.mark.parametrize("content", [b"\xff\xfe", "name: é".encode("latin-1")])
def test_not_utf8(tmp_path, content):
    path = tmp_path / "p.yaml"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="not UTF-8 at byte"):
        load_spec(path)


def test_no_file(tmp_path):
    with pytest.raises(UsageError, match="there is no such pipeline file") as found:
        load_spec(tmp_path / "p.yaml")
    assert found.value.exit_code == 2
    with pytest.raises(UsageError, match="a directory, not a pipeline file"):
        load_spec(tmp_path)
    with pytest.raises(UsageError, match="can't read the pipeline file"):
        load_spec(Path("a\0b"))
