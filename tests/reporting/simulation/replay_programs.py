"""Work that is done twice: by the SQL functions under a clock that stands still, and by the simulator."""

from collections import deque
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from sqlalchemy_fairqueue import ChannelPolicy, Rate
from sqlalchemy_fairqueue.reporting.simulation.scenarios import Scenario
from sqlalchemy_fairqueue.sql.files import NEEDED_VERSION, functions
from sqlalchemy_fairqueue.sql.schema import in_schema
from sqlalchemy_fairqueue.times import duration, microseconds
from sqlalchemy_fairqueue.values.messages import FairBy
from sqlalchemy_fairqueue.worker.leases import _CHARGED_AFTER, _CHARGED_AHEAD
from sqlalchemy_fairqueue.worker.timings import Timings
from tests.fixtures.clock import install_clock
from tests.fixtures.database import Database
from tests.sql.answers import Hand
from tests.sql.client import Kernel
from tests.sql.kernel.verbs import limit

START = 1_700_000_000_000_000
_MILLISECOND = 1_000
_SECOND = 1_000_000
_EVERY = round(Timings().charge_every * _SECOND)
_YEAR = 31_536_000_000_000
_STILL = """
create or replace function public.fq_now() returns bigint language sql volatile as $$
  select last_value from public.test_clock
$$
"""

_PATIENT = {
    "fq_look": ("p_now - 1000000)", "p_now - 9000000000000000)"),
    "fq_attend": ("c_still constant bigint := 1000000", "c_still constant bigint := 9000000000000000"),
}
"""Constants of the functions, and values with which no channel ever stands still for too long."""


def row(message: int, enqueued: int, started: int, finished: int, **more: Any) -> dict[str, Any]:
    """An attempt in a channel of its own, times counted from START."""
    return {
        "id": message, "queue": "q", "channel_id": message, "channel": f"tenant-{message}", "message_id": message,
        "kind": "work", "attempt": 1, "enqueued_at": START + enqueued, "ready_at": START + more.pop("ready", enqueued),
        "started_at": START + started, "finished_at": START + finished, "outcome": "completed", **more,
    }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Task:
    """A message: when it is enqueued, for when, how long each attempt takes, how it is tried again.

    Attributes:
        channel: Number of its channel.
        gap: Microseconds since the enqueue before.
        delay: Microseconds until it is ready.
        priority: Or its priority; zero: none.
        attempts: Microseconds that each attempt takes, and the delay of the next one.
        cost: What it is declared to cost.
    """

    channel: int
    gap: int
    delay: int
    priority: int
    attempts: tuple[tuple[int, int], ...]
    cost: int = 1


@dataclass(frozen=True, slots=True)
class Program:
    """Tasks, and under which policies by how many workers they are done.

    Attributes:
        tasks: In the order of their enqueues.
        policies: One a channel.
        workers: How many.
        batch: Messages that each takes at once.
        max_concurrency: Of the queue.
        begin: When the workers begin, in microseconds.
        fair_by: What the channels get equal parts of.
    """

    tasks: tuple[Task, ...]
    policies: tuple[ChannelPolicy, ...]
    workers: int
    batch: int
    max_concurrency: int | None
    begin: int
    fair_by: FairBy = "messages"

    @property
    def scenario(self) -> Scenario:
        """What the simulator is to do."""
        return Scenario(
            name="program",
            fair_by=self.fair_by,
            workers=self.workers,
            batch=self.batch,
            max_concurrency=self.max_concurrency,
            policies={name_of(number): policy for number, policy in enumerate(self.policies)},
        )

    @property
    def enqueues_at(self) -> list[int]:
        """When each task is enqueued."""
        at, times = START, []
        for task in self.tasks:
            at += task.gap
            times.append(at)
        return times

    def history(self) -> pa.Table:
        """The attempts, as if each had begun when it was ready."""
        rows: list[dict[str, Any]] = []
        for number, (task, at) in enumerate(zip(self.tasks, self.enqueues_at, strict=True)):
            enqueued, ready = at - START, at - START + task.delay
            outcomes = ["retried"] * (len(task.attempts) - 1) + ["completed"]
            for attempt, (service, again) in enumerate(task.attempts):
                rows.append(row(
                    number + 1, enqueued, ready, ready + service, ready=ready, id=len(rows) + 1, attempt=attempt + 1,
                    channel_id=task.channel + 1, channel=name_of(task.channel), outcome=outcomes[attempt],
                    priority=task.priority or None, cost=task.cost,
                ))  # fmt: skip
                ready += service + again
        return pa.Table.from_pylist(rows)


