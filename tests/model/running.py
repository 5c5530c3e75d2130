"""Running the machine against a world."""

from collections import Counter

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.machine import FairQueueMachine
from tests.model.world import World


def run(world: World, how: settings) -> Counter[str]:
    """Run programs until one fails or there were enough; return what they did, counted."""
    tally: Counter[str] = Counter()
    machine = type("Machine", (FairQueueMachine,), {"world": world, "tally": tally})
    run_state_machine_as_test(machine, settings=how)
    return tally
