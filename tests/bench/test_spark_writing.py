"""Frames into queues: the bulk enqueue beside a bare COPY, and workers beside a merge."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.bench.figures import Figure, each_once, within
from tests.bench.processes import Task, send_out
from tests.bench.python_loads import Load, work_for_a_while
from tests.bench.spark_writing import merging

if TYPE_CHECKING:
    from tests.bench.conftest import Alternate
    from tests.bench.figures import Report
    from tests.bench.stage import Stage


def test_bulk_enqueue_beside_copy(stage: Stage, report: Report, rounds: range, *, full: bool) -> None:
    """Enqueuing a frame, all or nothing, reaches 0.35 of the speed of COPY into a table without an index."""
    rows = 1_000_000 if full else 200_000
    filled = stage.fill("fair", channels=1, messages=0)
    with stage.clone(filled) as conninfo:
        with_path = f"{conninfo}{'&' if '?' in conninfo else '?'}options=-csearch_path%3Dfairqueue"
        command = [sys.executable, "-m", "tests.bench.spark_writing", with_path, str(rows), str(len(rounds))]
        answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    stage.drop(filled)
    found = json.loads(answer.stdout.splitlines()[-1])
    what = f"bulk enqueue on local[2], {rows:,} rows, 1,000 channels"
    report.add(Figure(what, "rows/s", found["ours"], found["copy"], "psycopg's COPY, no index", reach=0.35))
    bound = f"one insert of {rows:,} messages from a table, sorted: the least that any merge does"
    report.add(Figure(bound, "rows/s", found["insert"], found["copy"], "psycopg's COPY, no index", reach=None))


def test_workers_beside_a_merge(stage: Stage, report: Report, alternate: Alternate, *, full: bool) -> None:
    """While a load is merged, a worker keeps 0.7 of its throughput."""
    messages, seconds = (600_000, 20.0) if full else (200_000, 6.0)
    load = 1_000_000 if full else 200_000
    filled = stage.fill("fair", channels=1_000, messages=messages)
    rates: dict[str, list[float]] = {"merging": [], "alone": []}
    merges: list[int] = []

    def measure(side: str) -> None:
        with stage.clone(filled) as conninfo:
            url = conninfo.replace("postgresql://", "postgresql+psycopg://", 1)
            tasks = [Task(work_for_a_while, (Load(url, threads=4, enough=10**9, seconds=seconds),))]
            if side == "merging":
                tasks.append(Task(merging, (conninfo, load, seconds)))
            watches = send_out(tasks)
            if side == "merging":
                merges.append(sum(watches[1].counts))
        each_once(watches[:1])
        rates[side].append(within(watches[:1], 0.0, seconds) / seconds)

    alternate(measure, ("merging", "alone"))
    stage.drop(filled)
    what = f"a worker while loads of {load:,} rows merge, 4 threads, 1,000 channels"
    notes = {"merged in the meantime": ", ".join(f"{count:,}" for count in merges)}
    report.add(Figure(what, "messages/s", rates["merging"], rates["alone"], "the worker alone", reach=0.7, notes=notes))
