"""The business that is disturbed: what handlers do, and the table in which their effects are counted."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Engine, text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Context, Delivery, Queue, RetryPolicy

TABLES = """
create table sent (number bigint primary key, kind text not null);
create table effect (
  number bigint not null, kind text not null, channel text not null, sure boolean not null, process integer not null,
  started timestamptz not null, ended timestamptz not null
)
"""
KEPT = "kept"
"""Writes in its own session: its effects are counted once."""
PLAIN = "plain"
"""Writes in a transaction of its own: its effects are counted at least once."""

_AGAIN = RetryPolicy(first=timedelta(milliseconds=5), cap=timedelta(milliseconds=200))
_NOW = text("select clock_timestamp()")
_EFFECT = text(
    "insert into effect values (:number, :kind, :channel, :sure, pg_backend_pid(), :started, clock_timestamp())"
)


class FailedOnPurposeError(Exception):
    """The message asked for it."""


def payload(number: int, *, seconds: float = 0.0, fails: int = 0) -> dict[str, Any]:
    """A message: how long its handler takes, and how many attempts fail."""
    return {"number": number, "seconds": seconds, "fails": fails}


@dataclass(frozen=True, slots=True)
class Handlers:
    """What is done with messages of both kinds.

    Attributes:
        business: Where handlers without a session write.
        pass_by: Called at each stage with its name and the delivery.
    """

    business: Engine
    pass_by: Callable[[str, Delivery], None]

    def declare(self, queue: Queue) -> None:
        """Plain functions for a Worker."""

        @queue.handler(KEPT, retry=_AGAIN)
        def kept(delivery: Delivery, session: Session) -> None:
            self.pass_by("begun", delivery)
            started = session.scalar(_NOW)
            threading.Event().wait(delivery.payload["seconds"])
            session.execute(_EFFECT, _row(delivery, started, sure=True))
            _fail(delivery)
            self.pass_by("written", delivery)

        @queue.handler(PLAIN, retry=_AGAIN)
        def plain(delivery: Delivery, context: Context) -> None:
            self._write(delivery, context)

    def declare_async(self, queue: Queue) -> None:
        """Coroutines for an AsyncWorker, and one plain function."""

        @queue.handler(KEPT, retry=_AGAIN)
        async def kept(delivery: Delivery, session: AsyncSession) -> None:
            self.pass_by("begun", delivery)
            started = await session.scalar(_NOW)
            await asyncio.sleep(delivery.payload["seconds"])
            await session.execute(_EFFECT, _row(delivery, started, sure=True))
            _fail(delivery)
            self.pass_by("written", delivery)

        @queue.handler(PLAIN, retry=_AGAIN)
        def plain(delivery: Delivery, context: Context) -> None:
            self._write(delivery, context)

    def _write(self, delivery: Delivery, context: Context) -> None:
        with self.business.begin() as connection:
            started = connection.scalar(_NOW)
            threading.Event().wait(delivery.payload["seconds"])
            _fail(delivery)
            self.pass_by("working", delivery)
            # Whoever proves its lease alive now had the message, and its slots, all the time.
            _write_effect(connection, delivery, started, context)
        self.pass_by("effected", delivery)


def _write_effect(connection: Connection, delivery: Delivery, started: datetime | None, context: Context) -> None:
    ended = connection.scalar(_NOW)
    statement = text("insert into effect values (:number, :kind, :channel, :sure, pg_backend_pid(), :started, :ended)")
    connection.execute(statement, _row(delivery, started, sure=not context.lost) | {"ended": ended})


def _row(delivery: Delivery, started: datetime | None, *, sure: bool) -> dict[str, Any]:
    return {
        "number": delivery.payload["number"],
        "kind": delivery.kind,
        "channel": delivery.channel,
        "sure": sure,
        "started": started,
    }


def _fail(delivery: Delivery) -> None:
    if delivery.attempt <= delivery.payload["fails"]:
        raise FailedOnPurposeError(f"attempt {delivery.attempt} of message {delivery.message_id}")
