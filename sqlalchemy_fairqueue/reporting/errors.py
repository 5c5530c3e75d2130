"""Errors of reports."""

from __future__ import annotations

from sqlalchemy_fairqueue.errors import FairQueueError


class HistoryEmpty(FairQueueError):
    """There is no attempt to report on.

    Example:
        >>> try:
        ...     history = read_history(engine, queue=queue.name)
        ... except HistoryEmpty as error:
        ...     print(error)
        the history has no attempts; queues record them after queue.configure(session, history=True)
    """


class HistoryTooLong(FairQueueError):
    """The history has more attempts than the limit *most* of :func:`read_history`.

    See Also:
        :class:`HistoryEmpty`
    """


class HistoryUnreadable(FairQueueError):
    """The history cannot be read from the database or the archive.

    See Also:
        :class:`HistoryEmpty`
    """


def empty_history() -> str:
    return "the history has no attempts; queues record them after queue.configure(session, history=True)"


def mixed_history(channel_id: int, one: tuple[str, str], other: tuple[str, str]) -> str:
    return (
        f"channel id {channel_id} is channel {one[1]!r} of queue {one[0]!r} in some rows and {other[1]!r} of "
        f"{other[0]!r} in others: the history is of several databases; make a report for each"
    )


def no_attempts_of(channel: str) -> str:
    return f"the history has no attempts of channel {channel!r}; name a channel as the queue has it, not its label"
