"""Channel policies, and the value of an argument that is left as it is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Final, Literal

from sqlalchemy_fairqueue.values.checks import check_choice, check_count, check_duration

OnFull = Literal["raise", "drop"]


class Unset(Enum):
    """The type of :data:`UNSET`."""

    UNSET = "unset"

    def __repr__(self) -> str:
        """Its name."""
        return self.name


UNSET: Final = Unset.UNSET
"""For arguments where None means something: leave it as it is."""


@dataclass(frozen=True, slots=True)
class ChannelPolicy:
    """How a channel is served.

    Attributes:
        max_concurrency: Most messages of the channel that consumers hold at once, exactly. None: no limit.
        rate_interval: Least time between two messages on average; zero: no rate limit.
        rate_burst: Messages that may come in a row before rate_interval applies (generic cell rate algorithm,
            ITU-T I.371). With 1 the channel loses the time by which a consumer comes late for a message: 4 % at 10
            messages/s, 16 % at 50, more at higher rates. Raise it with the rate, to the messages of a tenth of a second
            or more.
        weight: Messages a turn: a channel of weight 3 gets three times the share of one of weight 1 while both have
            work.
        max_backlog: Most undelivered messages of the channel: an enqueue beyond is answered by on_full. Approximate by
            what transactions in flight enqueue at the same time. Retried and released messages come back above it.
            None: no bound.
        on_full: What an enqueue to a full channel does: "raise" ChannelFull, or "drop" the message, count it, and say
            so in its receipt.
    """

    max_concurrency: int | None = None
    rate_interval: timedelta = timedelta()
    rate_burst: int = 1
    weight: int = 1
    max_backlog: int | None = None
    on_full: OnFull = "raise"

    def __post_init__(self) -> None:
        """Refuse what cannot be kept."""
        if self.max_concurrency is not None:
            check_count("max_concurrency", self.max_concurrency, 1, 2**31 - 1)
        check_duration("rate_interval", self.rate_interval)
        check_count("rate_burst", self.rate_burst, 1, 1_000_000)
        # The database adds up what a whole burst takes.
        check_duration("rate_interval times rate_burst", self.rate_interval * self.rate_burst)
        check_count("weight", self.weight, 1, 10_000)
        if self.max_backlog is not None:
            check_count("max_backlog", self.max_backlog, 1, 2**31 - 1)
        check_choice("on_full", self.on_full, ("raise", "drop"))
