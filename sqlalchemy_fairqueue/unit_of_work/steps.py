"""A step of work that is sent together with COMMIT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy_fairqueue.database import Call, CommitRefused
    from sqlalchemy_fairqueue.unit_of_work.operations import ReceiptUpdate


def _no_updates(rows: Sequence[Any]) -> list[ReceiptUpdate]:  # noqa: ARG001 - as for Step
    """For a statement that nobody waits for the answer of."""
    return []


def _no_failure(refused: CommitRefused) -> Exception:
    """For a statement that is not refused."""
    return refused


class Step(NamedTuple):
    """One statement, and what follows from its answer.

    Attributes:
        call: The statement. It fails by itself where the transaction must not be committed.
        updates: Makes the updates of receipts from its rows.
        failure: Makes the error to raise from the server's refusal.
    """

    call: Call
    updates: Callable[[Sequence[Any]], list[ReceiptUpdate]] = _no_updates
    failure: Callable[[CommitRefused], Exception] = _no_failure
