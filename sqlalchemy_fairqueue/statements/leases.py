"""What a consumer does with its lease: extend it, sleep under it, be woken."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.statements.building import call

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.statements.building import Clause


@cache
def extend(schema: str | None) -> Clause:
    """``fq_extend``: one row, the new end of the lease or null."""
    return call(
        schema,
        "fq_extend",
        "fq_extend as expires_at",
        lease_id="bigint",
        lease="bigint",
        ids="bigint[]",
        deliveries="integer[]",
    )


@cache
def heartbeat(schema: str | None) -> Clause:
    """``fq_heartbeat``: rows (lease_id, expires_at or null, cancelled) a lease."""
    return call(schema, "fq_heartbeat", "lease_id, expires_at, cancelled", lease_ids="bigint[]", lease="bigint")


@cache
def wait(schema: str | None) -> Clause:
    """``fq_wait``: one row (lease_id, topic)."""
    return call(schema, "fq_wait", "lease_id, topic", queue="text", consumer="text", lease_id="bigint", wait="bigint")


@cache
def unwait(schema: str | None) -> Clause:
    """``fq_unwait``."""
    return call(schema, "fq_unwait", "1", lease_id="bigint")


@cache
def wake(schema: str | None) -> Clause:
    """``fq_wake``."""
    return call(schema, "fq_wake", "1", queue="text")
