"""Processes that put load on a queue, let go together, and what they saw."""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
from array import array
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.synchronize import Barrier

PATIENCE = 900.0
"""Seconds after which processes that have not answered count as stuck."""


@dataclass(slots=True)
class Watch:
    """What one process saw. Times are those of the machine's monotonic clock, the same in all processes.

    Attributes:
        started: when it was let go.
        ended: when each of its batches was done with.
        counts: how many messages each batch held.
        ids: the messages, in order.
        backend_cpu: seconds of processor time that its server process used, where that can be seen.
        client_cpu: seconds of processor time of the process itself, where the work tells them.
    """

    started: float = 0.0
    ended: array[float] = field(default_factory=lambda: array("d"))
    counts: array[int] = field(default_factory=lambda: array("q"))
    ids: array[int] = field(default_factory=lambda: array("q"))
    backend_cpu: float = 0.0
    client_cpu: float = 0.0

    def add(self, ids: Sequence[bytes]) -> None:
        """A batch was done with just now."""
        self.ended.append(time.monotonic())
        self.counts.append(len(ids))
        drawn = array("q", b"".join(ids))
        drawn.byteswap()
        self.ids += drawn


@dataclass(frozen=True, slots=True)
class Task:
    """One process: *work* is called in it with the barrier at which all start and with *arguments*."""

    work: Callable[..., Watch]
    arguments: tuple[object, ...]


def send_out(tasks: Sequence[Task]) -> list[Watch]:
    """Run *tasks*, each in a process of its own, and return what they saw, in their order.

    Args:
        tasks: they are let go together, once all have connected.

    Raises:
        RuntimeError: one of them failed; its traceback is the message.
    """
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(len(tasks) + 1)
    ears: list[Connection[Any, Any]] = []
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


def _work(task: Task, barrier: Barrier, mouth: Connection[Any, Any]) -> None:
    try:
        mouth.send(task.work(barrier, *task.arguments))
    except Exception:  # noqa: BLE001 - whatever it is, the parent tells it
        mouth.send(traceback.format_exc())
        barrier.abort()


def backend_cpu(process_id: int) -> float:
    """Seconds of processor time that a server process on this machine used so far; 0 where that cannot be seen."""
    try:
        fields = Path(f"/proc/{process_id}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
