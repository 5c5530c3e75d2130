"""What all operations of a transaction have in common: a queue, a phase, and the way to the server.

Enqueues, groups, settlements and cancels of one queue are sent many at once (:mod:`.enqueues`, :mod:`.settlements`);
each change of what is configured is sent by itself (:mod:`.changes`).
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
    """What a transaction can ask of a queue."""

    @property
    def target(self) -> Target: ...

    @property
    def phase(self) -> int:
        """The phase in which it is sent."""


@dataclass(slots=True, eq=False)
class Share:
    """The operations of one queue on one connection.

    Attributes:
        link: The connection.
        target: The queue.
        phases: The operations by phase, in the order in which they were asked for.
    """

    link: Link
    target: Target
    phases: defaultdict[int, list[Any]] = field(default_factory=partial(defaultdict, list))

    def lock_key(self) -> tuple[str, str, str]:
        """Return the place of the queue in the lock order, among all queues of all databases."""
        return self.target.schema or "", self.target.queue, self.link.connection.engine.url.render_as_string()


class Step(NamedTuple):
    """One statement, and what follows from its answer.

    Attributes:
        call: The statement.
        finish: Makes the updates of receipts from its rows, or raises what they tell.
        failure: Makes the error to raise if it was sent with COMMIT and refused that itself.
    """

    call: Call
    finish: Callable[[Sequence[Any]], list[ReceiptUpdate]] = lambda _: []
    failure: Callable[[CommitRefused], Exception] = lambda refused: refused


def run(connection: Connection, steps: Sequence[Step]) -> list[ReceiptUpdate]:
    """Send steps one by one; return the updates of receipts."""
    answers = [step.call.tuples(connection) for step in steps]
    return [update for step, rows in zip(steps, answers, strict=True) for update in step.finish(rows)]
