"""Limits of channels and of the queue under several workers, with what broke other queues."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from sqlalchemy import text
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import ChannelPolicy
from tests.chaos.books import Books
from tests.chaos.business import payload
from tests.chaos.conftest import Rescue
from tests.fixtures.connections import Connect
from tests.fixtures.database import Database
from tests.worker.helpers import until


@contextmanager
def _watch(books: Books) -> Iterator[list[str]]:
    """Check the sums again and again while the block runs; what did not come out."""
    found: list[str] = []
    stop = threading.Event()

    def check() -> None:
        while not stop.is_set():
            found.extend(books.unbalanced())

    watcher = threading.Thread(target=check)
    watcher.start()
    try:
        yield found
    finally:
        stop.set()
        watcher.join()


def test_several_workers_at_a_limit(books: Books, rescue: Rescue) -> None:
    """Workers that reach for the one slot of a channel at the same instant, again and again, are never two inside."""
    with _watch(books) as unbalanced:
        for _ in range(3):
            rescue(concurrency=2)
        for _ in range(15):
            books.send(1, "narrow", seconds=0.005)
            books.send(1, "wide", seconds=0.005)
        books.until_done()
    assert books.crowded({"narrow": 1}, together=3) == []
    # They did work side by side.
    assert books.crowded({}, together=1) != []
    assert unbalanced == []
    books.check()


def test_a_limit_is_lowered_while_above_it(books: Books, database: Database, connect: Connect, rescue: Rescue) -> None:
    """Lowered below what is at work, a limit lets nothing begin until enough have ended; raised, it lets more begin."""
    books.queue.configure_channel(books.engine, "wide", ChannelPolicy(max_concurrency=3))
    workers = [rescue(concurrency=4) for _ in range(2)]
    with connect() as holder:
        # Until then nobody ends.
        holder.exec_driver_sql("lock table effect in exclusive mode")
        books.send(6, "wide", seconds=0.05)
        until(lambda: database.value("select count(*) = 3 from fq_message where slots & 2 = 2"), "three are at work")
        books.queue.configure_channel(books.engine, "wide", ChannelPolicy(max_concurrency=1))
        # What is out already may go on; what comes after it must not overlap, until the limit is raised.
        rows = database.rows(
            "select convert_from(content, 'UTF8')::jsonb ->> 'number' as number from fq_message where lease_id is null"
        )
        waiting = [int(row.number) for row in rows]
        holder.rollback()
    until(lambda: len(books.effects()) >= 8, "some are done")
    raised = database.value("select clock_timestamp()")
    books.queue.configure_channel(books.engine, "wide", ChannelPolicy(max_concurrency=2))
    books.until_done()
    overlapping = database.value(
        "select count(*) from effect a join effect b on a.number < b.number"
        " and a.started < b.ended and b.started < a.ended and greatest(a.started, b.started) < :raised"
        " where a.number = any(:waiting) and b.number = any(:waiting)",
        waiting=waiting,
        raised=raised,
    )
    assert len(waiting) == 9
    assert overlapping == 0
    assert sum(worker.stats.lost for worker in workers) == 0
    books.check()


def test_a_freed_slot_that_is_not_freed_after_all(books: Books, database: Database, rescue: Rescue) -> None:
    """A handler's transaction that settles and then fails at its commit frees no slot, whoever waits for one."""
    database.execute(
        "create sequence commits;"
        "create function fail_at_commit() returns trigger language plpgsql as $$ begin"
        " if nextval('commits') % 2 = 1 then raise exception 'not yet'; end if; return null; end $$;"
        "create constraint trigger fail after insert on effect deferrable initially deferred"
        " for each row when (new.kind = 'kept') execute function fail_at_commit()"
    )
    with _watch(books) as unbalanced:
        for _ in range(2):
            rescue(concurrency=3)
        books.send(15)
        books.until_done()
    assert database.value("select last_value >= 15 from commits")
    assert books.crowded({"narrow": 1}, together=3) == []
    assert unbalanced == []
    books.check()


def test_commits_in_another_order(books: Books, rescue: Rescue) -> None:
    """Messages whose transactions commit long after younger ones are not passed by, at a limit of one."""
    # Who was not waiting when they were sent is woken by nobody when they are committed.
    rescue(concurrency=2, poll_interval=timedelta(milliseconds=100))
    early = Session(books.engine)
    first = 1_000_000
    for ordinal in range(3):
        early.execute(text("insert into sent values (:number, 'kept')"), {"number": first + ordinal})
        books.queue.enqueue(early.connection(), channel="narrow", kind="kept", payload=payload(first + ordinal))
    books.send(5, "narrow")
    books.until_done()
    assert first not in books.effects()
    early.commit()
    early.close()
    until(lambda: first + 2 in books.effects(), "they are done")
    books.until_done()
    books.check()
