"""The simulator against fq_dequeue: the same deliveries, in the same order, at the same instants."""

from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import given

from sqlalchemy_fairqueue import ChannelPolicy
from sqlalchemy_fairqueue.reporting.simulation.replay import simulated_attempts, trace_of
from sqlalchemy_fairqueue.values.messages import FairBy
from tests.fixtures.database import Database
from tests.reporting.simulation.replay_programs import START, KernelRun, Program, Task, programs
from tests.sql.client import Kernel

_queues = count(1)


@pytest.fixture
def kernel(database: Database) -> Iterator[Kernel]:
    """The functions, under a clock that stands still until it is set."""
    kernel = KernelRun.prepare(database)
    yield kernel
    kernel.connection.close()


def done(kernel: Kernel, program: Program) -> list[tuple[int, int, int]]:
    """Each delivery of the SQL functions in turn, in a queue of its own: when, which task, which of its attempts."""
    kernel.queue = f"q{next(_queues)}"
    return KernelRun(kernel, program).run()


def simulated(program: Program) -> list[tuple[int, int, int]]:
    """The same, of the simulator."""
    trace = trace_of(program.history())._replace(begin=START + program.begin)
    attempts = simulated_attempts(trace, program.scenario)
    deliveries = sorted(
        (int(attempts["order"][number]), int(attempts["started"][number]), task, number - int(message["attempt"]))
        for task, message in enumerate(trace.messages)
        for number in range(int(message["attempt"]), int(message["stop"]))
    )
    return [delivery[1:] for delivery in deliveries]


@pytest.mark.parametrize(
    ("fair_by", "batch"),
    [
        ("messages", 1), ("messages", None), ("seconds", None),
        *(pytest.param(*one, marks=pytest.mark.whole) for one in (("cost", 1), ("cost", None), ("seconds", 1))),
    ],
)  # fmt: skip
def test_random_programs(kernel: Kernel, fair_by: FairBy, batch: int | None) -> None:
    """Workers get the messages that the SQL gives them, in that order, at those instants: one at a time, or several in
    the order of the turns within each batch; fair by messages, by costs, or by seconds, known when an attempt ends.
    """

    @given(programs(batch=batch, fair_by=fair_by))
    def check(program: Program) -> None:
        assert simulated(program) == done(kernel, program)

    check()


@pytest.mark.parametrize(
    ("weight", "cost", "other_cost", "taken"),
    [
        # Six cost as much as nothing beside 100: all that start before the others start again come first.
        pytest.param(1, 1, 100, 11, id="what starts later waits for the next pass"),
        # Its seventh message starts with the second ones of the others, which the first pass takes.
        pytest.param(6, 6, 6, 6, id="a pass takes six messages of a channel"),
    ],
)
def test_passes(kernel: Kernel, weight: int, cost: int, other_cost: int, taken: int) -> None:
    """A batch of twenty from ten channels, one of which has most messages: a pass takes at most six of each."""
    long = [Task(0, 0, 0, 0, ((1, 0),), cost)] * 20
    others = [Task(channel, 0, 0, 0, ((1, 0),), other_cost) for channel in range(1, 10)] * 3
    program = Program(
        tasks=(*long, *others),
        policies=(ChannelPolicy(weight=weight), *[ChannelPolicy()] * 9),
        workers=1,
        batch=20,
        max_concurrency=None,
        begin=0,
        fair_by="cost",
    )

    deliveries = simulated(program)

    assert sum(task < len(long) for _, task, _ in deliveries[:20]) == taken
    assert deliveries == done(kernel, program)
