"""The report's figures, timed: ``python -m tests.bench.spark.by_report FILE [PAGE]``, by Spark if there is a page."""

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from sqlalchemy_fairqueue.reporting.columns import COLUMNS
from sqlalchemy_fairqueue.times import microseconds
from tests.bench.processes import stat_of, ticks
from tests.reporting.tables import measure_table

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.reporting.figures import Figures


def _family(pid: str = "self") -> Iterator[str]:
    """Name this process and those that it started, Java and Python workers."""
    pid = str(Path("/proc", pid).resolve().name)
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        # Threads end while they are listed.
        with contextlib.suppress(FileNotFoundError):
            for child in (task / "children").read_text().split():
                yield from _family(child)


def _peak() -> int:
    """Return the most memory that each had, added up: no less than what they had together."""
    return sum(
        1024 * int(line.split()[1])
        for pid in set(_family())
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("VmHWM")
    )


def _processor() -> float:
    """Return the processor time of these processes and of those that they have waited for, in seconds."""
    return ticks(sum(sum(map(int, stat_of(pid)[11:15])) for pid in set(_family())))


def _by_process(path: str) -> "Figures":
    history = pq.read_table(path, columns=list(COLUMNS), read_dictionary=["queue", "channel", "outcome"])
    return measure_table(history)


@contextlib.contextmanager
def _by_spark(page: str) -> "Iterator[Callable[[str], Figures]]":
    # Nobody else pays for its memory.
    from sqlalchemy_fairqueue.spark.java import session  # noqa: PLC0415
    from sqlalchemy_fairqueue.spark.reporting import report  # noqa: PLC0415

    with session("bench", **{"spark.log.level": "ERROR", "spark.driver.memory": "3g"}) as spark:
        spark.range(1).collect()
        yield lambda path: report(spark.read.parquet(path), output=page).figures


def _run(path: str, page: str = "") -> dict[str, float]:
    with _by_spark(page) if page else contextlib.nullcontext(_by_process) as measure:
        began, worked = time.monotonic(), _processor()
        figures = measure(path)
        seconds, processor, memory = time.monotonic() - began, _processor() - worked, _peak()
    queue, channels = figures.queues[0], figures.channels
    return {
        "seconds": seconds,
        "processor": processor,
        "memory": memory,
        "attempts": queue.attempts,
        "wait_p95": microseconds(queue.wait.p95),
        "waits": sum(microseconds(one.wait.p99) for one in channels),
        "starved": sum(microseconds(one.starved) for one in channels),
        "longest": max(microseconds(one.longest_starvation.lasted) for one in channels if one.longest_starvation),
        "fairness": queue.fairness or 0.0,
        "denied": sum(microseconds(one.denied_wait) * one.attempts for one in channels),
        "window": microseconds(queue.window),
        "width": microseconds(queue.fairness_window),
    }


if __name__ == "__main__":
    print(json.dumps(_run(*sys.argv[1:])))  # noqa: T201 - its answer
