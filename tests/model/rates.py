"""The reference of rates: the generic cell rate algorithm, and what it promises in any window of time; and of limits
that several queues share: what one of them may draw.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from sqlalchemy_fairqueue import Rate
from sqlalchemy_fairqueue.times import microseconds
from tests.model.turns import DEAREST


@dataclass(slots=True)
class RateCell:
    """A rate, when it allows the next message, and when the last ones were released, and what each counted."""

    rate: Rate | None = None
    rate_at: int = 0
    taken: list[tuple[int, int]] = field(default_factory=list)

    @property
    def interval(self) -> int:
        """Microseconds between two messages on average."""
        return microseconds(self.rate.interval) if self.rate else 0

    @property
    def metered(self) -> bool:
        """Whether it counts cost."""
        return self.rate is not None and self.rate.of == "cost"

    def allows(self, now: int) -> int | None:
        """How many messages, or what cost, may be released now; None: any number."""
        if self.rate is None:
            return None
        count, cell = 0, max(self.rate_at, now)
        latest = now + (self.rate.burst - 1) * self.interval
        while cell <= latest:
            cell += self.interval
            count += 1
        return count

    def surely(self, now: int) -> int | None:
        """How many messages may be released now, whatever they cost; None: any number."""
        room = self.allows(now)
        return room if room is None or not self.metered else -(-room // DEAREST)

    def fits(self, costs: Sequence[int], now: int) -> int:
        """How many messages of these costs, in this order, may be released now: each while something is left."""
        room = self.allows(now)
        before = list(accumulate(self.units(costs), initial=0))[:-1]
        return sum(room is None or one < room for one in before)

    def release(self, costs: Sequence[int], now: int) -> None:
        """Note that messages of these costs were released."""
        units = self.units(costs)
        self.rate_at = max(self.rate_at, now) + sum(units) * self.interval
        if self.rate:
            self.taken += [(now, one) for one in units]
            self._check_windows(self.rate)

    def units(self, costs: Sequence[int]) -> list[int]:
        """What messages of these costs count."""
        return [one if self.metered else 1 for one in costs]

    def configure(self, rate: Rate | None, rate_at: int) -> None:
        """Another rate, measured anew."""
        self.rate = rate
        self.rate_at = rate_at
        self.taken = []

    def _check_windows(self, rate: Rate) -> None:
        """I6, I37: in any window less than burst + window // interval before the last message."""
        last, count = self.taken[-1][0], -self.taken[-1][1]
        for first, units in reversed(self.taken):
            count += units
            most = rate.burst + (last - first) // self.interval
            assert count < most, f"{count} before the last message within {last - first} us, the rate allows {most}"


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
