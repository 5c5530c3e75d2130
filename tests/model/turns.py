"""Fairness: while two channels stay backlogged and unhindered, what they were served by weight stays close.

What is served is the sum of the costs, which are 1 in a queue that is fair by messages. They stay within the sum of the
largest cost by weight of either.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations

from sqlalchemy_fairqueue import Delivery

_COSTS = (1, 1, 5, 2)
DEAREST = max(_COSTS)


def cost_of(number: int) -> int:
    """What the message of this number costs."""
    return _COSTS[number % len(_COSTS)]


def kind_of(number: int) -> str:
    """The kind of the message of this number: several in a row have the same one."""
    return f"kind-{number // 6 % 3}"


_ROUNDING = Fraction(2, 2520)


@dataclass(slots=True)
class Turns:
    """What each pair of channels was given since both have been ready."""

    pairs: dict[tuple[str, str], dict[str, Fraction]] = field(default_factory=dict)
    by_cost: bool = False
    late: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    always: set[str] | None = None
    held: set[str] = field(default_factory=set)
    meanwhile: tuple[Sequence[Delivery], dict[str, int], Mapping[str, int]] | None = None
    is_beside: bool = False

    @contextmanager
    def beside(self, held: set[str]) -> Iterator[None]:
        """What is served inside counts after the call that holds these channels, and as if it did not hold them."""
        self.held, self.is_beside = held, True
        try:
            yield
        finally:
            self.is_beside = False

    def corrected(self, channel: str) -> None:
        """A cost was corrected. When the dispatcher hears of it is not predicted: its pairs do not count any more."""
        if self.by_cost:
            self.late.add(channel)
            self.configured(channel)

    def configured(self, channel: str) -> None:
        """A policy changed: its pairs begin anew once it was served.

        The tag that it has by now is of its old weight, so that others may lead by what was fair with that.
        """
        self.changed.add(channel)
        self.pairs = {pair: given for pair, given in self.pairs.items() if channel not in pair}

    def served(self, batch: Sequence[Delivery], backlog: dict[str, int], weights: Mapping[str, int]) -> None:
        """Check a batch message by message, and then what was served beside it.

        Args:
            batch: What a dequeue returned.
            backlog: Messages ready before the call, of each channel that nothing but its turn held back.
            weights: Messages a turn, of each channel.
        """
        if self.is_beside:
            self.meanwhile = batch, backlog, weights
            return
        self._served(batch, backlog, weights)
        if self.meanwhile is None:
            return
        given = Counter(delivery.channel for delivery in batch)
        kept = {name: count - given[name] for name, count in backlog.items() if name in self.held}
        (batch, others, weights), self.meanwhile = self.meanwhile, None
        self._served(batch, others | kept, weights)

    def _served(self, batch: Sequence[Delivery], backlog: Mapping[str, int], weights: Mapping[str, int]) -> None:
        left = {name: count for name, count in backlog.items() if count and name not in self.late}
        # A channel that was locked, say, catches up what it missed, and the virtual time stood still meanwhile.
        self.always = set(left) if self.always is None else self.always & set(left)
        left = {name: count for name, count in left.items() if name in self.always}
        self.pairs = {
            pair: self.pairs.get(pair, dict.fromkeys(pair, Fraction())) for pair in combinations(sorted(left), 2)
        }
        for delivery in batch:
            name = delivery.channel
            if name not in left:
                continue
            left[name] -= 1
            if not left[name]:
                self.pairs = {pair: given for pair, given in self.pairs.items() if name not in pair}
                continue
            if name in self.changed:
                self.changed.remove(name)
                self.pairs |= {pair: dict.fromkeys(pair, Fraction()) for pair in self.pairs if name in pair}
                continue
            for pair, given in self.pairs.items():
                if name in pair and self.changed.isdisjoint(pair):
                    given[name] += Fraction(cost_of(delivery.payload) if self.by_cost else 1, weights[name])
                    self._check(name, pair[pair[0] == name], given, weights)

    def _check(self, name: str, other: str, given: dict[str, Fraction], weights: Mapping[str, int]) -> None:
        largest = max(_COSTS) if self.by_cost else 1
        most = Fraction(largest, weights[name]) + Fraction(largest, weights[other]) + _ROUNDING
        lead = given[name] - given[other]
        assert lead <= most, f"channel {name} is {lead} ahead of {other}, at most {most} are fair"
