"""What queues and workers answer with: stats, details, receipts and reasons, for annotations and tests."""

from sqlalchemy_fairqueue.values.deliveries import Deliveries
from sqlalchemy_fairqueue.values.groups import GroupCancellation, GroupCounts, GroupStatus
from sqlalchemy_fairqueue.values.messages import CancelReceipt, PurgeReceipt
from sqlalchemy_fairqueue.values.reports import (
    AttemptDetails,
    ChannelDemand,
    ChannelStats,
    ConsumerInfo,
    Contention,
    DeadLetterInfo,
    MessageDetails,
    MessagePage,
    PlanInfo,
    QueueStats,
    SharedLimit,
)
from sqlalchemy_fairqueue.values.schedules import ScheduleInfo
from sqlalchemy_fairqueue.values.waits import LeftoverReason, Leftovers, QueueTaker, Reason, Taker, Wait
from sqlalchemy_fairqueue.worker import Health, WorkerStats

__all__ = [
    "AttemptDetails",
    "CancelReceipt",
    "ChannelDemand",
    "ChannelStats",
    "ConsumerInfo",
    "Contention",
    "DeadLetterInfo",
    "Deliveries",
    "GroupCancellation",
    "GroupCounts",
    "GroupStatus",
    "Health",
    "LeftoverReason",
    "Leftovers",
    "MessageDetails",
    "MessagePage",
    "PlanInfo",
    "PurgeReceipt",
    "QueueStats",
    "QueueTaker",
    "Reason",
    "ScheduleInfo",
    "SharedLimit",
    "Taker",
    "Wait",
    "WorkerStats",
]
