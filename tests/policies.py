"""A sample of each field of a policy, other than its initial value: a new field needs one here, and tests then ask of
every way to the database and back that it keeps the field.
"""

from datetime import timedelta
from typing import Any

SAMPLES: dict[str, Any] = {
    "max_concurrency": 4,
    "rate_interval": timedelta(milliseconds=1500),
    "rate_burst": 2,
    "weight": 3,
    "max_backlog": 10,
    "on_full": "drop",
}
