import os
from contextlib import closing

import pytest

from tests.fixtures.database import Database
from tests.fixtures.drivers import DRIVER
from tests.model.groups import GroupsMachine
from tests.model.limits import LimitsMachine
from tests.model.machine import FairQueueMachine
from tests.model.ordering import OrderingMachine
from tests.model.runner import PROGRAMS, SAMPLE, run
from tests.model.world import World

# `nox -s whole` runs more. The deep profile: FAIRQUEUE_MODEL_EXAMPLES=2000 FAIRQUEUE_MODEL_STEPS=60
_EXAMPLES = int(os.environ.get("FAIRQUEUE_MODEL_EXAMPLES", "12"))
_STEPS = int(os.environ.get("FAIRQUEUE_MODEL_STEPS", "40"))
_REACHED = {
    "dequeue gave a full batch": 0.5,
    "dequeue was cut by its bytes": 0.2,
    "dequeue passed by a locked channel": 0.2,
    "dequeue passed by a locked message": 0.1,
    "dequeue came to the queue's limit": 0.05,
    "dequeue was turned away": 0.01,
    "a dequeue beside another gave messages": 0.02,
    "a dequeue beside another gave nothing": 0.1,
    "enqueue: duplicate": 0.2,
    "enqueue: replaced": 0.2,
    "enqueue: dropped": 0.15,
    "enqueue to a bounded channel: replaced": 0.1,
    "enqueue without knowing of all that waits": 0.01,
    "a message that is out gave its key up": 0.1,
    "a message that was to be replaced had been taken or ended meanwhile": 0.01,
    "DuplicateMessage at commit, as predicted": 0.1,
    "ChannelFull at commit, as predicted": 0.05,
    "LeaseLost at commit, as predicted": 0.02,
    "cancel: leased": 0.1,
    "heartbeat told of a cancel": 0.02,
    "redrive: redriven": 0.1,
    "redrive: duplicate": 0.05,
    "a scheduled message got the position of its priority": 0.05,
    "purge of a channel": 0.04,
    "some fields of a policy": 0.05,
    "purge left what is out": 0.01,
    "purge left what was locked or came later": 0.1,
    "done as a role": 0.3,
    "NotGranted of a role": 0.3,
    "ProgrammingError of a role": 0.3,
    "a message was spoilt": 0.08,
    "set aside: dead": 0.03,
    "set aside: paused": 0.01,
    "a bad message was mended": 0.01,
    "dequeue came to a quota in cost": 0.1,
}
"""Events that a long enough run of programs must reach, each with the least share of programs that reach it."""
_OTHERS = sorted({"asyncpg", "psycopg2"} - {DRIVER})
_SAMPLE = int(os.environ.get("FAIRQUEUE_MODEL_SAMPLE", "2"))
"""So many programs run on each other driver, of which the first is the simplest; `nox -s drivers` runs all on each."""
_SURE = 14
"""So many programs are expected to reach what is asked for: none would do in one run of a million."""


_REACHED_BY_LIMITS = {
    "dequeue came to the queue's limit": 0.1,
    "dequeue drew messages from the shared limit": 0.1,
    "dequeue drew cost from the shared limit": 0.05,
    "a rate of the queue counted cost": 0.05,
    "the rival took messages": 0.3,
    "the rival was held back": 0.2,
    "messages followed in a queue with a limit": 0.1,
}
_REACHED_BY_GROUPS = {
    "a member was added by a transaction": 0.5,
    "a member was added by a member": 0.1,
    "a group was followed": 0.3,
    "a group was followed by what its failure asks for": 0.1,
    "what follows a group waited": 0.005,
    "cancel of a group": 0.1,
    "MessageCancelled at commit, as predicted": 0.005,
}
_REACHED_BY_ORDERING = {
    "a message was held back": 0.5,
    "a message was let go": 0.3,
    "a message got another ordering key": 0.05,
    "a message that was held back was moved": 0.03,
    "messages of an ordering key followed": 0.1,
    "messages followed": 0.1,
}


@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    ("machine", "share", "expected"),
    [
        (FairQueueMachine, 1, _REACHED),
        (LimitsMachine, 2, _REACHED_BY_LIMITS),
        (GroupsMachine, 4, _REACHED_BY_GROUPS),
        (OrderingMachine, 2, _REACHED_BY_ORDERING),
    ],
    ids=["transactions and consumers", "limits of queues", "groups", "ordering keys"],
)
def test_every_program_keeps_the_invariants(
    world: World, machine: type[FairQueueMachine], share: int, expected: dict[str, float]
) -> None:
    """The invariants hold whatever happens in whatever order, and draining empties the queue."""
    reached = run(world, machine, PROGRAMS, _EXAMPLES // share, _STEPS)

    print(f"\n{reached}")  # noqa: T201 (for deep runs)
    sure = {what for what, part in expected.items() if part * reached.programs["all"] >= _SURE}
    assert sure <= reached.programs.keys(), f"never reached: {sure - reached.programs.keys()}"


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "driver", [pytest.param(one, marks=() if one == "asyncpg" else pytest.mark.whole) for one in _OTHERS]
)
def test_some_programs_on_the_other_drivers(database: Database, driver: str) -> None:
    """The same rules through the engines and sessions of another driver: async ones of asyncpg."""
    with closing(World(database, driver)) as world:
        for machine in (FairQueueMachine, LimitsMachine, GroupsMachine):
            run(world, machine, SAMPLE, _SAMPLE, _STEPS)
