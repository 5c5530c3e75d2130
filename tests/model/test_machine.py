import os

import pytest
from hypothesis import HealthCheck, settings

from tests.model.running import run
from tests.model.world import World

# The deep profile: FAIRQUEUE_MODEL_EXAMPLES=2000 FAIRQUEUE_MODEL_STEPS=60
_EXAMPLES = int(os.environ.get("FAIRQUEUE_MODEL_EXAMPLES", "40"))
_STEPS = int(os.environ.get("FAIRQUEUE_MODEL_STEPS", "40"))


@pytest.mark.timeout(0)
def test_every_program_of_transactions_and_consumers_keeps_the_invariants(world: World) -> None:
    """The invariants hold whatever happens in whatever order, and draining empties the queue."""
    tally = run(
        world,
        settings(
            max_examples=_EXAMPLES, stateful_step_count=_STEPS, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )

    print("\n" + "\n".join(f"{count:8} {what}" for what, count in tally.most_common()))  # noqa: T201 (for deep runs)
