"""A mixin for each table, with its relationships and what Python adds to its columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, ColumnElement, case, cast, func, literal_column, type_coerce
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.hybrid import hybrid_property

from sqlalchemy_fairqueue.codecs import JsonCodec
from sqlalchemy_fairqueue.models import columns
from sqlalchemy_fairqueue.models.tables import FairqueueMixin, mapping, related, related_rows
from sqlalchemy_fairqueue.models.types import Duration, Instant
from sqlalchemy_fairqueue.times import instant

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from sqlalchemy.orm import Mapped


_WAITS_FOR_OTHERS = 2**63 - 1
_JSON = JsonCodec()


class PausableMixin(FairqueueMixin):
    """Adds ``is_paused`` to a table that has ``paused_at``."""

    if TYPE_CHECKING:
        paused_at: Mapped[datetime | None]

    @hybrid_property
    def is_paused(self) -> bool:
        """Whether the queue or channel is paused."""
        return self.paused_at is not None

    @is_paused.inplace.expression
    @classmethod
    def _is_paused_expression(cls) -> ColumnElement[bool]:
        return cls.paused_at.is_not(None)


@mapping("use queue.configure(session, ...)")
class QueueConfigMixin(PausableMixin, columns.fq_queue):
    """A queue that was configured or has delivered: the policy of new channels, and the settings of the queue itself.

    ``defaults`` is the policy of new channels, by the column names of :class:`ChannelStateMixin`. If it is None, a new
    channel gets the defaults of the ``Queue`` object that creates it. The durations in ``defaults`` and in
    ``dead_letter_retention_by_kind`` are microseconds. ``plans`` is true if the queue has or had plans. ``state``, the
    dispatch row, is None until the queue delivers a message or is given a limit.
    :meth:`~sqlalchemy_fairqueue.Queue.configure` documents the other columns.

    Example:
        >>> queue.configure(engine, max_concurrency=20)
        >>> with Session(engine) as session:
        ...     print(session.get(QueueConfig, queue.name).max_concurrency)
        20
    """

    channels = related_rows("fq_channel", own="name", other="queue")
    state = related("fq_queue_state", own="name", other="queue")


@mapping("use queue.enqueue(session, channel=...) or queue.configure_channel(session, ...), which make it")
class ChannelMixin(columns.fq_channel):
    """A channel: the messages of one tenant in a queue.

    Attributes:
        queue_config: None if the queue was never configured and has never delivered.
        messages: Includes leased messages.

    Example:
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
        >>> with Session(engine) as session:
        ...     print(session.scalars(select(Channel.name).where(Channel.queue == queue.name)).all())
        ['customer-7']
    """

    state = related("fq_channel_state", own="id", other="channel_id")
    queue_config = related("fq_queue", own="queue", other="name", foreign_key_here=True)
    messages = related_rows("fq_message", own="id", other="channel_id")
    dead_letters = related_rows("fq_dead_letter", own="id", other="channel_id")

    @hybrid_property
    def is_paused(self) -> bool:
        """Whether the channel itself is paused, apart from its queue."""
        paused: bool = self.state.is_paused
        return paused

    @is_paused.inplace.expression
    @classmethod
    def _is_paused_expression(cls) -> ColumnElement[bool]:
        state: Any = cls.state
        paused: ColumnElement[bool] = state.has(state.property.mapper.class_.is_paused)
        return paused


@mapping("the dispatcher writes it; a policy is set by queue.configure_channel(session, ...)", key=("channel_id",))
class ChannelStateMixin(PausableMixin, columns.fq_channel_state):
    """The state row of a channel: its policy, and what the dispatcher knows of the channel.

    ``paused_at`` is a datetime; all other instants are numbers of microseconds since 1970. ``head_message_id`` is the
    first message that the dispatcher knows of, or None. ``head_dequeue_at`` is the ``dequeue_at`` of that message; it
    may be negative (see :class:`Message`). ``backlog`` leaves out messages whose signals are not heard yet. ``problem``
    tells why a dequeue has paused the channel.
    """

    channel = related("fq_channel", own="channel_id", other="id", foreign_key_here=True)


class ContentMixin(FairqueueMixin):
    """What messages and dead letters share: the channel, and the payload."""

    channel = related("fq_channel", own="channel_id", other="id", foreign_key_here=True)
    if TYPE_CHECKING:
        content: Mapped[bytes]

    @hybrid_property
    def payload(self) -> Any:
        """The content parsed as JSON; in a query, the JSONB expression ``convert_from(content, 'UTF8')::jsonb``.

        Use it only if the codec writes JSON: other content raises PayloadError here, and makes a query fail.
        """
        return _JSON.decode(self.content)

    @payload.inplace.expression
    @classmethod
    def _payload_expression(cls) -> ColumnElement[Any]:
        return cast(func.convert_from(cls.content, literal_column("'UTF8'")), JSONB)


@mapping("use queue.enqueue(session, ...) to add one, queue.cancel(session, message_id) to withdraw one")
class MessageMixin(ContentMixin, columns.fq_message):
    """A message, from enqueue to completion.

    ``dequeue_at`` orders the messages of the channel. Usually it is the time when the message is due, in microseconds
    since 1970. For a due message with a ``priority`` it is the negative of the priority. If priorities age in the
    channel, it is instead a time before the due time. The greatest bigint means that the message waits for others of
    its ``ordering_key``. ``returned_at`` is when the message last went back to the channel, was brought forward or was
    promoted. ``delivered_at`` is stored if the queue records its history. ``key_outlives`` is true if the period of the
    key begins when the message ends. ``cancelled`` is true if the message was cancelled while leased. If the queue has
    ``fair_by="seconds"``, ``charged`` is what the last delivery charged the channel, in milliseconds; otherwise None.

    Example:
        >>> message_id = queue.enqueue(engine, channel="customer-7", payload={"file": "a.pdf"}).message_id
        >>> with Session(engine) as session:
        ...     message = session.get(Message, message_id)
        ...     print(message.channel.name, message.kind, message.attempts)
        customer-7 default 0
    """

    lease = related("fq_lease", own="lease_id", other="id", foreign_key_here=True)

    @hybrid_property
    def due_at(self) -> datetime | None:
        """The instant when the message is due, with two exceptions.

        For a message that waits for others of its ordering key, this is None. For a due message with a priority, this
        is None too, or an instant before the due time if priorities age in the channel.
        """
        return instant(self.dequeue_at) if 0 <= self.dequeue_at < _WAITS_FOR_OTHERS else None

    @due_at.inplace.expression
    @classmethod
    def _due_at_expression(cls) -> ColumnElement[datetime | None]:
        is_time = (cls.dequeue_at >= 0) & (cls.dequeue_at < _WAITS_FOR_OTHERS)
        return type_coerce(case((is_time, cls.dequeue_at)), Instant)


@mapping("use queue.bury(session, delivery, reason=...) to make one")
class DeadLetterMixin(ContentMixin, columns.fq_dead_letter):
    """A message that is not tried again unless somebody redrives it. ``reason`` says why.

    ``holds`` tells whether messages with the same ordering key wait until the dead letter is redriven or purged.

    Example:
        >>> message_id = queue.enqueue(engine, channel="customer-7", payload={"number": "555"}).message_id
        >>> queue.bury(engine, queue.dequeue(engine), reason="there is no such number")
        >>> with Session(engine) as session:
        ...     letter = session.get(DeadLetter, message_id)
        ...     print(letter.channel.name, letter.reason, letter.payload)
        customer-7 there is no such number {'number': '555'}
    """


@mapping("queue.dequeue(engine, ...) makes leases, queue.extend(engine, delivery) extends them")
class LeaseMixin(columns.fq_lease):
    """A consumer's lease of messages, until ``expires_at``; ``epoch`` is the server's epoch when it was made.

    ``concurrency`` and ``version`` (of the library) are None if the consumer is no worker, or has just started.

    Example:
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
        >>> [delivery] = queue.dequeue(engine)
        >>> with Session(engine) as session:
        ...     print(session.get(Lease, delivery.lease.id).consumer == delivery.lease.consumer)
        True
    """

    messages = related_rows("fq_message", own="id", other="lease_id")


@mapping("queue.enqueue(session, ..., key=..., unique_for=...) writes it")
class KeyPeriodMixin(columns.fq_key_period):
    """A key that stays taken until ``expires_at``, even after its message has ended; workers delete expired rows.

    ``expires_at`` is None until the message ends, if the period is counted from that end.

    Example:
        >>> queue.enqueue(engine, channel="customer-7", payload=1, key="report", unique_for=timedelta(hours=1)).outcome
        'created'
        >>> with Session(engine) as session:
        ...     print(session.scalars(select(KeyPeriod.key).where(KeyPeriod.queue == queue.name)).all())
        ['report']
    """


@mapping("use queue.plans.configure(session, name, ...)")
class PlanMixin(columns.fq_plan):
    """A plan of a queue: a policy with a name, and how far its last change has spread.

    ``policy`` has the column names of :class:`ChannelStateMixin`, and durations in microseconds. While the last change
    spreads, the channels with ids up to ``spread_after`` have been visited. Afterwards ``spread_after`` is None.

    Example:
        >>> queue.plans.configure(engine, "gold", weight=3)
        >>> with Session(engine) as session:
        ...     print(session.get(Plan, (queue.name, "gold")).policy["weight"])
        3
    """


@mapping("use queue.configure_channel(session, channel, plan=...)")
class ChannelPlanMixin(columns.fq_channel_plan):
    """The plan that a channel follows, if any, and the columns of its policy that are set for this channel alone.

    ``overridden`` lists these columns. A channel gets its row when it first follows a plan or is configured, and keeps
    the row until the channel is forgotten. ``revision`` is the plan's revision when the channel got its policy.

    See Also:
        :class:`Plan`
    """


@mapping("use queue.limits.configure(session, name, ...)")
class LimitMixin(columns.fq_limit):
    """A limit that several queues share: concurrency, cost and rate.

    See Also:
        :class:`Plan`
    """


@mapping("queue.group makes groups, and workers finish them")
class GroupMixin(columns.fq_group):
    """A group of messages, with the counts of its members as far as workers have folded the notes about them.

    ``queue.groups.status`` also counts newer notes. ``message_id`` is the follow-up, enqueued at ``finished_at``.

    See Also:
        :class:`Message`
    """


@mapping("use queue.configure(session, result_retention=...) and queue.result(session, ...)")
class ResultMixin(columns.fq_result):
    """The result of a message that has ended, kept until ``expires_at``.

    ``outcome`` is "completed", "cancelled" or "unkept". If it is "unkept", the message is completed, and ``problem``
    says why there is no result. ``content`` is the encoded result; None if the handler returned None or there is none.

    Example:
        >>> queue.configure(engine, result_retention=timedelta(hours=1))
        >>> message_id = queue.enqueue(engine, channel="customer-7", payload=20).message_id
        >>> queue.complete(engine, queue.dequeue(engine), result=21)
        >>> with Session(engine) as session:
        ...     print(session.get(Result, message_id).content)
        b'21'
    """


@mapping("queue.schedules.set, remove and pause change schedules")
class ScheduleMixin(columns.fq_schedule):
    """A schedule of a channel: what it enqueues, and when.

    All slots up to ``done_until`` have been run or skipped. ``next_at`` is the slot after ``done_until``. It is
    None as long as no worker has computed the slot, and while the schedule is paused. It is also None if no slot
    follows within 50 years. ``due_at`` is when workers look at the schedule again: as a rule at ``next_at``, but also
    after a change, after a failure, and at least once a day. ``due_at`` is None while the schedule is paused.

    Example:
        >>> queue.schedules.set(engine, "nightly", channel="customer-7", cron="0 3 * * *")
        >>> with Session(engine) as session:
        ...     print(session.scalars(select(Schedule.cron).where(Schedule.queue == queue.name)).all())
        ['0 3 * * *']
    """


@mapping("attempts are recorded after queue.configure(session, history=True)", key=("id",))
class HistoryMixin(columns.fq_history):
    """An ended attempt at a message, recorded after ``queue.configure(session, history=True)``.

    The table is partitioned by the day of ``finished_at``: a query that limits ``finished_at`` reads only the days in
    question, and housekeeping drops whole days. Rows may be committed in another order than their ids say. So to follow
    the history, read only rows with a ``recorded_xid`` below ``pg_snapshot_xmin``, and go on after the last
    (recorded_xid, id). ``outcome`` is "completed", "retried", "released", "buried", "expired" (the lease ended) or
    "cancelled". ``cost`` is the actual cost if the consumer gave one, or else the cost charged at the delivery.

    Example:
        >>> queue.configure(engine, history=True)
        >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1).message_id
        >>> queue.complete(engine, queue.dequeue(engine))
        >>> with Session(engine) as session:
        ...     print(session.scalars(select(History.outcome).where(History.message_id == message_id)).all())
        ['completed']
    """

    @hybrid_property
    def wait(self) -> timedelta:
        """How long the message was ready before the attempt began."""
        return self.started_at - self.ready_at

    @wait.inplace.expression
    @classmethod
    def _wait_expression(cls) -> ColumnElement[timedelta]:
        return _between(cls.ready_at, cls.started_at)

    @hybrid_property
    def duration(self) -> timedelta:
        """How long the attempt took."""
        return self.finished_at - self.started_at

    @duration.inplace.expression
    @classmethod
    def _duration_expression(cls) -> ColumnElement[timedelta]:
        return _between(cls.started_at, cls.finished_at)


@mapping("the housekeeping of the queues' history writes it")
class PrunedHistoryMixin(columns.fq_pruned_history):
    """A removal of a day's attempts from the history by housekeeping.

    ``(recorded_xid, history_id)`` is the last removed attempt: a reader that had come this far has missed nothing.

    See Also:
        :class:`History`
    """


def _between(earlier: Any, later: Any) -> ColumnElement[timedelta]:
    return type_coerce(type_coerce(later, BigInteger) - type_coerce(earlier, BigInteger), Duration)


@mapping("the first queue.dequeue(engine, ...) after a start of the server makes it")
class EpochMixin(columns.fq_epoch):
    """The epoch: a random number, which the first dequeue after a start, crash or failover of the server makes anew."""


@mapping("the dispatcher writes it; the limit is set by queue.configure(session, max_concurrency=...)", key=("queue",))
class QueueStateMixin(columns.fq_queue_state):
    """The dispatch row of a queue: what its dispatcher knows, and the counts of the queue's own limit.

    The header of ``fq_queue_state.sql`` in the package defines the columns.
    """

    queue_config = related("fq_queue", own="queue", other="name", foreign_key_here=True)


@mapping(
    "queue.enqueue(session, ..., priority=..., at=...) and a retry with a delay make it",
    key=("queue", "due_at", "message_id"),
)
class PromotionMixin(columns.fq_promotion):
    """A scheduled message that has a priority. The row stays until the due time, even if the message ends earlier."""


@mapping("the verbs of a queue insert signals, and the dispatcher deletes them")
class SignalMixin(columns.fq_signal):
    """A signal that the transaction ``xid`` left for the dispatcher, which hears and deletes it."""

    channel = related("fq_channel", own="channel_id", other="id", foreign_key_here=True)


@mapping("the dispatcher writes it; use queue.limits.configure(session, name, ...)", key=("limit_name", "queue"))
class LimitShareMixin(columns.fq_limit_share):
    """What a queue has used of a shared limit so far. By ``tag`` dequeues share the limit fairly among its queues.

    One more row, with ``queue`` '', is for the limit as a whole. The header of ``fq_limit_share.sql`` in the package
    defines the columns.
    """


@mapping("queue.group makes groups, and workers finish them")
class GroupFollowupMixin(columns.fq_group_followup):
    """A follow-up of an open group. If ``on_failure`` is true, it was given as *on_failure*, otherwise as *then*."""


@mapping("queue.group makes groups, and workers finish them")
class GroupNoteMixin(columns.fq_group_note):
    """A note about a group, until a worker folds it. ``id`` is 0 if members were added, else a member that ended."""


@mapping("queue.result(engine, ..., timeout=...) writes it")
class ResultWaitMixin(columns.fq_result_wait):
    """A call of ``queue.result`` that waits for the result of a message, until ``waiting_until``."""


@mapping("workers of the queue write it when they run a slot")
class ScheduleSlotMixin(columns.fq_schedule_slot):
    """A slot of a schedule that was run, and its message. Workers delete old ones.

    See Also:
        :class:`Schedule`
    """


@mapping("use op.grant_fairqueue(...) and op.revoke_fairqueue(...) in a migration")
class GrantMixin(columns.fq_grant):
    """A kind of work that a role was granted. The rights themselves are privileges on functions.

    ``role`` is as PostgreSQL prints it, quoted if needed. ``queues`` and ``channels`` are None if the grant is for all.

    Example:
        >>> with Session(engine) as session:
        ...     print(session.execute(select(Grant.role, Grant.kind, Grant.queues)).all())
        []
    """


@mapping("loads of sqlalchemy_fairqueue.spark write it")
class LoadMixin(columns.fq_load):
    """A committed bulk load. If its Spark job runs again under the same ``job_id``, no message is enqueued again.

    A stream has one row, for its last committed micro-batch, ``batch_id``; ``source`` is the id of the streaming query.

    See Also:
        :class:`History`
    """


@mapping("use queue.admin.stop_worker(session, ...)")
class StopRequestMixin(columns.fq_stop_request):
    """A request by ``requested_by`` to the workers named ``consumer`` to stop. Workers delete it after an hour.

    See Also:
        :class:`Lease`
    """


@mapping("use queue.admin.record_audit(session, ...)")
class AuditMixin(columns.fq_audit):
    """An action of ``who`` in a queue, kept for 90 days. If ``queue`` is None, the action was on the installation.

    See Also:
        :class:`History`
    """


@mapping("workers of the queue write it each minute")
class SampleMixin(columns.fq_sample):
    """How a queue, or one of its busiest channels, stood in a minute; ``channel`` is '' in the row of the queue.

    See Also:
        :class:`History`
    """


@mapping("workers of the queue write it each hour")
class SizeMixin(columns.fq_size):
    """The size in bytes of one of the installation's ten largest tables at a full hour, for ``fairqueue doctor``."""


@mapping("workers of the queue write it in their housekeeping")
class RoundMixin(columns.fq_round):
    """A duty of workers: 'fold', 'forget' or 'history'. The row's lock lets one transaction at a time do the duty."""
