"""Rows that the staging table does not take are bad rows, whatever the cause: the others are enqueued."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from sqlalchemy_fairqueue.spark import enqueue
from sqlalchemy_fairqueue.spark.errors import BadRows
from tests.fixtures.database import Database
from tests.spark.conftest import Target
from tests.spark.staged_loads import messages, stage_by_task, start

# A good row, in Spark's SQL.
_NONE = {"at": "timestamp", "delay": "interval day to second"} | dict.fromkeys(("key", "headers", "group"), "string")
_NONE |= dict.fromkeys(("priority", "max_attempts", "cost"), "bigint")
_GOOD = {"channel": "'a'", "payload": "named_struct('a', 'x')", "kind": "'work'"}
_GOOD |= {name: f"cast(null as {kind})" for name, kind in _NONE.items()}
_BAD = [
    {"channel": "cast(null as string)"},
    {"channel": "''"},
    {"payload": "cast(null as struct<a: string>)"},
    {"kind": "''"},
    {"key": "repeat('k', 513)"},
    {"priority": "0"},
    {"max_attempts": "0"},
    {"at": "timestamp_micros(253402300800000000)"},
    {"at": "timestamp '9999-12-31 23:59:59 America/Los_Angeles'"},
    {"at": "timestamp_micros(9223372036854775807)"},
    {"delay": "interval '-1' second"},
    {"delay": "interval '40000' day"},
    {"at": "timestamp '2030-01-01'", "delay": "interval '1' day"},
    {"priority": "2147483648"},
    {"cost": "0"},
    {"max_attempts": "9223372036854775807"},
    {"channel": "decode(X'6100', 'UTF-8')"},
    {"channel": "cast(X'ff' as string)"},
    {"key": "decode(X'6100', 'UTF-8')"},
    {"key": "cast(X'eda080' as string)"},
    {"kind": "repeat('é', 257)"},
    {"kind": "cast(X'c3' as string)"},
    {"group": "'no uuid'"},
    {"group": "cast(X'fe' as string)"},
    {"headers": "'{'"},
    {"headers": r"""'{"a": "\\ud800"}'"""},
    {"headers": """'{"a": 1e400}'"""},
    {"headers": """concat('{"a": ', repeat('[', 20000), repeat(']', 20000), '}')"""},
    {"headers": """cast(X'7b2261223a22ff227d' as string)"""},
    {"payload": "named_struct('a', cast(X'fe' as string))"},
    {"payload": "named_struct('a', decode(X'6100', 'UTF-8'))"},
    # The rest is known to the staging table alone, which refuses it after the others.
    {"headers": """concat('{"a": "', repeat('x', 70000), '"}')"""},
    {"headers": """'{"a": 1e-20000}'"""},
    {"headers": """concat('{"a": 1e-301, "b": "', repeat('x', 1000), '"}')"""},
    {"headers": """concat('{"a": [1e99', repeat(',1e99', 700), ']}')"""},
    {"headers": """concat('{"a": "', repeat('x', 65465), '"}')""", "group": "'11111111-1111-1111-1111-111111111111'"},
]
_ROWS = [(f"c{number}", str(number), None) for number in range(10)]


def test_whatever_the_staging_table_refuses_is_a_bad_row(database: Database, tmp_path: Path) -> None:
    """A refusal that no check of the task knows costs its rows alone, wherever they are in a batch, with its reason."""
    load = start(database, staging_rows=4, bad_rows="reject", rejects_path=str(tmp_path))
    _refuse(database, load.existing_stage.quoted)
    staged = stage_by_task(load, 1, *_ROWS, ("", "a name that is empty", None))
    assert (staged.messages, staged.rejected) == (6, 5)
    assert load.merge([staged]).rejected == 5
    assert [content for _, content in messages(database)] == ["1", "2", "4", "5", "6", "8"]
    (file,) = tmp_path.rglob("*.parquet")
    rejected = pq.read_table(file).to_pylist()
    assert {row["channel"] for row in rejected} == {"c0", "c3", "c7", "c9", ""}
    assert all("some_rule (SQLSTATE 23514)" in row["problem"] for row in rejected if row["channel"])


def test_rows_that_the_staging_table_refuses_are_shown(database: Database) -> None:
    """Where bad rows fail the load, the error shows those that the table refuses, and nothing is enqueued."""
    load = start(database)
    _refuse(database, load.existing_stage.quoted)
    with pytest.raises(BadRows) as raised:
        load.merge([stage_by_task(load, 1, *_ROWS)])
    found = [example.partition(":")[0] for example in raised.value.examples]
    assert found == [f"channel 'c{number}'" for number in (0, 3, 7, 9)]
    assert messages(database) == []


def test_each_bad_value_is_named(spark: SparkSession, target: Target, tmp_path: Path) -> None:
    """A value beyond what its column holds, or a text that is not UTF-8, costs its row alone, and its problem begins
    with the column.
    """
    rows = [_GOOD, *(_GOOD | bad for bad in _BAD), _GOOD]
    selects = (f"select {', '.join(f'{value} as {name}' for name, value in row.items())}" for row in rows)
    frame = spark.sql(" union all ".join(selects)).coalesce(1)
    result = enqueue(frame, bad_rows="reject", rejects_path=str(tmp_path), **target.options)
    assert (result.created, result.rejected) == (2, len(_BAD))
    (file,) = tmp_path.rglob("*.parquet")
    problems = pq.read_table(file, columns=["problem"]).column(0).to_pylist()
    assert [(bad, told) for bad, told in zip(_BAD, problems, strict=True) if not told.startswith(next(iter(bad)))] == []


def _refuse(database: Database, stage: str) -> None:
    """Let the table refuse four of the rows by a rule that only the server has."""
    database.execute(f"alter table {stage} add constraint some_rule check (encode(content, 'escape') !~ '[0379]')")
