"""Calls of the SQL functions: a Python function for what a caller asks, which calls one of SQL by its name.

Each takes a Connection, the queue or schema that it goes to, and Python values, and returns Python values; or it takes
no Connection, and returns the call that is to be sent. Where there is nothing to decide, callers name the function of
SQL themselves, by ``Target.call``. This package alone knows drivers, the shapes of calls, and which of our errors an
SQLSTATE stands for. Nothing here commits but ``commit_with``: the caller does.
"""

from sqlalchemy_fairqueue.database.calls import Call, CommitRefused, Link, Target
from sqlalchemy_fairqueue.database.configuration import (
    limits,
    limits_by_queue,
    pause,
    plan_channels,
    plans,
    queue_settings,
    resume,
)
from sqlalchemy_fairqueue.database.dead_letters import (
    dead_letter_groups,
    dead_letters,
)
from sqlalchemy_fairqueue.database.deliveries import (
    LONGEST_WAIT,
    DeliveredMessage,
    Dequeued,
    EncodedResult,
    ExtendedLease,
    SetAside,
    Token,
    dequeue,
    extend,
    hear,
    heartbeat,
    held,
    holder,
    lock_deliveries,
    set_aside,
    settlement,
)
from sqlalchemy_fairqueue.database.groups import (
    Member,
    fold_groups,
    group_members,
    group_status,
    groups,
)
from sqlalchemy_fairqueue.database.installation import check_installed, version
from sqlalchemy_fairqueue.database.messages import (
    EncodedMessage,
    EnqueuedMessages,
    FoundResult,
    MessagePosition,
    enqueue,
    find_messages,
    message_attempts,
    message_details,
    results,
)
from sqlalchemy_fairqueue.database.schedules import (
    DueSchedule,
    ScheduleDefinition,
    due_schedules,
    fail_schedule,
    pause_schedule,
    run_schedule,
    run_slots,
    schedules,
    set_schedule,
)
from sqlalchemy_fairqueue.database.stats import (
    COMPETING,
    COUNTED,
    StopRequest,
    channel_stats,
    competition,
    completions,
    consumers,
    consumers_by_queue,
    contention,
    contention_by_queue,
    now,
    queues,
    sample_context,
    stats,
    stats_by_queue,
    stop_requests,
)

__all__ = [
    "COMPETING", "COUNTED", "LONGEST_WAIT", "Call", "CommitRefused", "DeliveredMessage", "Dequeued",
    "DueSchedule", "EncodedMessage", "EncodedResult", "EnqueuedMessages", "ExtendedLease", "FoundResult", "Link",
    "Member", "MessagePosition", "ScheduleDefinition", "SetAside", "StopRequest", "Target", "Token",
    "channel_stats", "check_installed", "competition", "completions",
    "consumers", "consumers_by_queue",
    "contention", "contention_by_queue", "dead_letter_groups", "dead_letters", "dequeue", "due_schedules",
    "enqueue", "extend", "fail_schedule", "find_messages", "fold_groups",
    "group_members", "group_status", "groups", "hear", "heartbeat", "held", "holder",
    "limits", "limits_by_queue", "lock_deliveries",
    "message_attempts", "message_details",
    "now", "pause", "pause_schedule", "plan_channels", "plans", "queue_settings",
    "queues", "results", "resume", "run_schedule", "run_slots", "sample_context",
    "schedules", "set_aside", "set_schedule", "settlement", "stats", "stats_by_queue",
    "stop_requests", "version",
]  # fmt: skip
