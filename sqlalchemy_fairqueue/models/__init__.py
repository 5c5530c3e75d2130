"""Mapped classes for queries and relationships over fairqueue's tables, as ``op.create_fairqueue`` installs them.

They are for reading: a flush that would write a row is refused, and the error names the verb to use instead. The
classes here are mapped on first access, to a MetaData of their own (:data:`metadata`). To map the tables in the
MetaData of your Base, call :func:`make_models`; to write the classes yourself, use the mixins.
"""

# ruff: noqa: F403, F405 - __all__ names each mixin
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.models.applications import *
from sqlalchemy_fairqueue.models.factory import DefaultBase, Models, declare_grants, default_models, make_models
from sqlalchemy_fairqueue.models.tables import FairqueueMixin, ReadOnlyModel
from sqlalchemy_fairqueue.models.types import Duration, Instant, RoleName, Xid8, interval, timestamp
from sqlalchemy_fairqueue.sql.grants import RoleGrant

if TYPE_CHECKING:
    Audit = AuditMixin
    Channel = ChannelMixin
    ChannelPlan = ChannelPlanMixin
    ChannelState = ChannelStateMixin
    DeadLetter = DeadLetterMixin
    Group = GroupMixin
    History = HistoryMixin
    KeyPeriod = KeyPeriodMixin
    Lease = LeaseMixin
    Limit = LimitMixin
    Message = MessageMixin
    Plan = PlanMixin
    PrunedHistory = PrunedHistoryMixin
    QueueConfig = QueueConfigMixin
    Result = ResultMixin
    Schedule = ScheduleMixin

metadata = DefaultBase.metadata

__all__ = [
    "Audit", "AuditMixin", "Channel", "ChannelMixin", "ChannelPlan", "ChannelPlanMixin", "ChannelState",
    "ChannelStateMixin", "DeadLetter",
    "DeadLetterMixin", "Duration", "Epoch", "EpochMixin", "FairqueueMixin", "Grant",
    "GrantMixin", "Group", "GroupFollowup", "GroupFollowupMixin", "GroupMixin", "GroupNote", "GroupNoteMixin",
    "History", "HistoryMixin", "Instant", "KeyPeriod", "KeyPeriodMixin", "Lease", "LeaseMixin", "Limit", "LimitMixin",
    "LimitShare", "LimitShareMixin", "Load", "LoadMixin", "Message", "MessageMixin", "Models", "Plan", "PlanMixin",
    "Promotion", "PromotionMixin", "PrunedHistory", "PrunedHistoryMixin", "QueueConfig", "QueueConfigMixin",
    "QueueState", "QueueStateMixin", "ReadOnlyModel", "Result", "ResultMixin", "ResultWait", "ResultWaitMixin",
    "RoleGrant", "RoleName", "Round", "RoundMixin", "Sample", "SampleMixin", "Schedule", "ScheduleMixin",
    "ScheduleSlot", "ScheduleSlotMixin", "Signal", "SignalMixin", "Size", "SizeMixin", "StopRequest",
    "StopRequestMixin", "Xid8",
    "declare_grants", "interval", "make_models", "metadata", "timestamp",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in Models.__dataclass_fields__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(default_models(), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *Models.__dataclass_fields__})
