"""Errors of reports."""

from __future__ import annotations

from sqlalchemy_fairqueue.errors import FairQueueError


class HistoryEmpty(FairQueueError):
    """There is no attempt to report on."""


class HistoryTooLong(FairQueueError):
    """There are more attempts than are read into the process."""


class HistoryUnreadable(FairQueueError):
    """The history cannot be read from the database or the archive."""


def empty_history() -> str:
    """The message of a history without attempts."""
    return "the history has no attempts; queues record them after queue.configure(session, history=True)"


def mixed_history(channel_id: int, one: tuple[str, str], other: tuple[str, str]) -> str:
    """The message of a history in which an id stands for two channels, each a queue and a name."""
    return (
        f"channel id {channel_id} is channel {one[1]!r} of queue {one[0]!r} in some rows and {other[1]!r} of "
        f"{other[0]!r} in others: the history is of several databases; make a report for each"
    )


def no_attempts_of(channel: str) -> str:
    """What is said of a channel that a history does not have."""
    return f"the history has no attempts of channel {channel!r}; name a channel as the queue has it, not its label"
