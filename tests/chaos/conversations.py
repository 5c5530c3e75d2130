"""Workers that answer what was said in conversations, several messages at once, until they are killed."""

import asyncio
import logging
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from multiprocessing.connection import Connection
from typing import Any
from uuid import uuid4

from sqlalchemy import create_engine, make_url, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import AsyncWorker, Batch, Context, Queue, Worker
from tests.chaos.business import AGAIN, NOW, fail
from tests.fixtures.drivers import async_url

TABLES = """
create table said (number bigint primary key);
create table answer (
  number bigint not null, conversation text not null, tokens integer not null, attempt integer not null,
  call uuid not null, place integer not null, started timestamptz not null, ended timestamptz not null
)
"""
"""What was said, and what was answered: written by the transaction that completes the messages."""

BATCH = Batch(max_messages=8, max_cost=100)
_ANSWER = text(
    "insert into answer values (:number, :conversation, :tokens, :attempt, :call, :place, :started, clock_timestamp())"
)
_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Said:
    """What was said in a conversation, as many tokens; so many attempts to answer it fail."""

    number: int
    conversation: str
    tokens: int
    fails: int


queue = Queue("documents", max_attempts=1_000)
"""Answers in threads."""
async_queue = Queue("documents", max_attempts=1_000)
"""Answers in a loop."""


@queue.job(batch=BATCH, retry=AGAIN)
def answer(context: Context, session: Session, all_said: list[Said]) -> None:
    """Answer all at once."""
    started = session.scalar(NOW)
    threading.Event().wait(_SECONDS)
    session.execute(_ANSWER, _rows(context, all_said, started))
    _fail(context, all_said)


@async_queue.job(kind="answer", batch=BATCH, retry=AGAIN)
async def answer_in_loop(context: Context, session: AsyncSession, all_said: list[Said]) -> None:
    """As answer."""
    started = await session.scalar(NOW)
    await asyncio.sleep(_SECONDS)
    await session.execute(_ANSWER, _rows(context, all_said, started))
    _fail(context, all_said)


def _rows(context: Context, all_said: Sequence[Said], started: datetime | None) -> list[dict[str, Any]]:
    call = uuid4()
    return [
        asdict(said) | {"attempt": delivery.attempt, "call": call, "place": place, "started": started}
        for place, (delivery, said) in enumerate(zip(context.deliveries, all_said, strict=True))
    ]


def _fail(context: Context, all_said: Sequence[Said]) -> None:
    for delivery, said in zip(context.deliveries, all_said, strict=True):
        fail(delivery, said.fails)


_OPTIONS: dict[str, Any] = {"lease": timedelta(seconds=1), "concurrency": 3, "housekeeping": False}


def main(url: str, ready: Connection) -> None:
    """Work in threads; of failures that were asked for nobody need hear."""
    logging.disable()
    with Worker(create_engine(url), queue, **_OPTIONS):
        ready.send(None)
        threading.Event().wait()


def main_in_loop(url: str, ready: Connection) -> None:
    """Work in a loop."""
    logging.disable()

    async def run() -> None:
        async with AsyncWorker(create_async_engine(async_url(make_url(url))), async_queue, **_OPTIONS):
            ready.send(None)
            await asyncio.Event().wait()

    asyncio.run(run())
