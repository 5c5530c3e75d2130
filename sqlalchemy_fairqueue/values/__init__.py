"""Values that calls take and give: policies, messages to enqueue, receipts, deliveries, stats, dead letters.

They know nothing of sessions or SQL.
"""

from sqlalchemy_fairqueue.values.checks import (
    HEADERS_BYTES,
    NAME_BYTES,
    SCHEMA_BYTES,
    check_choice,
    check_count,
    check_duration,
    check_instant,
    check_name,
    check_text,
)
from sqlalchemy_fairqueue.values.contention import ChannelDemand, ConsumerInfo, Contention
from sqlalchemy_fairqueue.values.deliveries import (
    Batch,
    Delivery,
    Lease,
    Once,
)
from sqlalchemy_fairqueue.values.details import DeadLetterGroup, MessageDetails, MessagePage, MessageState, MoveOutcome
from sqlalchemy_fairqueue.values.messages import (
    CancelOutcome,
    CancelReceipt,
    Enqueue,
    EnqueueOptions,
    EnqueueOutcome,
    EnqueueWords,
    OnDuplicate,
    PurgeReceipt,
    Receipt,
)
from sqlalchemy_fairqueue.values.outcomes import Bury, Outcome, Release, Retry, RetryPolicy
from sqlalchemy_fairqueue.values.policies import (
    UNSET,
    ChannelPolicy,
    OnFull,
    PolicyChanges,
    PolicyFields,
    QueueLimits,
    Unset,
    check_field_names,
    policy_changes,
    policy_fields,
)
from sqlalchemy_fairqueue.values.rates import Rate
from sqlalchemy_fairqueue.values.reports import (
    ChannelStats,
    DeadLetterInfo,
    QuarantinedInfo,
    QueueStats,
    SharedLimit,
)
from sqlalchemy_fairqueue.values.schedules import (
    Recurrence,
    RecurrenceWords,
    ScheduleInfo,
    ScheduleState,
    schedule_state,
    timing_of,
)
from sqlalchemy_fairqueue.values.slots import CatchUp, Plan, Timing, planned

__all__ = [
    "HEADERS_BYTES",
    "NAME_BYTES",
    "SCHEMA_BYTES",
    "UNSET",
    "Batch",
    "Bury",
    "CancelOutcome",
    "CancelReceipt",
    "CatchUp",
    "ChannelDemand",
    "ChannelPolicy",
    "ChannelStats",
    "ConsumerInfo",
    "Contention",
    "DeadLetterGroup",
    "DeadLetterInfo",
    "Delivery",
    "Enqueue",
    "EnqueueOptions",
    "EnqueueOutcome",
    "EnqueueWords",
    "Lease",
    "MessageDetails",
    "MessagePage",
    "MessageState",
    "MoveOutcome",
    "OnDuplicate",
    "OnFull",
    "Once",
    "Outcome",
    "Plan",
    "PolicyChanges",
    "PolicyFields",
    "PurgeReceipt",
    "QuarantinedInfo",
    "QueueLimits",
    "QueueStats",
    "Rate",
    "Receipt",
    "Recurrence",
    "RecurrenceWords",
    "Release",
    "Retry",
    "RetryPolicy",
    "ScheduleInfo",
    "ScheduleState",
    "SharedLimit",
    "Timing",
    "Unset",
    "check_choice",
    "check_count",
    "check_duration",
    "check_field_names",
    "check_instant",
    "check_name",
    "check_text",
    "planned",
    "policy_changes",
    "policy_fields",
    "schedule_state",
    "timing_of",
]
