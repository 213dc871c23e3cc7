"""Each type of DuckDB comes over exactly, at its extremes too, or is refused."""

import contextlib

import duckdb
import polars as pl
import pytest

from ddcli.errors import InputError
from ddcli.expressions.types import parse_type
from ddcli.store.mirrors.file_databases import DuckdbReader
from ddcli.store.mirrors.source import DatabaseSource
from tests.draws import some

KINDS = {
    "BOOLEAN": ["true", "false"],
    "TINYINT": ["-128", "127"],
    "SMALLINT": ["-32768", "32767"],
    "INTEGER": ["-2147483648", "2147483647"],
    "BIGINT": ["-9223372036854775808", "9223372036854775807"],
    "UTINYINT": ["0", "255"],
    "USMALLINT": ["0", "65535"],
    "UINTEGER": ["0", "4294967295"],
    "UBIGINT": ["0", "18446744073709551615"],
    "HUGEINT": [f"-{2**127}", f"{2**127 - 1}", f"{10**38 - 1}", f"-{10**38 - 1}", f"{10**38}", "5"],
    "UHUGEINT": [f"{2**128 - 1}", f"{10**38}", "0", f"{10**38 - 1}"],
    "FLOAT": ["1e-45", "3.4e38", "nan", "-inf"],
    "DOUBLE": ["5e-324", "1.7976931348623157e308", "nan", "inf"],
    "DECIMAL(38, 0)": [f"{10**38 - 1}", f"-{10**38 - 1}"],
    "DECIMAL(38, 38)": ["0." + "9" * 38, "-0." + "9" * 38],
    "DECIMAL(4, 1)": ["-999.9"],
    "VARCHAR": ["", "ä\U0001f600"],
    "JSON": ['{"a":1}'],
    "BLOB": ["\\x00\\xFF"],
    "BIT": ["0101"],
    "UUID": ["00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"],
    "DATE": ["0001-01-01", "9999-12-31"],
    "TIME": ["00:00:00", "23:59:59.999999", "24:00:00"],
    "TIME_NS": ["00:00:00", "23:59:59.999999999", "24:00:00"],
    "TIME WITH TIME ZONE": ["10:00:00+02", "10:00:00"],
    "TIMESTAMP": ["0001-01-01", "9999-12-31 23:59:59.999999"],
    "TIMESTAMP_S": ["0001-01-01", "9999-12-31 23:59:59"],
    "TIMESTAMP_MS": ["0001-01-01", "9999-12-31 23:59:59.999"],
    "TIMESTAMP_NS": ["1677-09-22", "2262-04-11 23:47:16.854775"],
    "TIMESTAMP WITH TIME ZONE": ["0001-01-01 00:00:00+00", "9999-12-31 23:59:59.999999+00"],
    "TIMESTAMPTZ_NS": ["2024-01-01 00:00:00.123456789+00"],
    "INTERVAL": ["1 month 1 day"],
    "BIGNUM": ["123456789012345678901234567890123456789012345"],
    "ENUM('a', 'b')": ["b"],
    "INTEGER[3]": ["[1, 2, 3]"],
    "INTEGER[]": ["[1, null]"],
    "INTEGER[][]": ["[[1], [2, null], []]"],
    "HUGEINT[]": [f"[{2**127 - 1}]"],
    "TIME[]": ["[24:00:00]"],
    "TIMESTAMP_S[]": ["[infinity]"],
    "UNION(a VARCHAR)": ["1"],
    "STRUCT(a INTEGER)": ["{'a': 1}", "{'a': null}"],
    "STRUCT(a INTEGER)[]": ["[{'a': 1}, null]", "[]"],
    """STRUCT(a STRUCT("B c" DOUBLE[], t TIMESTAMP), d DECIMAL(38, 2))""": [
        "{'a': {'B c': [nan, null], 't': '2024-01-01'}, 'd': 1.5}"
    ],
    "STRUCT(a TIME)": ["{'a': '24:00:00'}"],
    "STRUCT(a MAP(INTEGER, INTEGER))": ["{'a': {1=2}}"],
    "MAP(INTEGER, INTEGER)": ["{1=2}"],
    "TUPLE(INTEGER)": ["(1)"],
    "VARIANT": ["1"],
    "GEOMETRY": ["POINT (1 2)"],
}
"""The types with values, some of which the engine has none for."""
OTHER = {"DECIMAL", "ENUM", "LIST", "ARRAY", "STRUCT", "MAP", "UNION", "TUPLE", "NULL", "TYPE"}
"""Names of types that need more to be one, and those of values that no table keeps."""
LEFT_OUT = ("STRUCT(a MAP", "MAP", "TUPLE")


