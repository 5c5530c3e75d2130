"""A sample of each field of a policy, other than its initial value, as a value and as a word of the command line.

A new field needs both here, and tests then ask of every way to the database and back that it keeps the field.
"""

from datetime import timedelta
from typing import Any

from sqlalchemy_fairqueue import Rate

SAMPLES: dict[str, Any] = {
    "max_concurrency": 4,
    "rate": Rate(1, per=timedelta(milliseconds=1500), burst=2),
    "weight": 3,
    "max_backlog": 10,
    "on_full": "drop",
    "priority_aging": timedelta(seconds=90),
}

WORDS = {
    "max_concurrency": "4",
    "rate": "40/m, burst 2",
    "weight": "3",
    "max_backlog": "10",
    "on_full": "drop",
    "priority_aging": "90s",
}
"""The same samples as the command line takes them."""
