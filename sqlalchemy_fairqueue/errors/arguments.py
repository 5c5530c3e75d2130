"""Errors of arguments and payloads."""

from __future__ import annotations

from sqlalchemy_fairqueue.errors.base import FairQueueError


class InvalidArgument(FairQueueError, ValueError, codes=("QF001",)):
    """An argument has a value that cannot be kept.

    Example:
        >>> try:
        ...     Rate(0)
        ... except InvalidArgument as error:
        ...     print(error)
        the count of a rate is 0; give a number above 0, such as 50
    """


class PayloadError(FairQueueError, ValueError, codes=("QF011",)):
    """A payload cannot be encoded, its content is too long, or a stored content cannot be decoded.

    Attributes:
        path: Where in the payload, like ``$.pages[3].size``; ``$`` is the payload itself.

    Example:
        >>> try:
        ...     queue.enqueue(engine, channel="customer-7", payload={"pages": [{"at": datetime.now(UTC)}]})
        ... except PayloadError as error:
        ...     print(error.path)
        $.pages[0].at
    """

    def __init__(self, problem: str, path: str = "$") -> None:
        super().__init__(problem, path)
        self.path = path

    def __str__(self) -> str:
        """The problem, with the path."""
        return f"payload at {self.path}: {self.args[0]}"
