"""The reference of shared limits: what one of several queues may draw."""

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
        return 0 if self.contended else self.most(limit, now)

    def most(self, limit: int, now: int) -> int:
        """How many of so many messages it lets out at most, at that instant or earlier."""
        return min(one for one in (limit, self.free, self.rate.allows(now)) if one is not None)


@dataclass(slots=True)
class Drawn:
    """When messages were drawn from a shared rate: between two instants each."""

    cell: RateCell = field(default_factory=RateCell)
    spans: list[tuple[int, int]] = field(default_factory=list)

    def add(self, count: int, after: int, before: int) -> None:
        """Note that so many messages were drawn, and fail if the rate did not allow that (I6)."""
        rate = self.cell.rate
        if rate is None:
            return
        self.spans += [(after, before)] * count
        for number, (first, _) in enumerate(reversed(self.spans), 1):
            most = rate.burst + (before - first) // self.cell.interval
            assert number <= most, f"{number} messages of all queues within {before - first} us, the rate allows {most}"
