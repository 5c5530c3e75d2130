"""Enqueue one frame by the data source in turn with others' ways; a program, and merges beside workers.

``python -m tests.bench.spark.writing DSN ROWS ROUNDS`` prints rows a second, by side, as JSON.
"""

import json
import sys
import time
from multiprocessing.synchronize import Barrier

import psycopg
from pyspark.sql import SparkSession

from sqlalchemy_fairqueue.spark import enqueue
from sqlalchemy_fairqueue.spark.java import session
from tests.bench.processes import Watch

_CHANNELS = 1_000
_READY = """
create unlogged table ready as
select
  c.id as channel_id,
  convert_to(json_build_object('document', format('documents/%s.pdf', n), 'pages', n % 100)::text, 'UTF8') as content
from generate_series(0, {count} - 1) n
join fq_channel c on c.queue = 'bench' and c.name = 'customer-' || n % {channels}
order by c.id
"""


def by_source(spark: SparkSession, dsn: str, rows: int) -> float:
    """Enqueue a frame by the library; return the seconds."""
    frame = spark.range(0, rows, 1, 2).selectExpr(
        f"concat('customer-', id % {_CHANNELS}) as channel",
        "named_struct('document', concat('documents/', id, '.pdf'), 'pages', id % 100) as payload",
    )
    started = time.perf_counter()
    result = enqueue(frame, dsn=dsn, queue="bench", kind="embed")
    took = time.perf_counter() - started
    assert result.created == rows
    return took


def by_copy(dsn: str, rows: list[tuple[str, str, bytes]]) -> float:
    """Copy the same rows, ready made, into a table without any index; return the seconds."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("drop table if exists bare")
        connection.execute("create table bare (channel text, kind text, content bytea)")
        connection.execute("checkpoint")
        started = time.perf_counter()
        with connection.cursor() as cursor, cursor.copy("copy bare from stdin (format binary)") as copy:
            copy.set_types(["text", "text", "bytea"])
            for row in rows:
                copy.write_row(row)
        return time.perf_counter() - started


def by_insert(dsn: str, count: int) -> float:
    """Insert as many messages, ready made and in the order of the index, in one statement; return the seconds."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("drop table if exists ready")
        connection.execute(_READY.format(count=count, channels=_CHANNELS).encode())
        connection.execute("checkpoint")
        started = time.perf_counter()
        connection.execute(
            "insert into fq_message (channel_id, kind, content, dequeue_at, enqueued_at, max_attempts)"
            " select r.channel_id, 'embed', r.content, extract(epoch from now())::bigint, 0, 20 from ready r"
        )
        return time.perf_counter() - started


def merging(barrier: Barrier, dsn: str, messages: int, seconds: float) -> Watch:
    """Merge one stage again and again, each time as another job, for so many seconds."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("set search_path = fairqueue")
        row = connection.execute("select fq_make_stage(86400000000)").fetchone()
        assert row is not None
        name = str(row[0])
        connection.execute(
            f"insert into fairqueue_stages.{name} (attempt, channel, kind, content)"
            f" select 1, 'load-' || n % {_CHANNELS}, 'default', '{{}}' from generate_series(1, {messages}) n".encode()
        )
        connection.execute("select fq_make_stage_channels('bench', %s, '{1}', 100000)", [name])
        barrier.wait()
        watch = Watch(time.monotonic())
        job = 0
        while time.monotonic() - watch.started < seconds:
            job += 1
            statement = "select created from fq_merge('bench', %s, %s, '{1}', %s)"
            connection.execute(statement, [f"job {job}", name, messages])
            watch.ended.append(time.monotonic())
            watch.counts.append(messages)
    return watch


def _emptied(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("truncate fq_message, fq_signal, fq_load")
        connection.execute("checkpoint")


def _main() -> None:
    dsn, count, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    payloads = (b'{"document":"documents/%d.pdf","pages":%d}' % (n, n % 100) for n in range(count))
    rows = [(f"customer-{n % _CHANNELS}", "embed", payload) for n, payload in enumerate(payloads)]
    found: dict[str, list[float]] = {"ours": [], "copy": [], "insert": []}
    with session("fairqueue bench", **{"spark.log.level": "ERROR"}) as spark:
        by_source(spark, dsn, 1_000)
        sides = {
            "ours": lambda: by_source(spark, dsn, count),
            "copy": lambda: by_copy(dsn, rows),
            "insert": lambda: by_insert(dsn, count),
        }
        for number in range(rounds):
            for side in [*found][:: 1 if number % 2 == 0 else -1]:
                _emptied(dsn)
                found[side].append(count / sides[side]())
    print(json.dumps(found))  # noqa: T201 - what it is asked for


if __name__ == "__main__":
    _main()
