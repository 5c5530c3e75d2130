"""The business that is disturbed: what handlers do, and the table in which their effects are counted."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Engine, text
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

AGAIN = RetryPolicy(first=timedelta(milliseconds=5), cap=timedelta(milliseconds=200))
NOW = text("select clock_timestamp()")
_EFFECT = text(
    "insert into effect values (:number, :kind, :channel, :sure, pg_backend_pid(), :started,"
    " coalesce(cast(:ended as timestamptz), clock_timestamp()))"
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

    def declare(self, queue: Queue, *, asynchronous: bool = False) -> None:
        """For a Worker, or for an AsyncWorker: a coroutine and a plain function."""
        handler = queue.handler(KEPT, retry=AGAIN)
        handler(self._keep_in_loop if asynchronous else self._keep)
        queue.handler(PLAIN, retry=AGAIN)(self._write)

    def _keep(self, delivery: Delivery, session: Session) -> None:
        self.pass_by("begun", delivery)
        started = session.scalar(NOW)
        threading.Event().wait(delivery.payload["seconds"])
        session.execute(_EFFECT, _row(delivery, started))
        fail(delivery, delivery.payload["fails"])
        self.pass_by("written", delivery)

    async def _keep_in_loop(self, delivery: Delivery, session: AsyncSession) -> None:
        self.pass_by("begun", delivery)
        started = await session.scalar(NOW)
        await asyncio.sleep(delivery.payload["seconds"])
        await session.execute(_EFFECT, _row(delivery, started))
        fail(delivery, delivery.payload["fails"])
        self.pass_by("written", delivery)

    def _write(self, delivery: Delivery, context: Context) -> None:
        with self.business.begin() as connection:
            started = connection.scalar(NOW)
            threading.Event().wait(delivery.payload["seconds"])
            fail(delivery, delivery.payload["fails"])
            self.pass_by("working", delivery)
            # Whoever proves its lease alive now had the message, and its slots, all the time.
            ended = connection.scalar(NOW)
            connection.execute(_EFFECT, _row(delivery, started, ended, sure=not context.lost))
        self.pass_by("effected", delivery)


def _row(
    delivery: Delivery, started: datetime | None, ended: datetime | None = None, *, sure: bool = True
) -> dict[str, Any]:
    found = {"number": delivery.payload["number"], "kind": delivery.kind, "channel": delivery.channel}
    return found | {"sure": sure, "started": started, "ended": ended}


def fail(delivery: Delivery, fails: int) -> None:
    """Fail at the first so many attempts."""
    if delivery.attempt <= fails:
        raise FailedOnPurposeError(f"attempt {delivery.attempt} of message {delivery.message_id}")
