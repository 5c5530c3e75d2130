"""Objectives for waits, such as ``p95 < 2 s``: a target that each tenant's wait is held against."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.times import parsed_duration

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta
    from typing import Self

    from sqlalchemy_fairqueue.reporting.figures import ChannelFigures

_TEXT = re.compile(r"\s*(p50|p95|p99|max|mean)\s*(?:wait\s*)?<\s*(.+?)\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Objective:
    """A target for the waits of each tenant.

    Attributes:
        statistic: p50, p95, p99, max or mean.
        limit: The wait that the statistic must stay below.

    Example:
        >>> target = Objective.parse("p95 < 2 s")
        >>> target.statistic, target.limit
        ('p95', datetime.timedelta(seconds=2))
    """

    statistic: str
    limit: timedelta

    @classmethod
    def parse(cls, text: str) -> Self:
        """An objective as people write it: ``p95 < 2 s``, ``mean<500ms``.

        Raises:
            ValueError: It is none.
        """
        found = _TEXT.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r:.80} is no objective; give one like 'p95 < 2 s', of p50, p95, p99, max or mean")
        return cls(found[1].lower(), parsed_duration(found[2].replace(" ", "")))

    def value(self, channel: ChannelFigures) -> timedelta:
        """The statistic of a channel's waits."""
        found: timedelta = channel.mean_wait if self.statistic == "mean" else getattr(channel.wait, self.statistic)
        return found

    def missed(self, channels: Iterable[ChannelFigures]) -> tuple[ChannelFigures, ...]:
        """The channels that do not keep it, the longest wait first."""
        late = [one for one in channels if self.value(one) >= self.limit]
        return tuple(sorted(late, key=self.value, reverse=True))

    def __str__(self) -> str:
        """The text, with the limit in seconds."""
        return f"{self.statistic} < {self.limit.total_seconds():g} s"
