"""Calls of the SQL functions: a Python function for what a caller asks, which calls one of SQL by its name.

Each takes a Connection, the queue or schema that it goes to, and Python values, and returns Python values, or the call
that is to be sent. This package alone knows the shapes of calls, drivers, microseconds and rows, and which of our
errors an SQLSTATE stands for. Nothing here commits but ``commit_with``: the caller does.
"""

from sqlalchemy_fairqueue.database.calls import Call, CommitRefused, Link, Target
from sqlalchemy_fairqueue.database.configuration import (
    configure_channel,
    configure_limit,
    configure_plan,
    configure_queue,
    limit_queue,
    limits,
    limits_by_queue,
    lock_channels,
    pause,
    plan_channels,
    plans,
    queue_settings,
    resume,
    set_queue,
    spread_plans,
)
from sqlalchemy_fairqueue.database.dead_letters import (
    DeadLetterFilter,
    dead_letter_groups,
    dead_letters,
    purge_dead,
    redrive,
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
    end_leases,
    extend,
    hear,
    heartbeat,
    held,
    holder,
    leased_without_slot,
    lock_deliveries,
    lock_messages,
    set_aside,
    settlement,
)
from sqlalchemy_fairqueue.database.groups import (
    Member,
    cancel_group,
    fold_groups,
    group_members,
    group_status,
    groups,
    join_group,
    make_group,
)
from sqlalchemy_fairqueue.database.installation import check_installed, version
from sqlalchemy_fairqueue.database.messages import (
    EncodedMessage,
    EnqueuedMessages,
    FoundResult,
    MessageFilter,
    MessagePosition,
    cancel,
    enqueue,
    find_messages,
    make_due,
    message_attempts,
    message_details,
    messages_ahead,
    move_message,
    results,
    wait_for_result,
    wake_results,
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
    completions,
    consumers,
    consumers_by_queue,
    contention,
    contention_by_queue,
    contention_of,
    now,
    queues,
    request_stop,
    sample_context,
    stats,
    stats_by_queue,
    stop_requests,
)

__all__ = [
    "COMPETING", "COUNTED", "LONGEST_WAIT", "Call", "CommitRefused", "DeadLetterFilter", "DeliveredMessage",
    "Dequeued", "DueSchedule", "EncodedMessage", "EncodedResult", "EnqueuedMessages", "ExtendedLease",
    "FoundResult", "Link", "Member", "MessageFilter", "MessagePosition", "ScheduleDefinition", "SetAside",
    "StopRequest", "Target", "Token", "cancel", "cancel_group", "channel_stats",
    "check_installed", "completions", "configure_channel", "configure_limit", "configure_plan", "configure_queue",
    "consumers", "consumers_by_queue", "contention", "contention_by_queue", "contention_of", "dead_letter_groups",
    "dead_letters", "dequeue", "due_schedules", "end_leases", "enqueue", "extend",
    "fail_schedule", "find_messages", "fold_groups", "group_members", "group_status", "groups", "hear", "heartbeat",
    "held", "holder", "join_group", "leased_without_slot", "limit_queue", "limits", "limits_by_queue",
    "lock_channels", "lock_deliveries", "lock_messages", "make_due", "make_group", "message_attempts",
    "message_details", "messages_ahead", "move_message", "now", "pause", "pause_schedule", "plan_channels", "plans",
    "purge_dead", "queue_settings", "queues", "redrive", "request_stop", "results", "resume", "run_schedule",
    "run_slots", "sample_context", "schedules", "set_aside", "set_queue", "set_schedule", "settlement",
    "spread_plans", "stats", "stats_by_queue", "stop_requests", "version", "wait_for_result", "wake_results",
]  # fmt: skip
