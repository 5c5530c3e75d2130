"""The unit that a queue shares by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.database.calls import call, fetch, once_a_schema

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.calls import Clause
    from sqlalchemy_fairqueue.database.targets import Target
    from sqlalchemy_fairqueue.values import FairBy


@once_a_schema
def share_by_clause(schema: str | None) -> Clause:
    """``fq_share_by``."""
    return call(schema, "fq_share_by", "1", queue="text", fair_by="text")


def share_by(connection: Connection, target: Target, fair_by: FairBy) -> None:
    """Say what the channels of a queue get equal parts of."""
    parameters = {"queue": target.queue, "fair_by": fair_by}
    fetch(connection, share_by_clause(target.schema), parameters, f"share queue {target.queue!r} by {fair_by}")
