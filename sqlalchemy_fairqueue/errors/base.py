"""Bases of all errors and warnings of this package."""

from __future__ import annotations

from typing import Any, ClassVar


class FairQueueError(Exception):
    """Base of every error of this package.

    Attributes:
        of_sqlstate: The class for each SQLSTATE that has one.

    Example:
        >>> try:
        ...     queue.pause(engine, "custmer-7")
        ... except FairQueueError as error:
        ...     print(type(error).__name__)
        UnknownChannel
    """

    of_sqlstate: ClassVar[dict[str, type[FairQueueError]]] = {}

    def __str__(self) -> str:
        """The problem: data may follow it in ``args``."""
        return str(self.args[0]) if self.args else ""

    def __init_subclass__(cls, codes: tuple[str, ...] = (), **kwargs: Any) -> None:
        """Register the SQLSTATE codes that stand for the class."""
        super().__init_subclass__(**kwargs)
        for code in codes:
            FairQueueError.of_sqlstate[code] = cls


class FairQueueWarning(UserWarning):
    """Base of every warning of this package.

    Example:
        >>> warnings.filterwarnings("error", category=FairQueueWarning)  # in tests: each is an error
    """
