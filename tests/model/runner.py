"""Running the machine against a world."""

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.machine import FairQueueMachine
from tests.model.world import World

PROGRAMS = settings(deadline=None, suppress_health_check=list(HealthCheck))
SAMPLE = settings(PROGRAMS, database=None, report_multiple_bugs=False, phases=(Phase.generate,))
"""Programs that are made anew, and not made shorter when one fails."""


@dataclass(frozen=True, slots=True)
class Reached:
    """What happened in a run: how often, and in how many programs (of ``programs["all"]``)."""

    tally: Counter[str] = field(default_factory=Counter)
    programs: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        """A line for each, the most frequent first."""
        lines = (f"{count:8} in {self.programs[what]:6}  {what}" for what, count in self.tally.most_common())
        return "\n".join((f"{self.programs['all']} programs", *lines))


def run(world: World, machine: type[FairQueueMachine], how: settings, examples: int, steps: int) -> Reached:
    """Run so many programs of so many steps, unless one fails."""
    reached = Reached()
    bound = {"world": world, "tally": reached.tally, "programs": reached.programs}
    how = settings(how, max_examples=examples, stateful_step_count=steps)
    run_state_machine_as_test(type("Machine", (machine,), bound), settings=how)
    return reached