def name_of(channel: int) -> str:
    """The name of a channel, by its number."""
    return f"tenant-{channel}"


def policies() -> st.SearchStrategy[ChannelPolicy]:
    """Limits, rates and weights, or none."""
    return st.builds(
        ChannelPolicy,
        max_concurrency=st.none() | st.integers(1, 3),
        rate=st.none() | st.builds(Rate, st.just(1), st.sampled_from((7, 40)).map(duration), burst=st.integers(1, 3)),
        weight=st.integers(1, 4),
    )


@st.composite
def programs(
    draw: st.DrawFn, *, batch: int | None = None, priorities: bool = True, fair_by: FairBy = "messages"
) -> Program:
    """Up to forty tasks in up to five channels, close together, so that much happens at one instant."""
    channels = draw(st.integers(1, 5))
    # Costs are in whole milliseconds where they are durations.
    services = st.integers(0, 60)
    if fair_by == "seconds":
        # Some are charged while they run.
        long = st.sampled_from((400_000, 1_300_000, 2_900_000, 6_000_000))
        services = st.integers(0, 10).map(lambda part: 700 * part) | long
    attempt = st.tuples(services, st.sampled_from((0, 0, 25)))
    task = st.builds(
        Task,
        channel=st.integers(0, channels - 1),
        gap=st.sampled_from((0, 0, 0, 1, 9, 30)),
        delay=st.sampled_from((0, 0, 0, 50)),
        priority=st.just(0),
        attempts=st.lists(attempt, min_size=1, max_size=3).map(tuple),
        cost=st.sampled_from((1, 1, 2, 7, 100)) if fair_by == "cost" else st.just(1),
    )
    # Turns within a batch need a backlog: short programs seldom have one.
    tasks = draw(st.lists(task, min_size=draw(st.sampled_from((1, 25))), max_size=40).map(tuple))
    if priorities:
        urgent = draw(st.lists(st.sampled_from((0, 0, 0, 1, 5)), min_size=len(tasks), max_size=len(tasks)))
        # Without delays between attempts: a replay does not know that a retry keeps the priority.
        tasks = tuple(
            replace(one, delay=0, priority=priority, attempts=tuple((service, 0) for service, _ in one.attempts))
            if priority
            else one
            for one, priority in zip(tasks, urgent, strict=True)
        )
    return Program(
        tasks=tasks,
        policies=tuple(draw(st.lists(policies(), min_size=channels, max_size=channels))),
        workers=draw(st.integers(1, 4)),
        batch=draw(st.integers(1, 20)) if batch is None else batch,
        max_concurrency=draw(st.none() | st.integers(1, 6)),
        begin=draw(st.sampled_from((0, 0, 100))),
        fair_by=fair_by,
    )


