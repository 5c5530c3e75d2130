"""A frame becomes messages by each of the three ways: all of them once, or none."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from sqlalchemy import NullPool, create_engine

from sqlalchemy_fairqueue.spark import enqueue
from sqlalchemy_fairqueue.spark.errors import BadFrame, BadOption, BadRows
from tests.fixtures.database import Database, install
from tests.spark.conftest import Target
from tests.spark.staged_loads import messages, stage_by_task, stages, start

SCHEMA = "channel string, payload struct<document: bigint>"


def frame(spark: SparkSession, rows: int = 10, channels: int = 3) -> DataFrame:
    """Rows ``{"document": n}`` for a few channels, in two partitions."""
    return spark.range(0, rows, 1, 2).selectExpr(
        f"concat('customer-', id % {channels}) as channel", "named_struct('document', id) as payload"
    )


def documents(target: Target) -> list[Any]:
    """The documents of all messages, in order."""
    rows = target.database.rows(
        "select (convert_from(content, 'UTF8')::jsonb -> 'document')::bigint as document from fq_message order by 1"
    )
    return [row.document for row in rows]


def plans(spark: SparkSession) -> str:
    """Every plan that Spark has kept to show."""
    kept = spark._jsparkSession.sharedState().statusStore().executionsList()
    shown = (kept.apply(target) for target in range(kept.size()))
    return "\n".join(one.physicalPlanDescription() + one.description() + one.details() for one in shown)


def test_a_frame_is_saved_once(spark: SparkSession, target: Target) -> None:
    """Each row is a message of its channel; the job that is run again adds nothing; the password is nowhere."""
    url = target.database.url.set(drivername="postgresql", password="hunter2")  # noqa: S106 - trust needs none
    dsn = url.render_as_string(hide_password=False)
    for _ in range(2):
        write = frame(spark).write.format("fairqueue").mode("append")
        write.option("dsn", dsn).option("queue", target.queue).option("jobId", "once").save()
    assert (documents(target), stages(target.database)) == (list(range(10)), 0)
    assert "fairqueue" in plans(spark)
    assert "hunter2" not in plans(spark)


def test_an_encoding_of_the_database(spark: SparkSession, target: Target) -> None:
    """Names and payloads are stored as they are, whatever encoding and timeouts clients of the database have."""
    name = target.database.url.database
    target.database.execute(f"alter database \"{name}\" set client_encoding = 'LATIN1'")
    target.database.execute(f"alter database \"{name}\" set idle_in_transaction_session_timeout = '1ms'")
    enqueue(spark.createDataFrame([("é", (1,))], SCHEMA), **target.options)
    assert target.database.rows("select convert_to(name, 'UTF8') as name from fq_channel")[0].name == "é".encode()


def test_ordering_keys(spark: SparkSession, target: Target) -> None:
    """Messages of a key are added in the order of the rows of their partition; null is none."""
    columns = ("'a' as channel", "named_struct('document', id) as payload", "if(id = 0, null, concat('k', id % 3)) as")
    rows = spark.range(0, 60, 1, 4).selectExpr(*columns[:2], f"{columns[2]} ordering_key", "id as number")
    written = rows.repartition("channel", "ordering_key").sortWithinPartitions(rows.number.desc()).drop("number")
    enqueue(written, **target.options)
    found = target.database.rows(
        "select ordering_key, array_agg((convert_from(content, 'UTF8')::jsonb -> 'document')::integer order by id)"
        " as documents from fq_message group by 1 order by 1"
    )
    expected = [(f"k{rest}", [number for number in range(59, 0, -1) if number % 3 == rest]) for rest in range(3)]
    assert [tuple(row) for row in found] == [*expected, (None, [0])]


def test_a_write_that_cannot_be_is_refused_before_any_task(spark: SparkSession, target: Target) -> None:
    """The driver says which option, and leaves nothing behind."""
    write = frame(spark).write.format("fairqueue").mode("append").options(**target.options)
    write.option("badRows", "reject").option("rejectsPath", "s3a://lake/rejects")
    with pytest.raises(PySparkException, match=r"option rejectsPath is 's3a://lake/rejects': .*give a folder, or"):
        write.save()
    with pytest.raises(PySparkException, match="option 'jobid2' is unknown; did you mean jobId"):
        write.option("jobID2", "x").save()
    with pytest.raises(BadOption, match="queue"):
        enqueue(frame(spark), dsn=target.database.conninfo)
    with pytest.raises(BadFrame, match="column 'id' is unknown"):
        enqueue(spark.range(1), **target.options)
    assert stages(target.database) == 0


@pytest.mark.many
@pytest.mark.parametrize("way", ["saveAsTable", "overwritten", "writeTo", "sql"])
def test_a_table_is_not_made_of_a_queue(spark: SparkSession, target: Target, way: str) -> None:
    """A write that creates a table of the catalog is refused before anything is enqueued, and leaves no table; the
    error says what to write instead.
    """
    rows, options = frame(spark), target.options
    rows.createOrReplaceTempView("rows")
    words = ", ".join(f"{name} {value!r}" for name, value in options.items())
    write = rows.write.format("fairqueue").options(**options)
    ways: dict[str, Callable[[], object]] = {
        "saveAsTable": lambda: write.mode("append").saveAsTable("queued"),
        "overwritten": lambda: write.mode("overwrite").saveAsTable("queued"),
        "writeTo": lambda: rows.writeTo("queued").using("fairqueue").options(**options).create(),
        "sql": lambda: spark.sql(f"create table queued using fairqueue options ({words}) as select * from rows"),
    }
    refused = {"overwritten": "write with mode append", "sql": "option"}
    with pytest.raises(PySparkException, match=refused.get(way, r"nothing was enqueued; write .*\.save\(\)")):
        ways[way]()
    assert (documents(target), stages(target.database)) == ([], 0)
    assert not spark.catalog.tableExists("queued")


def test_each_batch_of_a_stream_may_be_saved(spark: SparkSession, target: Target, tmp_path: Path) -> None:
    """``save()`` inside ``foreachBatch`` is no creation of a table, although it runs inside the stream's execution."""
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 4).load()

    def save(batch: DataFrame, _: int) -> None:
        named = batch.selectExpr("'a' as channel", "named_struct('document', value) as payload")
        named.write.format("fairqueue").mode("append").options(**target.options).save()

    query = stream.writeStream.foreachBatch(save).option("checkpointLocation", str(tmp_path)).trigger(once=True).start()
    assert query.awaitTermination(60)
    assert documents(target) == [0, 1, 2, 3]


