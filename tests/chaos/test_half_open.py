"""Connections that stay open and answer nothing: something between the worker and the server has died."""

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta

import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import AsyncWorker, Delivery, Enqueue, Queue
from tests.chaos.books import Books
from tests.chaos.business import PLAIN, payload
from tests.chaos.conftest import Rescue
from tests.chaos.proxy import Proxy
from tests.fixtures.database import Database
from tests.worker.helpers import auntil, retimed, until

# Workers that soon take silence for an end.
_IMPATIENT = {"stuck_after": 0.5, "hear_after": 0.2, "silence": 0.3, "answer": 0.5, "stop_requests_every": 0.1}


@pytest.fixture
def through(database: Database) -> Iterator[Proxy]:
    """A proxy before the test's database."""
    with closing(Proxy(database.url)) as made:
        yield made


@pytest.fixture
def distant(through: Proxy) -> Iterator[Engine]:
    """An engine that connects through the proxy."""
    engine = create_engine(through.url, connect_args={"connect_timeout": 5})
    yield engine
    # A connection that answers nothing cannot be closed in peace.
    through.close()
    engine.dispose()


def test_a_half_open_listener(books: Books, through: Proxy, distant: Engine, rescue: Rescue) -> None:
    """A listening connection that answers nothing is given up for a new one, and commits wake the worker again."""
    worker = rescue(engine=distant, timings=_IMPATIENT)
    books.send(1)
    books.until_done()
    until(lambda: through.heard(b"listen fairqueue"), "it listens")
    frozen = through.freeze(b"listen fairqueue")
    until(lambda: through.heard(b"listen fairqueue") > frozen, "it listens again")
    woken = worker.stats.woken

    def sent_and_woken() -> bool:
        books.send(1)
        books.until_done()
        return worker.stats.woken > woken

    # What is committed while it polls is found without waking it.
    until(sent_and_woken, "a commit wakes it")
    books.check()


@pytest.mark.parametrize("word", ["fq_dequeue", "lock_timeout", "fq_heartbeat"])
def test_a_half_open_connection(books: Books, through: Proxy, distant: Engine, rescue: Rescue, word: str) -> None:
    """Whichever connection of a worker answers nothing, it is given up for a new one, and the worker goes on."""
    rescue(engine=distant, lease=timedelta(seconds=1), timings=_IMPATIENT)
    books.send(2, seconds=0.5 if word == "fq_heartbeat" else 0)
    until(lambda: through.heard(word.encode()), "the connection is in use")
    books.until_done()
    # Those that a slow machine has made a worker give up are among them.
    frozen = through.freeze(word.encode())

    def done_and_heard() -> bool:
        books.send(2, seconds=0.5 if word == "fq_heartbeat" else 0)
        books.until_done()
        return through.heard(word.encode()) > frozen

    # Handlers may be done before a connection is given up: whoever comes next needs the new one.
    until(done_and_heard, "there is a new one")
    books.check()


@pytest.mark.many
@pytest.mark.parametrize("word", ["fq_fold_groups", "fq_run_slots", "fq_keep_history", "fq_prune_expired"])
def test_a_half_open_connection_of_a_round(
    books: Books, through: Proxy, distant: Engine, rescue: Rescue, word: str
) -> None:
    """Groups, schedules and housekeeping make a connection for a round; after one that got no answer comes another."""
    with Session(books.engine) as session, session.begin(), books.queue.group(session) as group:
        group.enqueue_many([Enqueue(channel="narrow", payload=payload(0), kind=PLAIN)])
    every = timedelta(seconds=1)
    books.queue.schedules.set(books.engine, "often", every=every, kind=PLAIN, channel="wide", payload=payload(1))
    through.trap = word.encode()
    rounds = {"groups_every": 0.1, "schedules_every": 0.1, "housekeeping_first": 0.1, "housekeeping_every": 0.2}
    rescue(
        engine=distant,
        lease=timedelta(seconds=1),
        housekeeping=True,
        timings=_IMPATIENT | rounds | {"housekeeping_call": 0.5},
    )
    until(through.has_caught, "a round waits for an answer")
    until(lambda: through.heard(word.encode()), "there is a new one")


async def test_a_lost_connection_is_no_fault_of_a_schedule(books: Books, through: Proxy) -> None:
    """The error of asyncpg has an SQLSTATE; the schedule is run again at once, and does not count as failing."""
    engine = create_async_engine(through.url.set(drivername="postgresql+asyncpg"))
    queue = Queue("documents")

    @queue.handler(PLAIN)
    async def handle(_: Delivery) -> None: ...

    queue.schedules.set(books.engine, "often", every=timedelta(seconds=1), kind=PLAIN, channel="wide", payload=1)
    through.trap = b"fq_run_slots"
    worker = AsyncWorker(engine, queue, lease=timedelta(seconds=1))
    async with retimed(worker, **_IMPATIENT, schedules_every=0.1):
        await auntil(through.has_caught, "a slot waits for an answer")
        failing = "select count(*) from fq_schedule where problem is not null"
        await auntil(lambda: through.heard(b"fq_run_slots") or books.database.value(failing), "it is tried again")
    assert books.database.value(failing) == 0
    await engine.dispose()


def test_a_half_open_connection_at_the_start(through: Proxy, distant: Engine, rescue: Rescue) -> None:
    """A worker whose start is not answered raises, so that its supervisor can start it again."""
    through.trap = b"fq_version"
    with pytest.raises(OperationalError):
        rescue(engine=distant, timings=_IMPATIENT | {"connect": 0.5})
    assert through.has_caught()
