"""Mixins of the tables that only functions of the schema use: they are made from the catalog alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from sqlalchemy_fairqueue.models.applications import TO_CHANNEL
from sqlalchemy_fairqueue.models.base import FairqueueMixin, Related
from sqlalchemy_fairqueue.models.tables import of_table

if TYPE_CHECKING:
    from sqlalchemy.orm import Mapped


@of_table("fq_gate", "the dispatcher makes it; queue.configure(session, max_concurrency=...) writes it")
class GateMixin(FairqueueMixin):
    """A part of the gate of a queue, which a dequeue locks and a change of the queue's limit locks whole."""


@of_table("fq_epoch", "the first queue.dequeue(engine, ...) after a crash makes it")
class EpochMixin(FairqueueMixin):
    """The history that the server writes, as a random number: gone after a crash, a failover, a restore of files."""


@of_table(
    "fq_queue_state",
    "the dispatcher writes it; the limit is set by queue.configure(session, max_concurrency=...)",
    key=("queue",),
)
class QueueStateMixin(FairqueueMixin):
    """What the dispatcher of a queue knows, and the concurrency of a queue that has a limit.

    All signals are heard but those of transactions from ``heard_below`` on and in ``heard_open``. The ready order
    begins at ``ready_floor`` and ``ready_channel``, since ``still_since``. No channel is due before ``due_floor``, and
    no lease ended before ``lease_floor`` when all of them were looked at last, at ``swept_at``. Since ``held_since``
    all that is due is locked. The row is as it was ``noted_at``.

    One row a queue is the key; the table has no unique index, by design.

    Attributes:
        queue_config: The queue's configuration.
    """

    __fairqueue_related__: ClassVar[dict[str, Related]] = {
        "queue_config": Related("fq_queue", own="queue", other="name", foreign_key_here=True)
    }
    if TYPE_CHECKING:
        queue_config: Mapped[Any]


@of_table(
    "fq_promotion",
    "queue.enqueue(session, ..., priority=..., at=...) and a retry with a delay make it",
    key=("queue", "due_at", "message_id"),
)
class PromotionMixin(FairqueueMixin):
    """A message with a priority that is due later, and when. One row a message and time is the key; the table has none.

    A row outlives a message that ends before, until it is due.
    """


@of_table("fq_signal", "the verbs of a queue insert signals, and the dispatcher deletes them")
class SignalMixin(FairqueueMixin):
    """A note of the transaction ``xid`` for the dispatcher, until it is heard.

    Attributes:
        channel: The channel.
    """

    __fairqueue_related__: ClassVar[dict[str, Related]] = TO_CHANNEL
    if TYPE_CHECKING:
        channel: Mapped[Any]


@of_table(
    "fq_limit_share",
    "the dispatcher writes it; use queue.limits.configure(session, name, ...)",
    key=("limit_name", "queue"),
)
class LimitShareMixin(FairqueueMixin):
    """A queue of a shared limit: what it has drawn, in virtual time, and until when it counts as held back.

    One row a limit and queue is the key; the table has no unique index, by design.
    """


@of_table("fq_group_followup", "queue.group makes groups, and workers finish them")
class GroupFollowupMixin(FairqueueMixin):
    """A message that may follow a group: the one for its failure, or the other one."""


@of_table("fq_group_note", "queue.group makes groups, and workers finish them")
class GroupNoteMixin(FairqueueMixin):
    """A note of a transaction that added members to a group or ended one, until a worker folds it.

    ``id`` is the message that ended, and 0 where members were added.
    """


@of_table("fq_result_wait", "queue.result(engine, ..., timeout=...) writes it")
class ResultWaitMixin(FairqueueMixin):
    """A process that waits for the result of a message, until ``waiting_until``."""


@of_table("fq_schedule_slot", "workers of the queue write it when they run a slot")
class ScheduleSlotMixin(FairqueueMixin):
    """A slot of a schedule that was run, and its message; old ones are deleted by workers.

    Example:
        >>> with Session(engine) as session:
        ...     print(session.scalars(select(ScheduleSlot.ran_at).where(ScheduleSlot.message_id == 17)).all())
        []
    """


@of_table("fq_grant", "use op.grant_fairqueue(...) and op.revoke_fairqueue(...) in a migration")
class GrantMixin(FairqueueMixin):
    """A kind of work that a role was granted, with its bounds. The rights themselves are privileges on functions.

    ``role`` is the role's name as PostgreSQL prints it, in quotes where it needs them. ``queues`` and ``channels`` None
    are all.

    Example:
        >>> with Session(engine) as session:
        ...     print(session.execute(select(Grant.role, Grant.kind, Grant.queues)).all())
        []
    """


@of_table("fq_load", "loads of sqlalchemy_fairqueue.spark write it")
class LoadMixin(FairqueueMixin):
    """A bulk load that was committed, by the name of its job: the same job again adds nothing.

    For a stream the row is that of the last micro-batch, ``batch_id``, and ``source`` is the query of the batches. The
    counts are those of that load.

    Example:
        >>> with Session(engine) as session:
        ...     print(session.scalars(select(Load.created).where(Load.queue == queue.name)).all())
        []
    """


@of_table("fq_stop_request", "use queue.admin.stop_worker(session, ...)")
class StopRequestMixin(FairqueueMixin):
    """A request to the workers of a queue that have the name ``consumer`` to stop, by ``requested_by``.

    The row stays when they have stopped; a later request deletes it after an hour.

    Example:
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
        >>> [delivery] = queue.dequeue(engine)
        >>> found = queue.admin.stop_worker(engine, delivery.lease.consumer)
        >>> with Session(engine) as session:
        ...     print(len(session.scalars(select(StopRequest).where(StopRequest.queue == queue.name)).all()))
        1
    """


@of_table("fq_round", "workers of the queue write it in their housekeeping", key=("duty",))
class RoundMixin(FairqueueMixin):
    """A duty of the housekeeping, whose lock lets one transaction do it at a time: 'fold', 'forget' or 'history'.

    ``waiting`` are transactions that ran when the round in ``snapshot`` began.
    """
