"""Typed calls of the SQL functions: one Python function each.

Each takes a Connection, the queue or schema that it goes to, and Python values, and returns Python values. This package
alone knows the clauses, parameters, casts, drivers, microseconds and shapes of rows, and which of our errors an
SQLSTATE stands for. Nothing here commits but ``commit_with``: the caller does.
"""

from sqlalchemy_fairqueue.database.calls import Call
from sqlalchemy_fairqueue.database.commits import CommitRefused, can_commit_with, commit_with
from sqlalchemy_fairqueue.database.configuration import (
    configure_channel,
    configure_limit,
    configure_queue,
    hold_channels,
    hold_gate,
    hold_queue,
    limit_queue,
    limits,
    pause,
    record_queue,
    remove_limit,
    resume,
    retain_dead_letters,
)
from sqlalchemy_fairqueue.database.contention import consumers, contention
from sqlalchemy_fairqueue.database.costs import correct_costs, correct_costs_call, share_by
from sqlalchemy_fairqueue.database.dead_letters import (
    DeadLetterFilter,
    dead_letters,
    prune_dead_letters,
    purge_dead,
    redrive,
)
from sqlalchemy_fairqueue.database.deliveries import DeliveredMessage, Dequeued, Heard, Hints, dequeue, hear
from sqlalchemy_fairqueue.database.details import dead_letter_groups, message_details
from sqlalchemy_fairqueue.database.enqueues import (
    EncodedMessage,
    EnqueuedMessage,
    enqueue,
    enqueue_call,
    max_backlog,
)
from sqlalchemy_fairqueue.database.forgetting import Forgetting, forget_after, forget_channels, mark_idle_channels
from sqlalchemy_fairqueue.database.groups import (
    Folded,
    cancel_group,
    fold_groups,
    group_status,
    groups,
    groups_due,
    join_group,
    make_group,
    prune_groups,
)
from sqlalchemy_fairqueue.database.history import PartitionChange, keep_history
from sqlalchemy_fairqueue.database.leases import ExtendedLease, end_leases, extend, heartbeat, held
from sqlalchemy_fairqueue.database.messages import (
    MessageFilter,
    MessagePosition,
    find_messages,
    message_place,
    move_message,
)
from sqlalchemy_fairqueue.database.quarantine import (
    SetAside,
    end_quarantine,
    quarantined,
    set_aside,
)
from sqlalchemy_fairqueue.database.samples import SampleContext, completions, queue_settings, sample_context
from sqlalchemy_fairqueue.database.schedules import (
    DueSchedule,
    ScheduleDefinition,
    due_schedules,
    fail_schedule,
    pause_schedule,
    prune_slots,
    remove_schedule,
    run_schedule,
    run_slots,
    schedules,
    set_schedule,
)
from sqlalchemy_fairqueue.database.settlement import (
    Unsettled,
    bury,
    complete,
    hold_deliveries,
    hold_deliveries_call,
    hold_messages,
    holder,
    leased,
    release,
    retry,
    settle,
    settlement_call,
)
from sqlalchemy_fairqueue.database.stats import channel_stats, queues, stats
from sqlalchemy_fairqueue.database.targets import Target
from sqlalchemy_fairqueue.database.tokens import Token
from sqlalchemy_fairqueue.database.versions import check_installed, version
from sqlalchemy_fairqueue.database.waits import Wait, unwait, wait
from sqlalchemy_fairqueue.database.withdrawals import cancel, purge_channel

__all__ = [
    "Call",
    "CommitRefused",
    "DeadLetterFilter",
    "DeliveredMessage",
    "Dequeued",
    "DueSchedule",
    "EncodedMessage",
    "EnqueuedMessage",
    "ExtendedLease",
    "Folded",
    "Forgetting",
    "Heard",
    "Hints",
    "MessageFilter",
    "MessagePosition",
    "PartitionChange",
    "SampleContext",
    "ScheduleDefinition",
    "SetAside",
    "Target",
    "Token",
    "Unsettled",
    "Wait",
    "bury",
    "can_commit_with",
    "cancel",
    "cancel_group",
    "channel_stats",
    "check_installed",
    "commit_with",
    "complete",
    "completions",
    "configure_channel",
    "configure_limit",
    "configure_queue",
    "consumers",
    "contention",
    "correct_costs",
    "correct_costs_call",
    "dead_letter_groups",
    "dead_letters",
    "dequeue",
    "due_schedules",
    "end_leases",
    "end_quarantine",
    "enqueue",
    "enqueue_call",
    "extend",
    "fail_schedule",
    "find_messages",
    "fold_groups",
    "forget_after",
    "forget_channels",
    "group_status",
    "groups",
    "groups_due",
    "hear",
    "heartbeat",
    "held",
    "hold_channels",
    "hold_deliveries",
    "hold_deliveries_call",
    "hold_gate",
    "hold_messages",
    "hold_queue",
    "holder",
    "join_group",
    "keep_history",
    "leased",
    "limit_queue",
    "limits",
    "make_group",
    "mark_idle_channels",
    "max_backlog",
    "message_details",
    "message_place",
    "move_message",
    "pause",
    "pause_schedule",
    "prune_dead_letters",
    "prune_groups",
    "prune_slots",
    "purge_channel",
    "purge_dead",
    "quarantined",
    "queue_settings",
    "queues",
    "record_queue",
    "redrive",
    "release",
    "remove_limit",
    "remove_schedule",
    "resume",
    "retain_dead_letters",
    "retry",
    "run_schedule",
    "run_slots",
    "sample_context",
    "schedules",
    "set_aside",
    "set_schedule",
    "settle",
    "settlement_call",
    "share_by",
    "stats",
    "unwait",
    "version",
    "wait",
]