def test_a_stream_is_enqueued_once(spark: SparkSession, target: Target, tmp_path: Path) -> None:
    """Each micro-batch once, also when the query is stopped and goes on from its checkpoint."""
    source = str(tmp_path / "source")
    queries = []
    for batch in range(2):
        frame(spark).selectExpr(f"payload.document + {10 * batch} as id").write.mode("append").parquet(source)
        rows = spark.readStream.schema("id long").parquet(source)
        writing = rows.selectExpr("'c' as channel", "named_struct('document', id) as payload").writeStream
        options = target.options | {"jobId": "stream", "checkpointLocation": str(tmp_path / "checkpoint")}
        query = writing.format("fairqueue").options(**options).trigger(availableNow=True).start()
        query.awaitTermination()
        queries.append(query.id)
    assert (documents(target), stages(target.database)) == (list(range(20)), 0)
    (load,) = target.database.rows("select batch_id, messages, source from fq_load")
    assert (load.batch_id, load.messages) == (1, 10)
    assert queries == [load.source, load.source]


def test_a_task_that_fails_fails_the_load(spark: SparkSession, target: Target) -> None:
    """Although the other task has staged its rows, none is enqueued, and the stage is gone."""

    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        yield from batches
        if context is not None and context.partitionId() == 1:
            raise OSError("the disk of this executor is full")

    with pytest.raises(PySparkException, match="the disk of this executor is full"):
        enqueue(frame(spark).mapInArrow(fail, SCHEMA), **target.options)
    assert (documents(target), stages(target.database)) == ([], 0)


def test_a_task_whose_process_is_killed_is_tried_again(spark: SparkSession, target: Target) -> None:
    """What the first try had copied does not count."""

    def kill_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        yield from batches
        if context is not None and context.partitionId() == 1 and context.attemptNumber() == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    result = enqueue(frame(spark).mapInArrow(kill_once, SCHEMA), job_id="killed", **target.options)
    assert (result.merged, result.created) == (True, 10)
    assert documents(target) == list(range(10))


def test_bad_rows(spark: SparkSession, target: Target, tmp_path: Path) -> None:
    """They fail the load and are shown, or are kept back where told; run again, the job writes them anew."""
    bad = frame(spark, 30).selectExpr("if(payload.document >= 18, '', channel) as channel", "payload")
    with pytest.raises(BadRows, match="channel '': channel '' has 0 bytes") as error:
        enqueue(bad, **target.options)
    assert len(error.value.examples) == 10
    assert (documents(target), stages(target.database)) == ([], 0)

    path = str(tmp_path / "rejects")
    result = enqueue(bad, job_id="a/b", bad_rows="reject", rejects_path=path, **target.options)
    assert (result.messages, result.created, result.rejected) == (18, 18, 12)
    rejects = spark.read.parquet(path)
    assert sorted(row.payload.document for row in rejects.collect()) == list(range(18, 30))
    assert {(row.job_id, row.problem[:10]) for row in rejects.collect()} == {("a/b", "channel ''")}
    assert documents(target) == list(range(18))


def test_rejects_of_other_loads_are_left_alone(spark: SparkSession, target: Target, tmp_path: Path) -> None:
    """The same job of another queue or schema has a folder of its own, whatever the names, and again when run again."""
    target.database.execute("create schema other")
    with create_engine(target.database.url, poolclass=NullPool).begin() as connection:
        install(connection, schema="other")
    path = tmp_path / "rejects"
    older = path / "job_id=daily"
    older.mkdir(parents=True)
    (older / "part-00000.parquet").write_text("kept by an older version")
    bad = spark.sql("select '' as channel, 'x' as payload")
    loads = [("public", "documents"), ("public", "a/b=c %41 ü"), ("other", "documents")]
    for schema, queue in (*loads, loads[1]):
        target.database.execute(f"delete from {schema}.fq_load")
        options = {"dsn": target.database.conninfo, "schema": schema, "queue": queue, "job_id": "daily"}
        assert enqueue(bad, bad_rows="reject", rejects_path=str(path), **options).rejected == 1
    rejects = spark.read.option("basePath", str(path)).parquet(str(path / "schema=*"))
    assert sorted((row.schema, row.queue, row.job_id) for row in rejects.collect()) == sorted(
        (schema, queue, "daily") for schema, queue in loads
    )
    assert (older / "part-00000.parquet").read_text() == "kept by an older version"


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
    {"group": "'11111111-1111-1111-1111-1111111111110'"},
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
