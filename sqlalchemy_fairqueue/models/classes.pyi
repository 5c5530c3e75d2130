# The classes of an installation for type checkers. `python -m tests.orm.stubs` writes this file.

# ruff: noqa: F403, F405 - __all__ names what the star imports
from dataclasses import dataclass
from typing import Any

from sqlalchemy_fairqueue.models.applications import *

MIXINS: dict[str, type[Any]]

Audit = AuditMixin
Channel = ChannelMixin
ChannelPlan = ChannelPlanMixin
ChannelState = ChannelStateMixin
DeadLetter = DeadLetterMixin
Epoch = EpochMixin
Grant = GrantMixin
Group = GroupMixin
GroupFollowup = GroupFollowupMixin
GroupNote = GroupNoteMixin
History = HistoryMixin
KeyPeriod = KeyPeriodMixin
Lease = LeaseMixin
Limit = LimitMixin
LimitShare = LimitShareMixin
Load = LoadMixin
Message = MessageMixin
Plan = PlanMixin
Promotion = PromotionMixin
PrunedHistory = PrunedHistoryMixin
QueueConfig = QueueConfigMixin
QueueState = QueueStateMixin
Result = ResultMixin
ResultWait = ResultWaitMixin
Round = RoundMixin
Sample = SampleMixin
Schedule = ScheduleMixin
ScheduleSlot = ScheduleSlotMixin
Signal = SignalMixin
Size = SizeMixin
StopRequest = StopRequestMixin

@dataclass(frozen=True)
class Models:
    Audit: type[AuditMixin]
    Channel: type[ChannelMixin]
    ChannelPlan: type[ChannelPlanMixin]
    ChannelState: type[ChannelStateMixin]
    DeadLetter: type[DeadLetterMixin]
    Epoch: type[EpochMixin]
    Grant: type[GrantMixin]
    Group: type[GroupMixin]
    GroupFollowup: type[GroupFollowupMixin]
    GroupNote: type[GroupNoteMixin]
    History: type[HistoryMixin]
    KeyPeriod: type[KeyPeriodMixin]
    Lease: type[LeaseMixin]
    Limit: type[LimitMixin]
    LimitShare: type[LimitShareMixin]
    Load: type[LoadMixin]
    Message: type[MessageMixin]
    Plan: type[PlanMixin]
    Promotion: type[PromotionMixin]
    PrunedHistory: type[PrunedHistoryMixin]
    QueueConfig: type[QueueConfigMixin]
    QueueState: type[QueueStateMixin]
    Result: type[ResultMixin]
    ResultWait: type[ResultWaitMixin]
    Round: type[RoundMixin]
    Sample: type[SampleMixin]
    Schedule: type[ScheduleMixin]
    ScheduleSlot: type[ScheduleSlotMixin]
    Signal: type[SignalMixin]
    Size: type[SizeMixin]
    StopRequest: type[StopRequestMixin]

__all__ = [
    "Audit",
    "AuditMixin",
    "Channel",
    "ChannelMixin",
    "ChannelPlan",
    "ChannelPlanMixin",
    "ChannelState",
    "ChannelStateMixin",
    "DeadLetter",
    "DeadLetterMixin",
    "Epoch",
    "EpochMixin",
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
    "Result",
    "ResultMixin",
    "ResultWait",
    "ResultWaitMixin",
    "Round",
    "RoundMixin",
    "Sample",
    "SampleMixin",
    "Schedule",
    "ScheduleMixin",
    "ScheduleSlot",
    "ScheduleSlotMixin",
    "Signal",
    "SignalMixin",
    "Size",
    "SizeMixin",
    "StopRequest",
    "StopRequestMixin",
]
