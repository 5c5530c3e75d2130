"""The reference of shared limits: what one of several queues may draw."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.model.rates import RateCell


@dataclass(frozen=True, slots=True)
class SharedRoom:
    """What a shared limit has left for the queue before a call.

    Attributes:
        free: Its slots that no queue holds; None: any number.
        rate: Its rate.
        contended: Whether another queue waits for its part, which the limit leaves to it.
    """

    free: int | None = None
    rate: RateCell = field(default_factory=RateCell)
    contended: bool = False

    def least(self, limit: int, now: int) -> int:
        """How many of so many messages it lets out at least, at that instant or later."""
        return 0 if self.contended else self._within(limit, self.rate.surely(now))

    def most(self, limit: int, now: int) -> int:
        """How many of so many messages it lets out at most, at that instant or earlier."""
        return self._within(limit, self.rate.allows(now))

    def _within(self, *most: int | None) -> int:
        return min(one for one in (*most, self.free) if one is not None)


@dataclass(slots=True)
class Drawn:
    """When messages were drawn from a shared rate, between two instants each, and what each counted."""

    cell: RateCell = field(default_factory=RateCell)
    spans: list[tuple[int, int]] = field(default_factory=list)

    def add(self, costs: Sequence[int], after: int, before: int) -> None:
        """Note that messages of these costs were drawn, and fail if the rate did not allow that (I6, I37)."""
        rate = self.cell.rate
        if rate is None:
            return
        for units in self.cell.units(costs):
            drawn = 0
            for first, earlier in reversed(self.spans):
                drawn += earlier
                most = rate.burst + (before - first) // self.cell.interval
                assert drawn < most, f"{drawn} of all queues within {before - first} us, the rate allows {most}"
            self.spans.append((after, units))
