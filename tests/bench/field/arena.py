"""Arenas of contestants: a fresh database for each run, two worker processes, a producer process and the meter."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

from tests.bench.field.backlogs import FILLINGS
from tests.bench.field.environments import NotForIt
from tests.bench.field.meter import Reading, read_meter, sessions_cpu
from tests.bench.field.script import Failed, Script
from tests.bench.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.bench.field.environments import Contestant
    from tests.bench.stage import Stage

WORKERS: Final = 2
"""Processes that handle messages."""
SLOTS: Final = 8
"""Messages that each of them handles at once."""
_LOOK: Final = 0.02
_PATIENCE: Final = 60.0
_LOAD: Final = 20_000
"""Messages a command: its answer must come in time."""


@dataclass(slots=True)
class Seen:
    """What a group of workers did.

    Attributes:
        started: when each message's handler was called.
        used: what the server did from before the workers connected until after they left.
        client_cpu: seconds of processor time that their processes used from their start of work on.
        sessions_cpu: the same of the server's sessions that were there at the end.
    """

    started: dict[int, float] = field(default_factory=dict)
    used: Reading = field(default_factory=lambda: Reading(0, 0, 0, 0.0))
    client_cpu: float = 0.0
    sessions_cpu: float = 0.0

    @property
    def begin(self) -> float:
        """When the first message was handled."""
        return min(self.started.values())

    @property
    def end(self) -> float:
        """When the handler of the last one was called."""
        return max(self.started.values())

    @property
    def rate(self) -> float:
        """Messages a second, from the first handler to the last."""
        return (len(self.started) - 1) / max(self.end - self.begin, 1e-6)


class RunningWorkers:
    """Workers at work."""

    def __init__(self, scripts: list[Script]) -> None:
        self._speakers = scripts

    def count(self) -> int:
        """How many messages they have been given so far."""
        for script in self._speakers:
            script.tell("count")
        return sum(script.answer()["count"] for script in self._speakers)

    def until(self, enough: int, meanwhile: Callable[[int], object] = lambda _: None) -> None:
        """Return when they have been given so many.

        Args:
            enough: how many.
            meanwhile: called with the count of each look.

        Raises:
            Failed: nothing more came for a minute.
        """
        last, since = -1, time.monotonic()
        while (count := self.count()) < enough:
            if count > last:
                last, since = count, time.monotonic()
            elif time.monotonic() > since + _PATIENCE:
                raise Failed(f"{count} of {enough} messages were delivered, and then none for {_PATIENCE:.0f} s")
            meanwhile(count)
            # It only watches: when each message was taken is noted by whoever took it.
            time.sleep(_LOOK)

    def during(self, seconds: float) -> None:
        """Return when they have worked for so long."""
        # What they did is noted by themselves; there is nothing to wait for but the time.
        time.sleep(seconds)


@dataclass(slots=True)
class Arena:
    """One contestant's database for one workload; gone at the end of the block.

    Attributes:
        stage: the server.
        contestant: who.
        python: its interpreter.
        prepared: a database with its tables.
    """

    stage: Stage
    contestant: Contestant
    python: str
    prepared: str
    _stack: contextlib.ExitStack = field(init=False, repr=False, default_factory=contextlib.ExitStack)
    _url: str = field(init=False, default="")
    _producer: Script | None = field(init=False, default=None)

    def __enter__(self) -> Self:
        """Make the database."""
        name = f"{self.prepared}_round"
        server = Wire(self.stage.conninfo())
        server.run(f"drop database if exists {name} with (force)")
        server.run(f"create database {name} template {self.prepared}")
        server.run("checkpoint")
        self._stack.callback(server.close)
        self._stack.callback(server.run, f"drop database if exists {name} with (force)")
        self._url = self.stage.conninfo(name)
        return self

    def __exit__(self, *_: object) -> None:
        """Drop it."""
        self._stack.close()

    @contextlib.contextmanager
    def connected(self) -> Iterator[Wire]:
        """A connection to the database."""
        wire = Wire(self._url)
        try:
            yield wire
        finally:
            wire.close()

    def producer(self) -> Script:
        """The process that enqueues: started when it is wanted first, and there until the arena is gone."""
        if self._producer is None:
            self._producer = self._stack.enter_context(Script(self.python, self.contestant, self._url))
            self._producer.ask("open")
        return self._producer

    def worth(self, seconds: float) -> int:
        """How many messages keep the contestant busy for so long, roughly."""
        return max(100, int(self.contestant.speed * seconds))

    def fill(self, count: int, *, tenants: int, first: int = 0, later: bool = False) -> int:
        """Add messages numbered from *first* for as many tenants, and tidy up; return how many.

        Those who are filled by their own bulk call get no more than it adds in bearable time.

        Args:
            count: how many.
            tenants: how many tenants, ``tenant-0`` and so on, in turn.
            first: the first one's number.
            later: all of them are for tomorrow.

        Raises:
            NotForIt: there is no later.
        """
        if later and not self.contestant.later:
            raise NotForIt("has no messages for later")
        if bulk := self.contestant.bulk:
            count = min(count, bulk)
            names = [f"tenant-{number % tenants}" for number in range(first, first + count)]
            self.load(names, first=first, later=later)
            return count
        with self.connected() as wire:
            FILLINGS[self.contestant.tables].fill(wire, first=first, count=count, tenants=tenants, later=later)
        return count

    def load(self, tenants: list[str], *, first: int = 0, later: bool = False) -> None:
        """Add a message for each of *tenants*, numbered from *first*, in bulk, and tidy up."""
        self.load_numbered([(tenant, first + number) for number, tenant in enumerate(tenants)], later=later)

    def load_numbered(self, messages: list[tuple[str, int]], *, later: bool = False) -> None:
        """Add messages, each a tenant and its number, in bulk, and tidy up."""
        for start in range(0, len(messages), _LOAD):
            some = messages[start : start + _LOAD]
            tenants, numbers = [tenant for tenant, _ in some], [number for _, number in some]
            self.producer().ask("enqueue", tenants=tenants, numbers=numbers, bulk=True, pace=[], later=later)
        with self.connected() as wire:
            wire.run("vacuum analyze")

    @contextlib.contextmanager
    def workers(self, seen: Seen, *, seconds: float = 0.0, slots: int = SLOTS) -> Iterator[RunningWorkers]:
        """Two processes that handle messages in the block; *seen* is filled at its end.

        Args:
            seen: where to tell what they did.
            seconds: how long a handler takes.
            slots: messages that each handles at once; with one of them, nothing is taken in batches either.

        Raises:
            Failed: one of them failed, or a message was handled twice.
        """
        with self.connected() as wire:
            before, others = read_meter(wire), sessions_cpu(wire)
            with contextlib.ExitStack() as stack:
                scripts = [stack.enter_context(Script(self.python, self.contestant, self._url)) for _ in range(WORKERS)]
                _all(scripts, "open")
                began = _all(scripts, "work", slots=slots, seconds=seconds)
                yield RunningWorkers(scripts)
                for session, used in sessions_cpu(wire).items():
                    seen.sessions_cpu += used - others.get(session, 0.0)
                ended = _all(scripts, "stop")
            seen.used = read_meter(wire).since(before)
        seen.client_cpu = sum(end["cpu"] - start["cpu"] for start, end in zip(began, ended, strict=True))
        for one in ended:
            if twice := seen.started.keys() & set(one["numbers"]):
                raise Failed(f"{len(twice)} messages were handled twice, {min(twice)} among them")
            seen.started |= dict(zip(one["numbers"], one["started"], strict=True))


def prepare(stage: Stage, contestant: Contestant, python: str) -> str:
    """Make a database with a contestant's tables, and return its name.

    Raises:
        Failed: its script could not.
    """
    name = f"{stage.run}_field_{contestant.name}"
    server = Wire(stage.conninfo())
    server.run(f"drop database if exists {name} with (force)")
    server.run(f"create database {name}")
    server.close()
    with Script(python, contestant, stage.conninfo(name)) as script:
        script.ask("prepare")
    return name


def _all(scripts: list[Script], do: str, **command: object) -> list[dict[str, Any]]:
    for script in scripts:
        script.tell(do, **command)
    return [script.answer() for script in scripts]
