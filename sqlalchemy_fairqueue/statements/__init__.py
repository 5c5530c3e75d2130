"""Old path of the clauses in ``database``, for modules that still execute them themselves."""

from sqlalchemy_fairqueue.database.history import keep_history_clause as keep_history
from sqlalchemy_fairqueue.database.leases import heartbeat_clause as heartbeat
from sqlalchemy_fairqueue.database.leases import held_clause as held
from sqlalchemy_fairqueue.database.settlement import release_clause as release
from sqlalchemy_fairqueue.database.stats import queues_clause as queues
from sqlalchemy_fairqueue.database.versions import version_clause as version
from sqlalchemy_fairqueue.database.waits import unwait_clause as unwait
from sqlalchemy_fairqueue.database.waits import wait_clause as wait

__all__ = ["heartbeat", "held", "keep_history", "queues", "release", "unwait", "version", "wait"]
