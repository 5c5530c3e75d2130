"""The worker's logger: nothing a message at INFO or above but what failed."""

import logging

log = logging.getLogger("sqlalchemy_fairqueue.worker")
