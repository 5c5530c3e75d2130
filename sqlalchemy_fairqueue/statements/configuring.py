"""How a queue and its channels are served, and its housekeeping."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy import text

from sqlalchemy_fairqueue.statements.building import POLICY, call, qualifier

if TYPE_CHECKING:
    from sqlalchemy import TextClause

    from sqlalchemy_fairqueue.statements.building import Clause


@cache
def configure_queue(schema: str | None) -> Clause:
    """``fq_configure_queue``."""
    return call(schema, "fq_configure_queue", "1", queue="text", **POLICY)


@cache
def configure_channel(schema: str | None) -> Clause:
    """``fq_configure_channel``."""
    return call(schema, "fq_configure_channel", "1", queue="text", channel="text", **POLICY, notify="boolean")


@cache
def hold_queue(schema: str | None) -> TextClause:
    """Lock the row of a configured queue, as its configuration does."""
    return text(f"select from {qualifier(schema)}fq_queue where name = :queue for no key update")


@cache
def limit_queue(schema: str | None) -> Clause:
    """``fq_limit_queue``."""
    return call(schema, "fq_limit_queue", "1", queue="text", max_concurrency="integer", notify="boolean")


@cache
def record_queue(schema: str | None) -> Clause:
    """``fq_record_queue``."""
    return call(schema, "fq_record_queue", "1", queue="text", history="boolean", retention="bigint")


@cache
def pause(schema: str | None) -> Clause:
    """``fq_pause``: one row (changed)."""
    return call(schema, "fq_pause", "fq_pause as changed", queue="text", channel="text")


@cache
def resume(schema: str | None) -> Clause:
    """``fq_resume``: one row (changed)."""
    return call(schema, "fq_resume", "fq_resume as changed", queue="text", channel="text", notify="boolean")


@cache
def purge_channel(schema: str | None) -> Clause:
    """``fq_purge_channel``: one row (purged)."""
    return call(schema, "fq_purge_channel", "fq_purge_channel as purged", queue="text", channel="text")


@cache
def keep_history(schema: str | None) -> Clause:
    """``fq_keep_history``: rows (partition, action)."""
    return call(schema, "fq_keep_history", "partition, action", ahead="integer")
