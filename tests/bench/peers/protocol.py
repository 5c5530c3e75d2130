"""The protocol of every queue's script: commands as lines of JSON on standard input, one answer each on output.

Commands: ``prepare`` (make the tables), ``enqueue`` (tenants, first or numbers, bulk, pace, size),
``transact`` (clients, each, sleep, enqueue), ``work`` (slots, seconds), ``count``, ``stop``
(what was handled, and the processor time it took), ``quit``. Times are those of the
machine's monotonic clock, the same in all processes. A message is its tenant and its number; the number says what it
costs (`cost_of`), and its handler takes that much longer.
"""

import asyncio
import json
import os
import resource
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol, TextIO

CHUNK: Final = 500
"""Messages that a bulk enqueue adds in one call."""

BUSINESS: Final = "insert into business (content) values (repeat('x', 100))"
"""Statement that a business transaction runs before it enqueues."""
COSTLY: Final = 1_000_000_000
"""Messages of cost *c*, where that is above 1, are numbered from this times *c* on."""
_THREADS: Final = 16

_numbers: list[int] = []
_started: list[float] = []
_seconds = 0.0


class Peer(Protocol):
    """What a script tells of its queue. All is done through the queue's public interface."""

    async def prepare(self) -> None:
        """Make the tables in an empty database."""

    async def open(self) -> None:
        """Connect, to enqueue."""

    async def enqueue(self, messages: list[tuple[str, int]]) -> None:
        """Add messages, by the call that is made for several where there is one, and commit."""

    async def transact(self, message: tuple[str, int] | None, afterwards: str) -> None:
        """One transaction: `BUSINESS`, an enqueue in it if there is a message, *afterwards*, and the commit.

        Several are asked for at once: each needs a connection of its own.
        """

    async def work(self, slots: int) -> None:
        """Begin to handle messages by `handled`, so many at once, and return; with one slot, take one at a time."""

    async def stop(self) -> None:
        """Let what is in hand end, and stop."""


def cost_of(number: int) -> int:
    """What a message costs; its handler takes that many times as long as one of cost 1."""
    return max(1, number // COSTLY)


def note(number: int) -> float:
    """A message is being handled now; return the seconds that its handler shall take."""
    _started.append(time.monotonic())
    _numbers.append(number)
    return _seconds * cost_of(number)


async def handled(number: int) -> None:
    """The handler of queues that call coroutines."""
    if seconds := note(number):
        await asyncio.sleep(seconds)


def handled_in_thread(number: int) -> None:
    """The handler of queues that call functions in threads."""
    if seconds := note(number):
        # The work that a handler of the workload does.
        time.sleep(seconds)


async def _enqueue(
    peer: Peer,
    tenants: list[str],
    first: int = 0,
    *,
    numbers: list[int] | None = None,
    bulk: bool,
    pace: list[float],
    size: int = CHUNK,
) -> dict[str, Any]:
    """Add messages; each was sent when its call began and committed when it returned."""
    messages = list(zip(tenants, numbers or range(first, first + len(tenants)), strict=True))
    sent: list[float] = []
    committed: list[float] = []
    size = size if bulk else 1
    began = time.monotonic()
    for start in range(0, len(messages), size):
        if pace:
            await asyncio.sleep(max(0.0, began + pace[start] - time.monotonic()))
        some = messages[start : start + size]
        sent += [time.monotonic()] * len(some)
        await peer.enqueue(some)
        committed += [time.monotonic()] * len(some)
    return {"sent": sent, "committed": committed}


async def _transact(peer: Peer, clients: int, each: int, sleep: float, *, enqueue: bool) -> dict[str, Any]:
    """Let clients of one tenant do business; how long each transaction took, and all of them."""
    taken: list[float] = []

    async def client(number: int) -> None:
        for turn in range(each):
            began = time.monotonic()
            message = ("tenant-0", number * each + turn) if enqueue else None
            await peer.transact(message, f"select pg_sleep({sleep})")
            taken.append(time.monotonic() - began)

    began = time.monotonic()
    await asyncio.gather(*(client(number) for number in range(clients)))
    return {"taken": taken, "seconds": time.monotonic() - began}


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


async def _obey(peer: Peer, command: dict[str, Any]) -> dict[str, Any]:
    global _seconds  # noqa: PLW0603 - one process, one workload
    match command.pop("do"):
        case "prepare":
            await peer.prepare()
        case "open":
            await peer.open()
        case "enqueue":
            return await _enqueue(peer, **command)
        case "transact":
            return await _transact(peer, **command)
        case "work":
            _seconds = command["seconds"]
            began = _cpu()
            await peer.work(command["slots"])
            return {"cpu": began}
        case "count":
            return {"count": len(_numbers)}
        case "stop":
            await peer.stop()
            return {"numbers": _numbers, "started": _started, "cpu": _cpu()}
    return {}


async def _speak(peer: Peer, answers: TextIO) -> None:
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(_THREADS))
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        command = json.loads(line)
        if command["do"] == "quit":
            # Whatever still runs has nothing to do any more, and some of it would wait for more.
            os._exit(0)
        try:
            answer = await _obey(peer, command)
        except Exception:  # noqa: BLE001 - whatever it is, the harness tells it
            answer = {"error": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def speak(peer: Peer) -> None:
    """Obey commands until there are no more."""
    # What a queue prints must not get between the answers.
    answers, sys.stdout = sys.stdout, sys.stderr
    asyncio.run(_speak(peer, answers))
