"""Following the history: each attempt comes once, whatever order transactions commit in, and a gap is never silent."""

import json
import logging
import random
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from psycopg import pq
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sqlalchemy_fairqueue.spark.errors import DataLoss
from sqlalchemy_fairqueue.spark.reading.lag import LagListener, StreamLag, lags_of
from sqlalchemy_fairqueue.spark.reading.offsets import OriginChanged, offset_of
from sqlalchemy_fairqueue.spark.reading.readers import LIMITS_ARE_KNOWN, ReadMaxRows
from sqlalchemy_fairqueue.spark.reading.slot import SlotUnusable
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database
from tests.spark.conftest import Target
from tests.spark.recorded import COLUMNS, DAY, add, held, seen, table
from tests.spark.streams import Follow, edge

needs_limits = pytest.mark.skipif(not LIMITS_ARE_KNOWN, reason="PySpark 4.1 has no read limits")


@pytest.fixture
def database(database_alone: Database) -> Database:
    """On a server without other tests, whose transactions would keep rows of the history back."""
    return database_alone


@contextmanager
def writers(database: Database, count: int, transactions: int) -> Iterator[list[Future[None]]]:
    """Threads with transactions that record a few rows each and commit in another order, until they end; some fail."""

    def write(seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311 - the same disorder each time
        with closing(psycopg.connect(database.conninfo)) as one, closing(psycopg.connect(database.conninfo)) as two:
            for _ in range(transactions):
                # The ids of the two interleave, and the one that wrote first often commits last.
                for connection in (one, two, one):
                    add(connection, chance.randint(1, 3))
                for connection in chance.sample((one, two), 2):
                    (connection.rollback if chance.random() < 0.2 else connection.commit)()

    with ThreadPoolExecutor(count) as threads:
        running = [threads.submit(write, seed) for seed in range(count)]
        yield running
    for one in running:
        one.result()


def test_under_concurrent_writers_each_row_comes_once(database: Database, follow: Follow) -> None:
    """Many transactions commit out of order while batches are read by readers that stop and start anew."""
    follower, found = follow(numPartitions=2), []
    batches, chance = 0, random.Random(1)  # noqa: S311 - the same disorder each time
    with ExitStack() as stack:
        slow = [stack.enter_context(closing(psycopg.connect(database.conninfo))) for _ in range(3)]
        running = stack.enter_context(writers(database, 4, 150))
        while not all(one.done() for one in running):
            batches += 1
            # Those of the threads are shorter than a batch; these stay open over a few.
            connection = chance.choice(slow)
            if connection.info.transaction_status == pq.TransactionStatus.INTRANS:
                connection.commit()
            else:
                add(connection, 2)
            found += follower.ids()
            if batches % 5 == 0:
                follower.reader.stop()
                follower = follow(follower.checkpoint, numPartitions=2)
        for connection in slow:
            connection.commit()
    assert batches > 5
    found += follower.ids()
    assert sorted(found) == [row[0] for row in table(database)]
    assert follower.ids() == []


@pytest.mark.parametrize("transactions", [4, pytest.param(20, marks=pytest.mark.whole)])
def test_a_query_of_spark_gives_the_table(
    spark: SparkSession, target: Target, tmp_path: Path, transactions: int
) -> None:
    """Through Spark, with stops, restarts and a transaction open for long: what arrives is the table, row for row."""
    database = target.database

    def query() -> StreamingQuery:
        options = target.options | ({"maxOffsetsPerTrigger": "200"} if LIMITS_ARE_KNOWN else {})
        frame = spark.readStream.format("fairqueue").options(**options).load()
        writing = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writing.trigger(availableNow=True).start(str(tmp_path / "rows"))

    with closing(psycopg.connect(database.conninfo)) as long_writer:
        add(long_writer, 5)
        with writers(database, 2, transactions):
            running = query()
        running.stop()
        assert query().awaitTermination(60)
        early = spark.read.parquet(str(tmp_path / "rows")).count() if (tmp_path / "rows").exists() else 0
        add(long_writer, 5)
        long_writer.commit()
    assert query().awaitTermination(60)
    rows = spark.read.parquet(str(tmp_path / "rows"))
    assert tuple(rows.columns) == COLUMNS
    assert seen(rows) == held(database)
    assert early < len(held(database))


def test_a_long_transaction_holds_back_and_loses_nothing(database: Database, follow: Follow) -> None:
    """Rows behind an open transaction wait for it; so do those of a transaction that only got its number."""
    follower = follow()
    with closing(psycopg.connect(database.conninfo)) as writer:
        writer.execute("select pg_current_xact_id()")
        add(database, 3)
        assert follower.ids() == []
        add(writer, 2)
        writer.commit()
    assert follower.ids() == [1, 2, 3, 4, 5]


@needs_limits
def test_batches_are_as_large_as_asked(database: Database, follow: Follow) -> None:
    """A limit cuts within a transaction; a batch that is read again gives the same rows; without one, all come."""
    follower = follow(maxOffsetsPerTrigger=4)
    assert follower.reader.getDefaultReadLimit() == ReadMaxRows(4)
    add(database, 10)
    end = follower.end(4)
    assert follower.rows(end) == follower.rows(end)
    assert follower.ids(4) == [1, 2, 3, 4]
    assert follower.ids(4) == [5, 6, 7, 8]
    follower.reader.prepareForTriggerAvailableNow()
    add(database, 3)
    assert follower.ids() == [9, 10]
    assert follower.ids() == []


@needs_limits
def test_the_lag_is_in_the_progress(database: Database, follow: Follow) -> None:
    """What Spark reports as the latest offset says how many rows are behind, and who holds others back: it has every
    field that the listener takes. A query that goes on from its checkpoint tells it before there is anything to read.
    """
    add(database, 6)
    follower = follow()
    assert follower.reader.reportLatestOffset() is None
    follower.ids(2)
    with closing(psycopg.connect(database.conninfo, application_name="slow report")) as writer:
        add(writer)
        add(database, 3)
        report = follower.reader.reportLatestOffset()
        follower.ids()
        again = follow(follower.checkpoint)
        assert again.end(10) == again.checkpoint
        late = again.reader.reportLatestOffset()
    assert (report["rows"], report["held_rows"], report["held_by_application"]) == (4, 3, "slow report")
    assert (late["rows"], late["held_rows"]) == (0, 3)
    source = SimpleNamespace(latestOffset=json.dumps(report), numInputRows=2)
    progress: Any = SimpleNamespace(name="attempts", id="query-1", batchId=0, sources=[source])
    (lag,) = lags_of(progress)
    assert (lag.query, lag.read, lag.rows, lag.held_rows, lag.held_by) == ("attempts", 2, 4, 3, report["held_by"])


def test_a_lag_is_exported_for_each_history_that_a_query_reads(caplog: pytest.LogCaptureFixture) -> None:
    """Sources of other kinds, and those that have not reported yet, have none; an export that fails is logged."""
    known = {"rows": 4, "seconds": 2, "held_rows": 3, "held_seconds": 60, "held_by": 77, "xid": "5", "id": 9}
    reported = [None, "text", '{"topic": {"0": 5}}', json.dumps(known)]
    sources = [SimpleNamespace(latestOffset=one, numInputRows=8) for one in reported]
    progress = SimpleNamespace(name=None, id="query-1", batchId=12, sources=sources)
    exported: list[StreamLag] = []

    def export(lag: StreamLag) -> None:
        exported.append(lag)
        raise ValueError("the monitoring system is away")

    event: Any = SimpleNamespace(progress=progress)
    LagListener(export).onQueryProgress(event)
    (found,) = exported
    assert found == StreamLag(
        query="query-1", batch=12, read=8, rows=4, seconds=2, held_rows=3, held_seconds=60, held_by=77
    )
    assert "the lag of query query-1 could not be exported" in caplog.text
    with caplog.at_level(logging.INFO):
        LagListener().onQueryProgress(event)
    assert json.dumps(asdict(found)) in caplog.text


def test_where_a_stream_begins(database: Database, follow: Follow) -> None:
    """At the earliest row, at the next one, or behind an offset."""
    add(database, 3)
    middle = edge(database)
    add(database, 3)
    followers = [follow(startingOffsets=where) for where in ("earliest", middle, "latest")]
    add(database, 1)
    assert [one.ids() for one in followers] == [[1, 2, 3, 4, 5, 6, 7], [4, 5, 6, 7], [7]]


def test_another_history_is_refused(database: Database, follow: Follow) -> None:
    """A checkpoint of another cluster, timeline, database or table stops the stream; accepted by name, it goes on."""
    add(database, 2)
    follower = follow()
    follower.ids()
    reached = offset_of(follower.checkpoint)
    add(database, 1)
    for changed, words in (
        ({"system": "4711"}, "is of cluster 4711"),
        ({"timeline": 7}, "is of timeline 7, .*: a standby was promoted"),
        ({"database": 5}, "is of database with oid 5"),
        ({"history": 9}, "is of table with oid 9, .* it was made anew"),
    ):
        foreign = replace(reached, origin=replace(reached.origin, **changed)).as_dict()
        stranger = follow(foreign)
        for refused in (stranger.ids, lambda one=stranger: one.rows(reached.as_dict())):
            with pytest.raises(OriginChanged, match=words) as refusal:
                refused()
            assert f"'{reached.origin}'" in str(refusal.value)
        accepting = follow(foreign, acceptedOrigin=reached.origin)
        assert accepting.ids() == [3]
        assert offset_of(accepting.checkpoint).origin == reached.origin


def test_a_table_made_anew_and_a_database_put_back_are_noticed(database: Database, follow: Follow) -> None:
    """Tables dropped and installed again, or a server put back behind the offset: an error, not silence."""
    add(database)
    reached = offset_of(follow(startingOffsets="latest").checkpoint)
    future = replace(reached, position=replace(reached.position, xid=reached.position.xid + 10**9))
    with pytest.raises(OriginChanged, match="was put back to an earlier state; begin anew"):
        follow(future.as_dict(), acceptedOrigin=reached.origin).ids()
    database.execute("alter table fq_history rename to fq_history_before")
    database.execute("create table fq_history (like fq_history_before including all)")
    with pytest.raises(OriginChanged, match="it was made anew"):
        follow(reached.as_dict()).ids()


def test_days_that_went_unread_are_noticed(database: Database, clock: Clock, follow: Follow) -> None:
    """A day dropped with unread rows stops the stream, also where a batch of it was planned already, or is warned of;
    one that was read, or was empty, does not.
    """
    add(database, 3, finished=clock.now())
    database.execute("select fq_keep_history(60)")
    reader = follow()
    reader.ids()
    behind = reader.checkpoint
    clock.advance(3 * DAY)
    add(database, 2, finished=clock.now())
    clock.advance(29 * DAY)
    assert database.value("select count(*) from fq_keep_history(0) where action = 'dropped'") == 2
    fresh = follow()
    assert reader.ids() == fresh.ids() == [4, 5]
    add(database, 2, finished=clock.now())
    (planned,) = reader.reader.partitions(reader.checkpoint, reader.end())
    clock.advance(35 * DAY)
    database.execute("select fq_keep_history(0)")
    for late in (
        reader.ids,
        lambda: follow(behind).reader.partitions(behind, fresh.checkpoint),
        lambda: list(reader.reader.read(planned)),
    ):
        with pytest.raises(DataLoss, match=r"pruned from the history .* before they were read"):
            late()
    add(database, 1, finished=clock.now())
    tolerant = follow(reader.checkpoint, failOnDataLoss=False)
    assert tolerant.ids() == [8]
    assert follow(tolerant.checkpoint).ids() == []
    assert follow().ids() == [8]


def test_a_lost_connection_is_replaced(database: Database, follow: Follow) -> None:
    """A server that restarted between two batches is connected to anew, without losing its position."""
    follower = follow()
    add(database, 2)
    assert follower.ids() == [1, 2]
    ended = "select pg_terminate_backend(pid, 10000) from pg_stat_activity where application_name = :name"
    assert database.value(ended, name="fairqueue spark stream")
    add(database, 1)
    assert follower.ids() == [3]


def test_a_batch_costs_as_much_as_it_has_rows(database: Database, follow: Follow) -> None:
    """End, share and rows of a batch are found by the index on (recorded_xid, id), without statistics."""
    add(database, 20_000)
    follower = follow(startingOffsets="latest")
    add(database, 5)
    database.execute("select pg_stat_force_next_flush()")
    reads = "select seq_tup_read, idx_scan > 0 as used from pg_stat_user_tables where relname = 'fq_history_default'"
    (before,) = database.rows(reads)
    assert len(follower.ids()) == 5
    follower.reader.reportLatestOffset()
    follower.reader.stop()
    (after,) = database.rows(reads)
    assert after == (before[0], True)


@needs_limits
def test_changes_need_a_server_that_decodes(follow: Follow) -> None:
    """The server of this module has not ``wal_level = logical``, and the error says so."""
    with pytest.raises(SlotUnusable, match=r"has wal_level = replica, .*; set wal_level = logical, restart the server"):
        follow(table="changes", slot="changes")
