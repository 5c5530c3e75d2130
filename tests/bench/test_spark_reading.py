"""The history into Spark: the data source beside Spark's own JDBC source."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from sqlalchemy_fairqueue.embedded import embedded_server
from sqlalchemy_fairqueue.sql import install_statements, latest_version
from tests.bench.figures import Figure
from tests.fixtures.server import programs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.figures import Report

_JAR = "FAIRQUEUE_JDBC_JAR"
# A thousand attempts a transaction, over three days; one in fifty failed with a long error.
_FILL = """
do $$
begin
  for v_chunk in 0..{chunks} loop
    insert into fq_history (queue, channel_id, channel, message_id, kind, consumer, attempt, enqueued_at, ready_at,
      started_at, finished_at, outcome, error)
    select 'documents', i % 1000, 'customer-' || i % 1000, i, 'parse', 'host-1234-worker-' || i % 8, 1, t, t,
      t + 1000000, t + 2000000, case when i % 50 = 0 then 'retried' else 'completed' end,
      case when i % 50 = 0 then repeat('Traceback, "most recent call last"' || chr(10), 5) end
    from (
      select v_chunk * 1000 + n as i, fq_now() - 2 * 86400000000 + (v_chunk * 1000 + n)::bigint * 172800 as t
      from generate_series(1, 1000) n
    ) x;
    commit;
  end loop;
end
$$
"""


@pytest.fixture
def history(*, full: bool) -> Iterator[tuple[int, int]]:
    """A server that JDBC reaches too, with a history: the port and the number of rows."""
    rows = 1_000_000 if full else 200_000
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {"listen_addresses": "127.0.0.1", "port": str(port), "shared_buffers": "1GB", "max_wal_size": "8GB"}
    with (
        embedded_server(programs(), settings=settings),
        psycopg.connect(_dsn(port), autocommit=True) as connection,
    ):
        for statement in install_statements(latest_version(), None):
            connection.execute(statement.encode())
        connection.execute("select fq_keep_history(1)")
        connection.execute(_FILL.format(chunks=rows // 1000 - 1).encode())
        connection.execute("select fq_keep_history(1)")
        connection.execute("vacuum (analyze, freeze)")
        yield port, rows


def test_reading_beside_jdbc(report: Report, rounds: range, history: tuple[int, int]) -> None:
    """The history reaches Spark at least as fast as by JDBC, all columns, as many tasks on both sides."""
    port, rows = history
    jar = _jar()
    url = f"jdbc:postgresql://127.0.0.1:{port}/postgres?user=postgres"
    command = [sys.executable, "-m", "tests.bench.spark_reading", _dsn(port), url, jar, str(len(rounds))]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found = json.loads(answer.stdout.splitlines()[-1])
    bare = [_drained(port, rows) for _ in rounds]
    what = f"history into Spark, {rows:,} rows, 15 columns, 2 tasks"
    if jar:
        report.add(Figure(what, "rows/s", found["ours"], found["jdbc"], f"JDBC ({Path(jar).stem})", reach=1.0))
    report.add(Figure(what, "rows/s", found["ours"], bare, "psycopg's COPY alone, thrown away", reach=None))


def _dsn(port: int) -> str:
    return f"postgresql://postgres@127.0.0.1:{port}/postgres"


def _drained(port: int, rows: int) -> float:
    """Rows a second of a plain COPY on one connection, whose rows nobody looks at."""
    with psycopg.connect(_dsn(port)) as connection, connection.cursor() as cursor:
        started = time.perf_counter()
        with cursor.copy("copy (select * from fq_history) to stdout (format csv)") as copy:
            count = sum(1 for _ in copy)
        assert count == rows
        return rows / (time.perf_counter() - started)


def _jar() -> str:
    """PostgreSQL's JDBC driver: the file that the environment names, else the newest in Maven's folder, else none."""
    if named := os.environ.get(_JAR):
        return named
    folder = Path.home() / ".m2" / "repository" / "org" / "postgresql" / "postgresql"
    return max((str(path) for path in folder.glob("*/postgresql-*.jar")), default="")
