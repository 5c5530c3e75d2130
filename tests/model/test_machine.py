import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.fixtures.database import Database
from tests.model.machine import FairQueueMachine
from tests.model.world import World

_EXAMPLES = int(os.environ.get("FAIRQUEUE_MODEL_EXAMPLES", "40"))
_STEPS = int(os.environ.get("FAIRQUEUE_MODEL_STEPS", "40"))


@pytest.fixture
def world(database: Database) -> Iterator[World]:
    """The database under the machine."""
    world = World(database)
    yield world
    world.close()


@pytest.mark.timeout(0)
def test_every_program_of_transactions_and_consumers_keeps_the_invariants(world: World) -> None:
    """The invariants hold whatever happens in whatever order, and draining empties the queue."""
    machine = type("Machine", (FairQueueMachine,), {"world": world})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=_EXAMPLES,
            stateful_step_count=_STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=tuple(Phase),
        ),
    )
