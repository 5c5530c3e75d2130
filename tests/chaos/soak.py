"""The soak: worker processes, channels with mixed limits, a producer, and faults that come all the time."""

import contextlib
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import ChannelPolicy, FairQueueError, Rate
from sqlalchemy_fairqueue.embedded import Server
from sqlalchemy_fairqueue.times import microseconds
from tests.chaos.books import Books
from tests.chaos.business import KEPT, PLAIN
from tests.chaos.children import Child, start_child

TOGETHER = 10
"""The limit of the queue."""
_RATE = Rate(100, burst=3)
_CHUNK = 100
_SEED = 20


def policies(channels: int) -> dict[str, ChannelPolicy]:
    """Channels by name, each fifth alike: unlimited, narrow, rated, heavy, and all of it."""
    kinds = (
        ChannelPolicy(),
        ChannelPolicy(max_concurrency=1),
        ChannelPolicy(rate=_RATE),
        ChannelPolicy(weight=4),
        ChannelPolicy(max_concurrency=2, rate=_RATE, weight=2),
    )
    return {f"channel-{number}": kinds[number % len(kinds)] for number in range(channels)}


@dataclass(slots=True)
class Soak:
    """One run.

    Attributes:
        books: What is sent and what becomes of it.
        server: A server of its own.
        folder: For the logs of the workers.
        workers: How many processes.
        limits: The policies of the channels.
        snapshots: How many snapshots were checked.
        faults: How often each happened.
        unbalanced: What did not come out in a snapshot.
        ended: What workers said last that ended though nobody had asked them to, or otherwise than asked.
    """

    books: Books
    server: Server
    folder: Path
    workers: int
    limits: dict[str, ChannelPolicy]
    snapshots: int = 0
    faults: "Counter[str]" = field(default_factory=Counter)
    unbalanced: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    _children: list[Child] = field(default_factory=list)
    _frozen: list[Child] = field(default_factory=list)
    _aside: list[threading.Thread] = field(default_factory=list)
    _restarting: threading.Lock = field(default_factory=threading.Lock)
    _over: threading.Event = field(default_factory=threading.Event)
    _started: int = 0

    def start(self) -> None:
        """Start one more worker process; every other one is in asyncio."""
        self._started += 1
        how: dict[str, Any] = {"concurrency": 4, "lease": 2.0, "grace": 1.0, "housekeeping": True}
        how["asynchronous"] = self._started % 2 == 0
        name = f"worker-{self._started}"
        self._children.append(start_child(self.books.database.url, self.folder, name, **how))

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Workers at work, and checks of snapshots, for the time of the block."""
        for _ in range(self.workers):
            self.start()
        self._do_aside(self._check_snapshots)
        try:
            yield
        finally:
            self._over.set()
            for thread in self._aside:
                thread.join()
            for child in self._children + self._frozen:
                child.kill()

    def produce(self, messages: int) -> None:
        """Send messages, and those of a transaction again whose fate is not known, unless they are there."""
        chance, channels = random.Random(_SEED), list(self.limits)  # noqa: S311 - a repeatable choice
        for first in range(0, messages, _CHUNK):
            numbers = range(first, min(first + _CHUNK, messages))
            plan = [(number, chance.choice((KEPT, PLAIN)), chance.choice(channels), _how(chance)) for number in numbers]
            while not self._sent(plan):
                threading.Event().wait(0.05)

    def _sent(self, plan: list[tuple[int, str, str, dict[str, Any]]]) -> bool:
        try:
            with Session(self.books.engine) as session, session.begin():
                if session.scalar(text("select true from sent where number = :first"), {"first": plan[0][0]}):
                    return True
                for number, kind, channel, how in plan:
                    self.books.send_in(session, number, kind, channel, **how)
        except (DBAPIError, FairQueueError):
            return False
        return True

    def fault(self, name: str) -> None:
        """Do some harm, and return before its consequences are over: the next fault need not wait for them."""
        self.replace_ended()
        self.faults[name] += 1
        chance = random.Random(_SEED + self.faults.total())  # noqa: S311 - a repeatable choice
        match name:
            case "kill":
                victim = self._children.pop(chance.randrange(len(self._children)))
                victim.kill()
                self.start()
            case "stop":
                victim = self._children.pop(0)
                victim.send(signal.SIGTERM)
                self._do_aside(self._see_off, victim)
                self.start()
            case "freeze":
                self.thaw()
                if len(self._children) > 1:
                    self._frozen.append(self._children.pop(0))
                    self._frozen[0].send(signal.SIGSTOP)
            case "terminate":
                # While the server is away nobody is connected.
                with contextlib.suppress(DBAPIError):
                    self.books.terminate("worker-%", chance.randint(1, 8))
            case "restart":
                self._do_aside(self._restart)
            case _:
                raise ValueError(name)

    def _do_aside(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._aside.append(thread)
        thread.start()

    def _see_off(self, victim: Child) -> None:
        if victim.ended() != 0:
            self._note(victim)
        victim.kill()

    def _restart(self) -> None:
        with self._restarting:
            self.server.restart("immediate")

    def _check_snapshots(self) -> None:
        """Check in one snapshot after the other what must hold in every one, unless the server is away."""
        while not self._over.wait(1):
            with contextlib.suppress(DBAPIError):
                self.unbalanced += self.books.unbalanced()
                self.snapshots += 1

    def replace_ended(self) -> None:
        """A supervisor would: a worker that is started while the server is away fails."""
        for child in [child for child in self._children if child.process.exitcode is not None]:
            self._children.remove(child)
            self._note(child)
            self.start()

    def _note(self, child: Child) -> None:
        if child.is_launched:
            self.ended.append(f"{child.name}: {child.process.exitcode}: {child.log.read_text()[-2000:]}")
        else:
            self.faults["start in vain"] += 1

    def thaw(self) -> None:
        """Let frozen workers go on."""
        while self._frozen:
            thawed = self._frozen.pop()
            thawed.send(signal.SIGCONT)
            self._children.append(thawed)

    def left(self) -> int:
        """How many messages there are, as soon as the server can say."""
        while True:
            with contextlib.suppress(DBAPIError):
                return int(self.books.database.value("select count(*) from fq_message"))
            threading.Event().wait(0.05)

    def rated_too_often(self) -> list[str]:
        """A line for each stretch in which a channel gave more than its rate allows, by the history."""
        lines = []
        rated = {name: policy.rate for name, policy in self.limits.items() if policy.rate is not None}
        # As the rate itself is reckoned: when the next one may come at the earliest.
        allowed_at = dict.fromkeys(rated, 0)
        for row in self.books.database.rows("select channel, started_at from fq_history order by started_at"):
            channel, at = row.channel, row.started_at
            if (rate := rated.get(channel)) is not None:
                every = microseconds(rate.interval)
                if at < allowed_at[channel] - (rate.burst - 1) * every:
                    lines.append(f"{channel} gave one at {at}, allowed from {allowed_at[channel]}")
                allowed_at[channel] = max(allowed_at[channel], at) + every
        return lines


def _how(chance: random.Random) -> dict[str, Any]:
    return {"seconds": chance.choice((0.0, 0.0, 0.002, 0.01)), "fails": chance.choices((0, 1, 2), (90, 8, 2))[0]}