@dataclass(slots=True)
class KernelRun:
    """A program, done with the SQL functions step by step.

    At one instant, attempts end first, then what runs is charged, messages are enqueued, and then workers ask.
    """

    kernel: Kernel
    program: Program
    now: int = 0
    deliveries: list[tuple[int, int, int]] = field(default_factory=list)
    _tasks: dict[int, Task] = field(default_factory=dict)
    _attempts: dict[int, int] = field(default_factory=dict)
    _numbers: dict[int, int] = field(default_factory=dict)
    _hands: list[deque[Hand]] = field(default_factory=list)
    _ends: dict[int, int] = field(default_factory=dict)
    _begun: dict[int, int] = field(default_factory=dict)
    _charged: dict[int, int] = field(default_factory=dict)

    @classmethod
    def prepare(cls, database: Database) -> Kernel:
        """A connection to a database whose clock stands still until it is set.

        A first channel that stands still for a second is nothing special there, as for the simulator.
        """
        install_clock(database)
        database.execute(_STILL)
        for name, (right, patient) in _PATIENT.items():
            text = functions(NEEDED_VERSION)[name]
            assert right in text, name
            text = text.replace(right, patient).replace("create function", "create or replace function")
            database.execute(in_schema(text, "public"))
        return Kernel.open(database.conninfo, autocommit=True)

    def run(self) -> list[tuple[int, int, int]]:
        """Each delivery in turn: when, which task, which of its attempts."""
        program, kernel = self.program, self.kernel
        self._set_clock(START - 1)
        kernel.set_queue(history=True)
        kernel.set_queue(fair_by=program.fair_by)
        if program.max_concurrency is not None:
            limit(kernel, program.max_concurrency)
        for number, policy in enumerate(program.policies):
            kernel.configure(
                name_of(number),
                policy.max_concurrency,
                interval=microseconds(policy.rate.interval) if policy.rate else 0,
                burst=policy.rate.burst if policy.rate else 1,
                weight=policy.weight,
            )
        self._hands = [deque() for _ in range(program.workers)]
        begin = START + program.begin
        arrivals = deque(zip(program.enqueues_at, program.tasks, strict=True))
        asks_at: int | None = begin
        charges_at = begin + _EVERY
        while arrivals or self._ends or asks_at is not None:
            times = [*self._ends.values(), *(at for at, _ in list(arrivals)[:1])]
            if program.fair_by == "seconds" and self._ends:
                charges_at += max(0, -((charges_at - self.now) // _EVERY)) * _EVERY
                times.append(charges_at)
            if asks_at is not None and len(self._ends) < program.workers:
                times.append(asks_at)
            self._set_clock(max(self.now, min(times)))
            if self.now in self._ends.values():
                self._end(next(worker for worker, end in self._ends.items() if end == self.now))
                asks_at = max(begin, self.now)
            elif self.now == charges_at and self._ends:
                self._charge()
                charges_at += _EVERY
                asks_at = self.now
            elif arrivals and arrivals[0][0] == self.now:
                self._enqueue(arrivals.popleft()[1])
                asks_at = max(begin, self.now)
            else:
                asks_at = self._ask()
        return self.deliveries

    def _set_clock(self, now: int) -> None:
        self.now = now
        self.kernel.rows("select setval('public.test_clock', %(now)s)", now=now)

    def _enqueue(self, task: Task) -> None:
        (added,) = self.kernel.enqueue(
            name_of(task.channel),
            delays=[task.delay or None],
            priorities=[task.priority or None],
            costs=[task.cost if self.program.fair_by == "cost" else None],
        )
        self._numbers[added.message_id] = len(self._numbers)
        self._tasks[added.message_id] = task

    def _ask(self) -> int | None:
        """One that is idle asks. Returns when to ask again."""
        worker = next(worker for worker in range(self.program.workers) if worker not in self._ends)
        call = self.kernel.dequeue(self.program.batch, lease=_YEAR)
        for hand in call.hands:
            self.deliveries.append((self.now, self._numbers[hand.id], self._attempts.setdefault(hand.id, 0)))
        if call.hands:
            self._hands[worker].extend(call.hands)
            self._begin(worker)
            return self.now
        # What is due when a lease ends is nothing: the program ends before.
        return None if call.due_in is None or call.due_in > _YEAR // 2 else self.now + call.due_in

    def _begin(self, worker: int) -> None:
        hand = self._hands[worker][0]
        self._begun[worker] = self.now
        self._ends[worker] = self.now + self._tasks[hand.id].attempts[self._attempts[hand.id]][0]

    def _charge(self) -> None:
        """Charge for what runs, as a worker does."""
        charges = []
        for worker in self._ends:
            hand, took = self._hands[worker][0], self.now - self._begun[worker]
            if took >= _CHARGED_AFTER * _SECOND:
                before = self._charged.get(hand.id, 0)
                self._charged[hand.id] = ceil((took + _CHARGED_AHEAD * _SECOND) / _MILLISECOND)
                charges.append((hand, self._charged[hand.id], before))
        self.kernel.charge_running(charges)

    def _end(self, worker: int) -> None:
        hand = self._hands[worker].popleft()
        attempts, attempt = self._tasks[hand.id].attempts, self._attempts[hand.id]
        if self.program.fair_by == "seconds":
            # As a worker measures it.
            cost = max(1, ceil(attempts[attempt][0] / _MILLISECOND))
            self.kernel.correct(hand, cost, charged=self._charged.pop(hand.id, None))
        self._attempts[hand.id] += 1
        if attempt + 1 == len(attempts):
            assert self.kernel.complete(hand) == {}
        else:
            assert self.kernel.retry(hand, delay=attempts[attempt][1] or None) == {}
        del self._ends[worker]
        if self._hands[worker]:
            self._begin(worker)
