"""Spark beside others: frames into queues, the history into frames, and the fairness report beside DuckDB."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest

from sqlalchemy_fairqueue.embedded import embedded_server
from sqlalchemy_fairqueue.sql import install_statements
from sqlalchemy_fairqueue.sql.files import latest_version
from tests.bench.figures import Alternate, Figure, Report
from tests.bench.processes import Task, each_once, rate_within, send_out
from tests.bench.python_api import Job, work
from tests.bench.spark.writing import merging
from tests.bench.stage import Stage, driver_url
from tests.fixtures.ports import reserved_port
from tests.fixtures.server import programs

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
_SAME = ("attempts", "wait_p95", "waits", "starved", "longest")
_GIB = 1 << 30


def _program(module: str, *arguments: object) -> dict[str, Any]:
    """Run a program of this folder and return its answer."""
    command = [sys.executable, "-m", f"tests.bench.spark.{module}", *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_bulk_enqueue_beside_copy(stage: Stage, report: Report, rounds: range, *, full: bool) -> None:
    """Enqueuing a frame, all or nothing, reaches 0.35 of the speed of COPY into a table without an index."""
    rows = 1_000_000 if full else 200_000
    with stage.clone(stage.fill()) as conninfo:
        path = f"{conninfo}{'&' if '?' in conninfo else '?'}options=-csearch_path%3Dfairqueue"
        found = _program("writing", path, rows, len(rounds))
    against = "psycopg's COPY, no index"
    report.add(Figure(f"a frame of {rows:,} rows enqueued", "rows/s", found["ours"], found["copy"], against, 0.35))
    what = f"one sorted insert of {rows:,} messages: the least that any merge does"
    report.add(Figure(what, "rows/s", found["insert"], found["copy"], against))


def test_workers_beside_a_merge(stage: Stage, report: Report, alternate: Alternate, *, full: bool) -> None:
    """While a load is merged, a worker keeps 0.7 of its throughput."""
    messages, seconds = (600_000, 20.0) if full else (200_000, 6.0)
    load = 1_000_000 if full else 200_000
    filled = stage.fill(channels=1_000, messages=messages)

    def measure(side: str) -> Mapping[str, float]:
        with stage.clone(filled) as conninfo:
            beside = [Task(merging, (conninfo, load, seconds))] if side == "merging" else []
            watches = send_out([Task(work, (Job(driver_url(conninfo), seconds=seconds, ahead=True),)), *beside])
        each_once(watches[:1])
        merged = sum(sum(watch.counts) for watch in watches[1:])
        return {"messages/s": rate_within(watches[:1], 0.0, seconds), "merged": merged}

    sides = ("merging", "alone")
    found = alternate(sides, measure)
    notes = {"merged meanwhile": found.told("merging", "merged")}
    what = f"a worker while loads of {load:,} rows merge"
    report.add(found.compare(what, "messages/s", sides, "the worker alone", 0.7, notes=notes))


@pytest.fixture
def history(*, full: bool) -> Iterator[tuple[int, int]]:
    """A server that JDBC reaches too, with a history: the port and the number of rows."""
    rows = 1_000_000 if full else 200_000
    settings = {"listen_addresses": "127.0.0.1", "shared_buffers": "1GB", "max_wal_size": "8GB"}
    with (
        reserved_port() as port,
        embedded_server(programs(), settings=settings | {"port": str(port)}),
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
    if not (jar := _jar()):
        pytest.skip(f"no JDBC driver of PostgreSQL in {_JAR} or Maven's folder")
    url = f"jdbc:postgresql://127.0.0.1:{port}/postgres?user=postgres"
    found = _program("reading", _dsn(port), url, jar, len(rounds))
    what = f"history into Spark, {rows:,} rows, all columns, 2 tasks"
    report.add(Figure(what, "rows/s", found["ours"], found["jdbc"], f"JDBC ({Path(jar).stem})", 1.0))


def _dsn(port: int) -> str:
    return f"postgresql://postgres@127.0.0.1:{port}/postgres"


def _jar() -> str:
    """Return PostgreSQL's JDBC driver: the file that the environment names, or the newest in Maven's folder, or ""."""
    if named := os.environ.get(_JAR):
        return named
    folder = Path.home() / ".m2" / "repository" / "org" / "postgresql" / "postgresql"
    return max((str(path) for path in folder.glob("*/postgresql-*.jar")), default="")


@pytest.mark.parametrize(("by", "reach", "most"), [("Spark, page included", 2.0, 6), ("the process", 1.2, 4)])
def test_report_beside_duckdb(report: Report, tmp_path: Path, by: str, reach: float, most: int, *, full: bool) -> None:
    """The report's figures are those of DuckDB, within a multiple of its processor time and a limit of memory."""
    from tests.bench.spark import by_duckdb  # noqa: PLC0415 - only here is DuckDB needed

    rows = int(os.environ.get("FAIRQUEUE_BENCH_REPORT_ROWS", "10000000" if full else "1000000"))
    path = tmp_path / "history.parquet"
    by_duckdb.write(path, rows)
    ours = _program("by_report", path, *([] if by == "the process" else [tmp_path / "page.html"]))
    theirs = _program("by_duckdb", path, ours["window"], ours["width"])
    assert {name: ours[name] for name in _SAME} == {name: theirs[name] for name in _SAME}
    assert ours["fairness"] == pytest.approx(theirs["fairness"] or 0.0)
    assert ours["denied"] == pytest.approx(theirs["denied"], rel=1e-3)
    what = f"report over {rows:,} attempts of 1,000 tenants, by {by}"
    for name, part in (("processor", "processor time"), ("seconds", "wall time")):
        report.add(Figure(f"{what}, {part}", "s", [ours[name]], [theirs[name]], "DuckDB", reach, "less"))
    notes = {"DuckDB": f"{theirs['memory'] / _GIB:.2f} GiB"}
    memory = [ours["memory"] / _GIB]
    report.add(Figure(f"{what}, peak memory", "GiB", memory, [most], "the limit", 1.0, "less", notes))
