"""A sample of each field of a policy and each setting, other than its initial value, as people write it and as a value.

Tests ask of every way to the database and back that it keeps the field.
"""

from typing import Any

from sqlalchemy_fairqueue.values.policies import POLICY

WORDS = {
    "max_concurrency": "4",
    "max_cost_out": "1000",
    "rate": "10/s",
    "weight": "3",
    "max_backlog": "1000",
    "on_full": "drop",
    "priority_aging": "1m",
    "max_payload_bytes": "65536",
}
SETTING_WORDS = {
    "max_concurrency": "50",
    "max_cost_out": "1000",
    "rate": "50/s",
    "limits": "openai",
    "fair_by": "cost",
    "history": "yes",
    "history_retention": "14d",
    "dead_letter_retention": "90d",
    "result_retention": "1d",
    "forget_channels_after": "90d",
    "default_plan": "gold",
    "on_dead": "hold",
    "on_dead_kinds": "parse",
}
SAMPLES: dict[str, Any] = {name: definition.parsed(WORDS[name]) for name, definition in POLICY.items()}
