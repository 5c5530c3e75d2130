"""Processes that put load on a queue, let go together, and what they saw."""

import multiprocessing
import os
import time
import traceback
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path

PATIENCE = 900.0
"""Seconds after which processes that have not answered count as stuck."""


@dataclass(slots=True)
class Watch:
    """What one process saw. Times are those of the machine's monotonic clock, the same in all processes.

    Attributes:
        started: When it was let go.
        ended: When each of its batches was done with.
        counts: How many messages each batch held.
        ids: The messages, in order.
        backend_cpu: Seconds of processor time that its server process used, if that can be seen.
        client_cpu: Seconds of processor time of the process itself, if the work tells them.
    """

    started: float = 0.0
    ended: "array[float]" = field(default_factory=lambda: array("d"))
    counts: "array[int]" = field(default_factory=lambda: array("q"))
    ids: "array[int]" = field(default_factory=lambda: array("q"))
    backend_cpu: float = 0.0
    client_cpu: float = 0.0

    def add(self, ids: Sequence[bytes]) -> None:
        """Note that a batch was done with just now."""
        drawn = array("q", b"".join(ids))
        drawn.byteswap()
        self.add_ids(drawn)

    def add_ids(self, ids: "array[int]") -> None:
        """Note the same, with the ids as numbers."""
        self.ended.append(time.monotonic())
        self.counts.append(len(ids))
        self.ids += ids


@dataclass(frozen=True, slots=True)
class Task:
    """One process: *work* is called in it with the barrier at which all start and with *arguments*."""

    work: Callable[..., Watch]
    arguments: tuple[object, ...]


def send_out(tasks: Sequence[Task]) -> list[Watch]:
    """Run *tasks*, each in a process of its own, and return what they saw, in their order.

    Args:
        tasks: They are let go together, once all have connected.

    Raises:
        RuntimeError: One of them failed; its traceback is the message.
    """
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(len(tasks) + 1)
    ears: list[Connection] = []
    processes = []
    for task in tasks:
        ear, mouth = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(task, barrier, mouth), daemon=True)
        process.start()
        mouth.close()
        ears.append(ear)
        processes.append(process)
    try:
        barrier.wait(60)
        answers = [ear.recv() if ear.poll(PATIENCE) else "a process gave no answer" for ear in ears]
    finally:
        for process in processes:
            process.join(5)
            process.kill()
    watches = [answer for answer in answers if isinstance(answer, Watch)]
    if len(watches) < len(tasks):
        raise RuntimeError(next(answer for answer in answers if not isinstance(answer, Watch)))
    return watches


def _work(task: Task, barrier: Barrier, mouth: Connection) -> None:
    try:
        mouth.send(task.work(barrier, *task.arguments))
    except Exception:  # noqa: BLE001 - whatever it is, the parent tells it
        mouth.send(traceback.format_exc())
        barrier.abort()


def stat_of(process_id: int | str) -> list[str]:
    """Return the fields of a process on this machine after its name, which may have spaces and brackets itself."""
    return Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()


def ticks(count: int) -> float:
    """Return the seconds of as many ticks of processor time."""
    return count / os.sysconf("SC_CLK_TCK")


def backend_cpu(process_id: int) -> float:
    """Return the seconds of processor time of a server process so far; 0 if it is on another machine."""
    try:
        fields = stat_of(process_id)
    except OSError:
        return 0.0
    return ticks(int(fields[11]) + int(fields[12]))


def figures_of(watches: Sequence[Watch]) -> dict[str, float]:
    """Return messages a second from the start to the last, and the processor time a message of server and client."""
    count = total(watches)
    return {
        "messages/s": count / (max(watch.ended[-1] for watch in watches if watch.ended) - _start(watches)),
        "server us": 1e6 * sum(watch.backend_cpu for watch in watches) / count,
        "client us": 1e6 * sum(watch.client_cpu for watch in watches) / count,
    }


def measured(tasks: Sequence[Task], *, messages: int | None = None) -> dict[str, float]:
    """Run *tasks*, check that each message came once and so many came, and return the figures."""
    watches = send_out(tasks)
    each_once(watches, messages=messages)
    return figures_of(watches)


def total(watches: Sequence[Watch]) -> int:
    """Return how many messages the processes had."""
    return sum(len(watch.ids) for watch in watches)


def rate_within(watches: Sequence[Watch], since: float, until: float) -> float:
    """Return messages a second between two moments, in seconds after the start."""
    first = _start(watches)
    done = (
        count
        for watch in watches
        for ended, count in zip(watch.ended, watch.counts, strict=True)
        if since <= ended - first < until
    )
    return sum(done) / (until - since)


def each_once(watches: Sequence[Watch], *, messages: int | None = None) -> None:
    """Check that no message came twice and, if *messages* is given, that so many came.

    Raises:
        AssertionError: It is not so.
    """
    ids = [message for watch in watches for message in watch.ids]
    different = len(set(ids))
    if different != len(ids) or (messages is not None and different != messages):
        error = f"{len(ids)} deliveries of {different} messages, {messages} had been enqueued"
        raise AssertionError(error)


def _start(watches: Sequence[Watch]) -> float:
    return min(watch.started for watch in watches)
