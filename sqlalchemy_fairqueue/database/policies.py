"""Channel policies as the SQL functions take them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.times import microseconds

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.values import ChannelPolicy

POLICY_TYPES = {
    "max_concurrency": "integer",
    "rate_interval": "bigint",
    "rate_burst": "integer",
    "weight": "integer",
    "max_backlog": "integer",
    "drop_when_full": "boolean",
}
"""The parameters of a policy with their types."""


def policy_parameters(policy: ChannelPolicy) -> dict[str, int | None]:
    """A policy as the functions take it."""
    return {
        "max_concurrency": policy.max_concurrency,
        "rate_interval": microseconds(policy.rate_interval),
        "rate_burst": policy.rate_burst,
        "weight": policy.weight,
        "max_backlog": policy.max_backlog,
        "drop_when_full": policy.on_full == "drop",
    }
