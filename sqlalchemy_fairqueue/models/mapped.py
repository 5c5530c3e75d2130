"""The mapped classes of the connection's default schema, on a MetaData of their own.

Apart from the mixins, for mapping them takes a fifth of the time in which the library is imported: it is done when a
program asks ``sqlalchemy_fairqueue`` or ``sqlalchemy_fairqueue.models`` for the first of them.
"""

from __future__ import annotations

from sqlalchemy.orm import DeclarativeBase

from sqlalchemy_fairqueue.models.channels import ChannelMixin, ChannelStateMixin, RoundMixin
from sqlalchemy_fairqueue.models.grants import GrantMixin
from sqlalchemy_fairqueue.models.groups import GroupFollowupMixin, GroupMixin, GroupNoteMixin
from sqlalchemy_fairqueue.models.history import HistoryMixin, PrunedHistoryMixin
from sqlalchemy_fairqueue.models.keys import KeyPeriodMixin
from sqlalchemy_fairqueue.models.limits import LimitMixin, LimitShareMixin
from sqlalchemy_fairqueue.models.loads import LoadMixin
from sqlalchemy_fairqueue.models.messages import (
    DeadLetterMixin,
    LeaseMixin,
    MessageMixin,
    PromotionMixin,
    SignalMixin,
)
from sqlalchemy_fairqueue.models.plans import ChannelPlanMixin, PlanMixin
from sqlalchemy_fairqueue.models.queues import EpochMixin, GateMixin, QueueConfigMixin, QueueStateMixin
from sqlalchemy_fairqueue.models.results import ResultMixin, ResultWaitMixin
from sqlalchemy_fairqueue.models.schedules import ScheduleMixin, ScheduleSlotMixin
from sqlalchemy_fairqueue.models.stop_requests import StopRequestMixin


class _Base(DeclarativeBase):
    pass


class QueueConfig(QueueConfigMixin, _Base):
    """A configured queue, in the connection's default schema.

    Example:
        >>> queue.configure(engine, max_concurrency=20)
        >>> with Session(engine) as session:
        ...     print(session.get(QueueConfig, queue.name).max_concurrency)
        20
    """


class Gate(GateMixin, _Base):
    """A part of the gate of a queue, in the connection's default schema."""


class Epoch(EpochMixin, _Base):
    """The history that the server writes, in the connection's default schema."""


class QueueState(QueueStateMixin, _Base):
    """What the dispatcher of a queue knows, in the connection's default schema."""


class Channel(ChannelMixin, _Base):
    """A channel, in the connection's default schema.

    Example:
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
        >>> with Session(engine) as session:
        ...     print(session.scalars(select(Channel.name).where(Channel.queue == queue.name)).all())
        ['customer-7']
    """


class ChannelState(ChannelStateMixin, _Base):
    """The dispatcher's view of a channel, in the connection's default schema."""


class ChannelPlan(ChannelPlanMixin, _Base):
    """The plan that a channel follows, in the connection's default schema.

    Example:
        >>> queue.plans.configure(engine, "gold", weight=3)
        >>> queue.configure_channel(engine, "customer-7", plan="gold")
        >>> with Session(engine) as session:
        ...     print(session.scalars(select(ChannelPlan.plan).where(ChannelPlan.queue == queue.name)).all())
        ['gold']
    """


class Plan(PlanMixin, _Base):
    """A plan, in the connection's default schema.

    Example:
        >>> queue.plans.configure(engine, "gold", weight=3)
        >>> with Session(engine) as session:
        ...     print(session.get(Plan, (queue.name, "gold")).policy["weight"])
        3
    """


class Message(MessageMixin, _Base):
    """A message, in the connection's default schema.

    Example:
        >>> message_id = queue.enqueue(engine, channel="customer-7", payload={"file": "a.pdf"}).message_id
        >>> with Session(engine) as session:
        ...     message = session.get(Message, message_id)
        ...     print(message.channel.name, message.kind, message.attempts)
        customer-7 default 0
    """


class DeadLetter(DeadLetterMixin, _Base):
    """A dead letter, in the connection's default schema.

    Example:
        >>> message_id = queue.enqueue(engine, channel="customer-7", payload={"number": "555"}).message_id
        >>> queue.bury(engine, queue.dequeue(engine), reason="there is no such number")
        >>> with Session(engine) as session:
        ...     letter = session.get(DeadLetter, message_id)
        ...     print(letter.channel.name, letter.reason, letter.payload)
        customer-7 there is no such number {'number': '555'}
    """


class Promotion(PromotionMixin, _Base):
    """A message with a priority that is due later, in the connection's default schema."""


class Signal(SignalMixin, _Base):
    """A signal, in the connection's default schema."""


