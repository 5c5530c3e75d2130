"""One builder a SQL function: which function is called, with which arguments and types.

Nothing else writes SQL for them. Every builder takes the schema of the installation (None: found through the
search_path) and gives an executable clause whose parameters are named as in the SQL, without the ``p_``.
"""

from sqlalchemy_fairqueue.statements.configuring import (
    configure_channel,
    configure_queue,
    hold_queue,
    keep_history,
    limit_queue,
    pause,
    purge_channel,
    record_queue,
    resume,
)
from sqlalchemy_fairqueue.statements.leases import extend, heartbeat, unwait, wait, wake
from sqlalchemy_fairqueue.statements.looking import (
    channel_stats,
    dead_letters,
    held,
    holder,
    max_backlog,
    queues,
    stats,
    version,
)
from sqlalchemy_fairqueue.statements.verbs import (
    bury,
    cancel,
    complete,
    dequeue,
    enqueue,
    hear,
    hold_deliveries,
    hold_messages,
    purge_dead,
    redrive,
    release,
    retry,
)

__all__ = [
    "bury",
    "cancel",
    "channel_stats",
    "complete",
    "configure_channel",
    "configure_queue",
    "dead_letters",
    "dequeue",
    "enqueue",
    "extend",
    "hear",
    "heartbeat",
    "held",
    "hold_deliveries",
    "hold_messages",
    "hold_queue",
    "holder",
    "keep_history",
    "limit_queue",
    "max_backlog",
    "pause",
    "purge_channel",
    "purge_dead",
    "queues",
    "record_queue",
    "redrive",
    "release",
    "resume",
    "retry",
    "stats",
    "unwait",
    "version",
    "wait",
    "wake",
]