def test_all_types_are_here():
    found = duckdb.sql("select distinct logical_type from duckdb_types()").fetchall()
    assert {name for (name,) in found} - OTHER <= KINDS.keys()


def read(file, query, declared=None):
    source = DatabaseSource(DuckdbReader(f"duckdb:///{file}", file, query, declared), query, None, ())
    return pl.concat(list(source.whole()[1])), source.columns


@pytest.mark.parametrize("kind", [*some(KINDS)])
def test_values_come_over_or_are_refused(tmp_path, kind):
    """What is read and written back is what the database has; a null stays one, and no other value becomes one."""
    file = tmp_path / "t.duckdb"
    read_exactly, held = 0, []
    with contextlib.closing(duckdb.connect(str(file))) as database:
        for at, text in enumerate(KINDS[kind]):
            database.execute(f"create table t{at} (x {kind}, n integer)")
            database.execute(f"insert into t{at} values (cast($1 as varchar)::{kind}, 7), (null, 8)", [text])
            held.append(database.sql(f"select x::varchar, n from t{at} order by n").fetchall())
    for at, wanted in enumerate(held):
        refusal = None
        try:
            frame, columns = read(file, f"select * from t{at}")
        except InputError as error:
            refusal = error.problem, error.hint  # the error itself would keep the database open
        if refusal is not None:
            assert "the column 'x'" in refusal[0]
            assert "`query`" in refusal[1]
            continue
        if kind.startswith(LEFT_OUT):
            assert "x" not in columns
            continue
        with contextlib.closing(duckdb.connect()) as database:
            database.execute("set TimeZone = 'UTC'")
            database.register("frame", frame)
            back = database.sql(f"select x::{kind}::varchar, n from frame order by n").fetchall()
        assert back == wanted
        read_exactly += 1
    refused = (
        "BIT",
        "TIME WITH",
        "INTERVAL",
        "BIGNUM",
        "INTEGER[3]",
        "HUGEINT[]",
        "TIME[]",
        "TIMESTAMP_S[]",
        "STRUCT(a TIME)",
        "UNION",
    )
    if not kind.startswith((*refused, *LEFT_OUT, "VARIANT", "GEOMETRY")):
        short = {"HUGEINT": 3, "UHUGEINT": 2, "TIME": 2, "TIME_NS": 2}
        assert read_exactly == short.get(kind, len(KINDS[kind]))


def test_a_column_that_is_not_named_need_not_be_readable(tmp_path):
    file = tmp_path / "t.duckdb"
    with contextlib.closing(duckdb.connect(str(file))) as database:
        database.execute("create table t as select 1 as id, interval '1' day as i, 2 as j")
    with pytest.raises(InputError, match="the column 'i' is INTERVAL"):
        read(file, "select * from t")
    assert list(read(file, "select * from t", {"id": parse_type("int32?")})[1]) == ["id", "j"]


def test_an_infinity_is_no_moment(tmp_path):
    """It is far beyond the years that a run takes in."""
    file = tmp_path / "t.duckdb"
    with contextlib.closing(duckdb.connect(str(file))) as database:
        database.execute("create table t as select 'infinity'::timestamp_s as x")
    frame, _ = read(file, "select * from t")
    assert frame["x"].to_physical().to_list() == [2**63 - 1]


def test_an_error_of_a_row_is_one_of_the_input(tmp_path):
    file = tmp_path / "t.duckdb"
    with contextlib.closing(duckdb.connect(str(file))) as database:
        database.execute("create table t as select 'x' as x")
    with pytest.raises(InputError, match="the database can't be read: Conversion Error"):
        read(file, "select cast(x as integer) as x from t")