class Lease(LeaseMixin, _Base):
    """A lease, in the connection's default schema.

    Example:
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
        >>> [delivery] = queue.dequeue(engine)
        >>> with Session(engine) as session:
        ...     print(session.get(Lease, delivery.lease.id).consumer == delivery.lease.consumer)
        True
    """


class History(HistoryMixin, _Base):
    """An attempt that has ended, in the connection's default schema.

    Example:
        >>> queue.configure(engine, history=True)
        >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1).message_id
        >>> queue.complete(engine, queue.dequeue(engine))
        >>> with Session(engine) as session:
        ...     print(session.scalars(select(History.outcome).where(History.message_id == message_id)).all())
        ['completed']
    """


class Grant(GrantMixin, _Base):
    """A kind of work that a role was granted, in the connection's default schema.

    Example:
        >>> with Session(engine) as session:
        ...     print(session.execute(select(Grant.role, Grant.kind, Grant.queues)).all())
        []
    """


class Group(GroupMixin, _Base):
    """A group of messages, in the connection's default schema.

    Example:
        >>> with Session(engine) as session, session.begin():
        ...     with queue.group(session) as group:
        ...         receipts = group.enqueue_many([Enqueue(channel="customer-7", payload=1)])
        >>> with Session(engine) as session:
        ...     print(session.get(Group, group.id).queue == queue.name)
        True
    """


class GroupFollowup(GroupFollowupMixin, _Base):
    """A message that may follow a group, in the connection's default schema."""


class GroupNote(GroupNoteMixin, _Base):
    """A note about members of a group, in the connection's default schema."""


class KeyPeriod(KeyPeriodMixin, _Base):
    """A key that stays taken for a period, in the connection's default schema.

    Example:
        >>> hour = timedelta(hours=1)
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1, key="report", unique_for=hour)
        >>> with Session(engine) as session:
        ...     print(session.scalars(select(KeyPeriod.key).where(KeyPeriod.queue == queue.name)).all())
        ['report']
    """


class Result(ResultMixin, _Base):
    """The result of a message that has ended, in the connection's default schema.

    Example:
        >>> queue.configure(engine, result_retention=timedelta(hours=1))
        >>> message_id = queue.enqueue(engine, channel="customer-7", payload=20).message_id
        >>> queue.complete(engine, queue.dequeue(engine), result=21)
        >>> with Session(engine) as session:
        ...     print(session.get(Result, message_id).content)
        b'21'
    """


class ResultWait(ResultWaitMixin, _Base):
    """A process that waits for the result of a message, in the connection's default schema."""


class StopRequest(StopRequestMixin, _Base):
    """A request to a worker to stop, in the connection's default schema.

    Example:
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
        >>> [delivery] = queue.dequeue(engine)
        >>> found = queue.admin.stop_worker(engine, delivery.lease.consumer)
        >>> with Session(engine) as session:
        ...     print(len(session.scalars(select(StopRequest).where(StopRequest.queue == queue.name)).all()))
        1
    """


class Limit(LimitMixin, _Base):
    """See :class:`LimitMixin`.

    Example:
        >>> queue.limits.configure(engine, "mail", max_concurrency=3)
        >>> with Session(engine) as session:
        ...     print(session.get(Limit, "mail").max_concurrency)
        3
    """


class LimitShare(LimitShareMixin, _Base):
    """See :class:`LimitShareMixin`."""


class Load(LoadMixin, _Base):
    """A bulk load that was committed, in the connection's default schema.

    Example:
        >>> with Session(engine) as session:
        ...     print(session.scalars(select(Load.created).where(Load.queue == queue.name)).all())
        []
    """


class PrunedHistory(PrunedHistoryMixin, _Base):
    """A record of pruned history, in the connection's default schema.

    Example:
        >>> with Session(engine) as session:
        ...     print(session.scalars(select(PrunedHistory.finished_until)).all())
        []
    """


class Round(RoundMixin, _Base):
    """A duty of the housekeeping, in the connection's default schema."""


class Schedule(ScheduleMixin, _Base):
    """A schedule, in the connection's default schema.

    Example:
        >>> queue.schedules.set(engine, "nightly", channel="customer-7", cron="0 3 * * *")
        >>> with Session(engine) as session:
        ...     print(session.scalars(select(Schedule.cron).where(Schedule.queue == queue.name)).all())
        ['0 3 * * *']
    """


class ScheduleSlot(ScheduleSlotMixin, _Base):
    """A slot of a schedule that was run, in the connection's default schema.

    Example:
        >>> with Session(engine) as session:
        ...     print(session.scalars(select(ScheduleSlot.ran_at).where(ScheduleSlot.message_id == 17)).all())
        []
    """


metadata = _Base.metadata
