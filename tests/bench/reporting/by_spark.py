"""The report on a local Spark, timed: ``python -m tests.bench.reporting.by_spark FILE PAGE``."""

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy_fairqueue.spark.java import session
from sqlalchemy_fairqueue.spark.reporting import report
from sqlalchemy_fairqueue.times import microseconds


def _family(pid: str = "self") -> Iterator[str]:
    """This process and those that it started, Java and Python workers."""
    pid = str(Path("/proc", pid).resolve().name)
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        # Threads end while they are listed.
        with contextlib.suppress(FileNotFoundError):
            for child in (task / "children").read_text().split():
                yield from _family(child)


def _peak() -> int:
    """The most memory that each had, added up: no less than what they had together."""
    return sum(
        1024 * int(line.split()[1])
        for pid in set(_family())
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("VmHWM")
    )


def _processor() -> float:
    """The processor time of these processes and of those that they have waited for, in seconds."""
    ticks = 0
    for pid in set(_family()):
        # The name of a program may have spaces and brackets; user and system time follow it, then those of children.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _run(path: str, page: str) -> dict[str, float]:
    spark = session("bench", **{"spark.log.level": "ERROR", "spark.driver.memory": "3g"})
    frame = spark.read.parquet(path)
    frame.limit(1).collect()
    began, worked = time.monotonic(), _processor()
    made = report(frame, output=page)
    seconds, processor = time.monotonic() - began, _processor() - worked
    queue, channels = made.figures.queues[0], made.figures.channels
    found = {
        "seconds": seconds,
        "processor": processor,
        "memory": _peak(),
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
    spark.stop()
    return found


if __name__ == "__main__":
    print(json.dumps(_run(sys.argv[1], sys.argv[2])))  # noqa: T201 - its answer
