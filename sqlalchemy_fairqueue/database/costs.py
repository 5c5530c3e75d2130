"""Costs of messages: what they cost in truth, and what a queue shares by."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.database.calls import Call, call, fetch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.calls import Clause
    from sqlalchemy_fairqueue.database.targets import Target
    from sqlalchemy_fairqueue.database.tokens import Token
    from sqlalchemy_fairqueue.values import FairBy


@cache
def correct_costs_clause(schema: str | None) -> Clause:
    """``fq_correct_costs``."""
    return call(
        schema,
        "fq_correct_costs",
        "1",
        queue="text",
        ids="bigint[]",
        lease_ids="bigint[]",
        deliveries="integer[]",
        costs="bigint[]",
    )


def correct_costs(connection: Connection, target: Target, costs: Mapping[Token, int]) -> None:
    """Tell what deliveries cost, before they are settled in the same transaction."""
    fetch(connection, *correct_costs_call(connection, target, costs))


def correct_costs_call(connection: Connection, target: Target, costs: Mapping[Token, int]) -> Call:  # noqa: ARG001 - as all functions of this package
    """The call of :func:`correct_costs`."""
    parameters = {
        "queue": target.queue,
        "ids": [token.message_id for token in costs],
        "lease_ids": [token.lease_id for token in costs],
        "deliveries": [token.deliveries for token in costs],
        "costs": list(costs.values()),
    }
    doing = f"correct the costs of {len(costs)} deliveries of queue {target.queue!r}"
    return Call(correct_costs_clause(target.schema), parameters, doing)


@cache
def share_by_clause(schema: str | None) -> Clause:
    """``fq_share_by``."""
    return call(schema, "fq_share_by", "1", queue="text", fair_by="text")


def share_by(connection: Connection, target: Target, fair_by: FairBy) -> None:
    """Say what the channels of a queue get equal parts of."""
    parameters = {"queue": target.queue, "fair_by": fair_by}
    fetch(connection, share_by_clause(target.schema), parameters, f"share queue {target.queue!r} by {fair_by}")
