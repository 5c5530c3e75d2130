"""The reference of rates: the generic cell rate algorithm, and what it promises in any window of time."""

from dataclasses import dataclass, field

from sqlalchemy_fairqueue import Rate
from sqlalchemy_fairqueue.times import microseconds


@dataclass(slots=True)
class RateCell:
    """A rate, when it allows the next message, and when the last ones were released."""

    rate: Rate | None = None
    rate_at: int = 0
    taken_at: list[int] = field(default_factory=list)

    @property
    def interval(self) -> int:
        """Microseconds between two messages on average."""
        return microseconds(self.rate.interval) if self.rate else 0

    def allows(self, now: int) -> int | None:
        """How many messages may be released now; None: any number."""
        if self.rate is None:
            return None
        count, cell = 0, max(self.rate_at, now)
        latest = now + (self.rate.burst - 1) * self.interval
        while cell <= latest:
            cell += self.interval
            count += 1
        return count

    def release(self, count: int, now: int) -> None:
        """Note that so many messages were released."""
        self.rate_at = max(self.rate_at, now) + count * self.interval
        if self.rate:
            self.taken_at += [now] * count
            self._check_windows(self.rate)

    def configure(self, rate: Rate | None, rate_at: int) -> None:
        """Another rate, measured anew."""
        self.rate = rate
        self.rate_at = rate_at
        self.taken_at = []

    def _check_windows(self, rate: Rate) -> None:
        """I6: in any window at most burst + window // interval messages."""
        last = self.taken_at[-1]
        for count, first in enumerate(reversed(self.taken_at), 1):
            most = rate.burst + (last - first) // self.interval
            assert count <= most, f"{count} messages within {last - first} us, the rate allows {most}"
