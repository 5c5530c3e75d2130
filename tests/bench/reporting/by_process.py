"""The figures of the report in this process, timed: ``python -m tests.bench.reporting.by_process FILE``."""

import json
import resource
import sys
import time

import pyarrow.parquet as pq

from sqlalchemy_fairqueue.reporting.columns import COLUMNS
from sqlalchemy_fairqueue.reporting.measurement import measure_table
from sqlalchemy_fairqueue.times import microseconds


def _run(path: str) -> dict[str, float]:
    began, worked = time.monotonic(), time.process_time()
    history = pq.read_table(path, columns=list(COLUMNS), read_dictionary=["queue", "channel", "outcome"])
    figures = measure_table(history)
    seconds, processor = time.monotonic() - began, time.process_time() - worked
    queue, channels = figures.queues[0], figures.channels
    return {
        "seconds": seconds,
        "processor": processor,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
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
    print(json.dumps(_run(sys.argv[1])))  # noqa: T201 - its answer
