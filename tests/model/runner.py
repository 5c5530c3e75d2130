"""Running the machine against a world."""

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.machine import FairQueueMachine
from tests.model.world import World


@dataclass(frozen=True, slots=True)
class Reached:
    """What happened in a run: how often, and in how many programs (of ``programs["all"]``)."""

    tally: Counter[str] = field(default_factory=Counter)
    programs: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        """A line for each, the most frequent first."""
        lines = (f"{count:8} in {self.programs[what]:6}  {what}" for what, count in self.tally.most_common())
        return "\n".join((f"{self.programs['all']} programs", *lines))


def run(world: World, how: settings, machine: type[FairQueueMachine] = FairQueueMachine) -> Reached:
    """Run programs until one fails or there were enough."""
    reached = Reached()
    bound = {"world": world, "tally": reached.tally, "programs": reached.programs}
    run_state_machine_as_test(type("Machine", (machine,), bound), settings=how)
    return reached
