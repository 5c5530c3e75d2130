"""Mapped classes for queries and relationships over fairqueue's tables.

They map what ``op.create_fairqueue`` installs, names included, so that Alembic finds nothing to change. They are for
reading: a flush that would write a row is refused, and the error names the verb to use instead. There are three ways
to use them: the classes here, on a MetaData of their own (:data:`metadata`); :func:`make_models` for the MetaData of
your Base; and the mixins, for classes of your own.

The classes here are mapped when a program asks for the first of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.models.base import FairqueueMixin
from sqlalchemy_fairqueue.models.channels import ChannelMixin, ChannelStateMixin, RoundMixin
from sqlalchemy_fairqueue.models.factory import Models, make_models
from sqlalchemy_fairqueue.models.grants import GrantMixin, declare_grants
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
from sqlalchemy_fairqueue.models.read_only import ReadOnlyModel
from sqlalchemy_fairqueue.models.results import ResultMixin, ResultWaitMixin
from sqlalchemy_fairqueue.models.schedules import ScheduleMixin, ScheduleSlotMixin
from sqlalchemy_fairqueue.models.stop_requests import StopRequestMixin
from sqlalchemy_fairqueue.models.types import Duration, Instant, RoleName, Xid8, interval, timestamp
from sqlalchemy_fairqueue.sql import RoleGrant

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.models.mapped import (
        Channel,
        ChannelPlan,
        ChannelState,
        DeadLetter,
        Epoch,
        Gate,
        Grant,
        Group,
        GroupFollowup,
        GroupNote,
        History,
        KeyPeriod,
        Lease,
        Limit,
        LimitShare,
        Load,
        Message,
        Plan,
        Promotion,
        PrunedHistory,
        QueueConfig,
        QueueState,
        Result,
        ResultWait,
        Round,
        Schedule,
        ScheduleSlot,
        Signal,
        StopRequest,
        metadata,
    )

__all__ = [
    "Channel",
    "ChannelMixin",
    "ChannelPlan",
    "ChannelPlanMixin",
    "ChannelState",
    "ChannelStateMixin",
    "DeadLetter",
    "DeadLetterMixin",
    "Duration",
    "Epoch",
    "EpochMixin",
    "FairqueueMixin",
    "Gate",
    "GateMixin",
    "Grant",
    "GrantMixin",
    "Group",
    "GroupFollowup",
    "GroupFollowupMixin",
    "GroupMixin",
    "GroupNote",
    "GroupNoteMixin",
    "History",
    "HistoryMixin",
    "Instant",
    "KeyPeriod",
    "KeyPeriodMixin",
    "Lease",
    "LeaseMixin",
    "Limit",
    "LimitMixin",
    "LimitShare",
    "LimitShareMixin",
    "Load",
    "LoadMixin",
    "Message",
    "MessageMixin",
    "Models",
    "Plan",
    "PlanMixin",
    "Promotion",
    "PromotionMixin",
    "PrunedHistory",
    "PrunedHistoryMixin",
    "QueueConfig",
    "QueueConfigMixin",
    "QueueState",
    "QueueStateMixin",
    "ReadOnlyModel",
    "Result",
    "ResultMixin",
    "ResultWait",
    "ResultWaitMixin",
    "RoleGrant",
    "RoleName",
    "Round",
    "RoundMixin",
    "Schedule",
    "ScheduleMixin",
    "ScheduleSlot",
    "ScheduleSlotMixin",
    "Signal",
    "SignalMixin",
    "StopRequest",
    "StopRequestMixin",
    "Xid8",
    "declare_grants",
    "interval",
    "make_models",
    "metadata",
    "timestamp",
]

_MAPPED = frozenset(name for name in __all__ if f"{name}Mixin" in globals()) | {"metadata"}


def __getattr__(name: str) -> Any:
    if name not in _MAPPED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("sqlalchemy_fairqueue.models.mapped"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MAPPED})
