"""What all operations of a transaction share: a queue, a phase, and the way to the server.

Enqueues, groups, settlements and cancels of one queue are sent together (:mod:`.enqueues`, :mod:`.settlements`); each
change of configuration is sent by itself (:mod:`.changes`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.calls import Call, CommitRefused, Link, Target

GROUPS, ENQUEUES, SETTINGS, CHANGES, REMOVALS, SETTLEMENTS, CANCELS, SCHEDULES = range(8)
"""The phases of a transaction's queue work, in the order in which they are sent.

SETTINGS: queues, plans and shared limits are changed, and nothing but their rows is locked. CHANGES: channels are
changed, and limits of queues. REMOVALS: plans and shared limits are removed, which nothing may use by then.
"""

notifies = attrgetter("target.notify")
"""Whether the transaction may wake waiting consumers for an operation. C calls it."""

ReceiptUpdate = Callable[[], None]
"""Fills in the outcome of an operation, to be called once that is certain."""


class Operation(Protocol):
    """An operation on a queue within a transaction."""

    @property
    def target(self) -> Target: ...

    @property
    def phase(self) -> int:
        """The phase in which it is sent."""


@dataclass(slots=True, eq=False)
class Share:
    """The operations of one queue on one connection.

    Attributes:
        phases: The operations by phase, in the order of the calls.
    """

    link: Link
    target: Target
    phases: defaultdict[int, list[Any]] = field(default_factory=partial(defaultdict, list))

    def lock_key(self) -> tuple[str, str, str]:
        """Return the place of the queue in the lock order, among all queues of all databases."""
        return self.target.schema or "", self.target.queue, self.link.connection.engine.url.render_as_string()


class Step(NamedTuple):
    """A statement, and what follows from its rows.

    Attributes:
        finish: Returns the updates of receipts for its rows, or raises.
        failure: Makes the error to raise if the statement travelled with COMMIT and refused it.
    """

    call: Call
    finish: Callable[[Sequence[Any]], list[ReceiptUpdate]] = lambda _: []
    failure: Callable[[CommitRefused], Exception] = lambda refused: refused


def run(connection: Connection, steps: Sequence[Step]) -> list[ReceiptUpdate]:
    """Send steps one by one, and return the updates of receipts."""
    answers = [step.call.tuples(connection) for step in steps]
    return [update for step, rows in zip(steps, answers, strict=True) for update in step.finish(rows)]
