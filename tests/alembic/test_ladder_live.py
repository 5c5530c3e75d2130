"""The steps between versions while programs of both code versions work."""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Condition, Event
from typing import TypeVar

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Queue, Receipt
from sqlalchemy_fairqueue.embedded import Server
from sqlalchemy_fairqueue.errors import SchemaMismatch
from sqlalchemy_fairqueue.sql import assert_no_drift
from tests.alembic.conftest import Project
from tests.fixtures.database import Database
from tests.fixtures.options import PATIENCE
from tests.worker.helpers import until

T = TypeVar("T")

# What a library that knows version 1 alone sends.
OLD_ENQUEUE = text("""
    select ordinal, message_id, created from fq_enqueue(
      p_queue => cast(:queue as text), p_channels => cast(:channels as text[]), p_kinds => cast(:kinds as text[]),
      p_contents => cast(:contents as bytea[]), p_headers => cast(:nothing as jsonb[]),
      p_delays => cast(:nothing as bigint[]), p_ats => cast(:nothing as bigint[]),
      p_priorities => cast(:nothing as integer[]), p_keys => cast(:nothing as text[]),
      p_max_attempts => cast(:nothing as integer[]), p_max_concurrency => cast(:limit as integer),
      p_release_interval => cast(0 as bigint), p_release_burst => cast(1 as integer), p_weight => cast(1 as integer))
""")
OLD_DEQUEUE = text("""
    select * from fq_dequeue(p_queue => cast(:queue as text), p_limit => cast(:limit as integer),
      p_lease => cast(60000000 as bigint), p_consumer => cast(:consumer as text),
      p_lease_id => cast(:lease_id as bigint), p_hints => cast(null as bigint[]))
""")
OLD_COMPLETE = text("""
    select message_id, outcome from fq_complete(p_queue => cast(:queue as text), p_ids => cast(:ids as bigint[]),
      p_rows => cast(:rows as tid[]), p_lease_ids => cast(:leases as bigint[]),
      p_deliveries => cast(:deliveries as integer[]))
""")
QUEUE = "documents"
CHANNELS = [f"tenant {number}" for number in range(6)]
# Producers wait beyond that: what a migration that takes long leaves behind is to be worked off in no time.
MOST = 600


class Crew:
    """Producers and consumers of both code versions, each in a thread until the crew is told to stop."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.stopped = Event()
        self.progress: Counter[str] = Counter()
        self.moved = Condition()
        self.enqueued: list[int] = []
        self.completed: list[int] = []
        self.futures: list[Future[None]] = []
        self.downgrading = False

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Start everybody; afterwards stop them, and raise what went wrong in any of them."""
        jobs: dict[str, Callable[[Crew, Engine, str], None]] = {}
        jobs |= {"old producer": old_produce, "old": old_consume, "old too": old_consume}
        jobs |= {"new producer": new_produce, "new": new_consume, "new too": new_consume}
        with ThreadPoolExecutor(len(jobs)) as threads:
            self.futures = [threads.submit(self.work, name, job) for name, job in jobs.items()]
            try:
                yield
            finally:
                self.stopped.set()
        for future in self.futures:
            future.result()

    def work(self, name: str, job: Callable[["Crew", Engine, str], None]) -> None:
        """Do a job again and again on an engine of its own."""
        engine = create_engine(self.database.url, isolation_level="AUTOCOMMIT" if "old" in name else "READ COMMITTED")
        while not self.stopped.is_set():
            if "producer" in name and len(self.enqueued) - len(self.completed) > MOST:
                with self.moved:
                    self.moved.wait(0.1)
                continue
            job(self, engine, name)
            with self.moved:
                self.progress[name] += 1
                self.moved.notify_all()
        engine.dispose()

    def call(self, work: Callable[[], T]) -> T:
        """Do something that a downgrade may have caught in a function of the newer version: it fails once, whole."""
        try:
            return work()
        except (ProgrammingError, SchemaMismatch):
            if not self.downgrading:
                raise
            return work()

    def goes_on(self) -> None:
        """Return when each of them has done its job a few more times; fail if one has ended or does not get on."""
        with self.moved:
            before = Counter(self.progress)
            names = ("old producer", "old", "old too", "new producer", "new", "new too")
            moved = self.moved.wait_for(
                lambda: (
                    all(self.progress[name] >= before[name] + 8 for name in names)
                    or any(future.done() for future in self.futures)
                ),
                PATIENCE.total_seconds() * 2,
            )
        for future in self.futures:
            if future.done():
                future.result()
        assert moved, f"{before} became {self.progress}"


def old_produce(crew: Crew, engine: Engine, _name: str) -> None:
    """Enqueue a message a channel."""
    count = len(CHANNELS)
    given = {
        "queue": QUEUE,
        "channels": CHANNELS,
        "kinds": ["parse"] * count,
        "contents": [b"1"] * count,
        "nothing": [None] * count,
        "limit": 3,
    }
    with engine.connect() as connection:
        crew.enqueued += [row.message_id for row in crew.call(lambda: connection.execute(OLD_ENQUEUE, given).all())]


def old_consume(crew: Crew, engine: Engine, name: str, limit: int = 5) -> None:
    """Take up to so many messages and complete them."""
    given = {"queue": QUEUE, "limit": limit, "consumer": name, "lease_id": None}
    with engine.connect() as connection:
        *taken, call = crew.call(lambda: connection.execute(OLD_DEQUEUE, given).all())
        if taken:
            done = {
                "queue": QUEUE,
                "ids": [row.message_id for row in taken],
                "rows": [row.row_id for row in taken],
                "leases": [call.lease_id] * len(taken),
                "deliveries": [row.deliveries for row in taken],
            }
            assert crew.call(lambda: connection.execute(OLD_COMPLETE, done).all()) == []
            crew.completed += done["ids"]


def new_produce(crew: Crew, engine: Engine, _name: str) -> None:
    """Enqueue two messages in a transaction."""
    queue = Queue(QUEUE)

    def enqueue() -> list[Receipt]:
        with Session(engine) as session, session.begin():
            return [queue.enqueue(session, channel=channel, payload=1) for channel in CHANNELS[:2]]

    crew.enqueued += [receipt.message_id for receipt in crew.call(enqueue) if receipt.message_id is not None]


def new_consume(crew: Crew, engine: Engine, _name: str) -> None:
    """Take up to five messages and complete them."""
    queue = Queue(QUEUE)
    batch = crew.call(lambda: queue.dequeue(engine, limit=5))
    if batch:
        crew.call(lambda: queue.complete(engine, list(batch)))
        crew.completed += [delivery.message_id for delivery in batch]


@pytest.mark.timeout(240)
def test_steps_under_load(project: Project, empty_database: Database) -> None:
    """Up, down and up again while old and new programs work: each message is delivered once, and only calls that a
    downgrade catches fail, once.
    """
    project.migration("one", "op.create_fairqueue(version=1)")
    project.migration("two", "op.upgrade_fairqueue(1, 2)", "op.downgrade_fairqueue(2, 1)", down="one")
    project.point_at(empty_database.url)
    project.run("upgrade", "one")
    crew = Crew(empty_database)
    with crew.at_work():
        for way, revision in (("upgrade", "two"), ("downgrade", "one"), ("upgrade", "two")):
            crew.goes_on()
            crew.downgrading = way == "downgrade"
            project.run(way, revision)
        crew.goes_on()

    engine = create_engine(empty_database.url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        # Nobody else has any in hand, and each channel gives up to three: each round takes some, or something is stuck.
        waiting = text("select count(*) from fq_message")
        left = connection.scalar(waiting)
        while left:
            old_consume(crew, engine, "last", limit=100)
            before, left = left, connection.scalar(waiting)
            assert left < before, connection.execute(text("select * from fq_channel_state")).all()
        taken = text("select sum(current_concurrency) from fq_channel_state")
        freed = text("select coalesce(sum(freed), 0) from fq_signal")
        assert connection.scalar(taken) == connection.scalar(freed)
        assert_no_drift(connection)
    engine.dispose()
    assert sorted(crew.completed) == sorted(crew.enqueued)


@pytest.mark.parametrize(("way", "revision"), [("upgrade", "two"), ("downgrade", "one")])
def test_autovacuum_gives_way(project: Project, private_server: Callable[..., Server], way: str, revision: str) -> None:
    """A step does not fail for a long autovacuum of the messages: that ends when it is waited for."""
    server = private_server(settings={"autovacuum": "on", "autovacuum_naptime": "1s"})
    database = Database(server.url())
    project.migration("one", "op.create_fairqueue(version=1)")
    project.migration("two", "op.upgrade_fairqueue(1, 2)", "op.downgrade_fairqueue(2, 1)", down="one")
    project.point_at(database.url)
    project.run("upgrade", "one" if way == "upgrade" else "two")
    with database.own.connect() as connection:
        # As slow as it can be made: hours for what follows.
        connection.exec_driver_sql(
            "alter table fq_message set (autovacuum_vacuum_threshold = 1, autovacuum_vacuum_cost_limit = 1,"
            " autovacuum_vacuum_cost_delay = 100)"
        )
        connection.exec_driver_sql(
            "insert into fq_message (channel_id, kind, content, dequeue_at, enqueued_at, max_attempts)"
            " select 1, 'parse', '', 0, 0, 1 from generate_series(1, 200000)"
        )
        connection.exec_driver_sql("delete from fq_message where id & 1 = 0")
    vacuums = "select pid from pg_stat_progress_vacuum where relid = 'fq_message'::regclass"
    until(lambda: database.value(vacuums), "autovacuum is at work")
    project.run(way, revision)
    assert database.value("select fq_version()") == (2 if way == "upgrade" else 1)


@pytest.mark.parametrize(("way", "revision"), [("upgrade", "two"), ("downgrade", "one")])
def test_calls_go_on_beside_a_vacuum(project: Project, empty_database: Database, way: str, revision: str) -> None:
    """While a step waits for somebody's vacuum it holds nobody up, and it goes on afterwards."""
    project.migration("one", "op.create_fairqueue(version=1)")
    project.migration("two", "op.upgrade_fairqueue(1, 2)", "op.downgrade_fairqueue(2, 1)", down="one")
    project.point_at(empty_database.url)
    project.run("upgrade", "one" if way == "upgrade" else "two")
    engine = create_engine(empty_database.url, connect_args={"options": "-c lock_timeout=50ms"})
    queue = Queue(QUEUE)
    with ThreadPoolExecutor(1) as thread, empty_database.own.connect() as vacuum:
        # What a vacuum holds for as long as it runs.
        vacuum.exec_driver_sql("begin; lock table fq_message in share update exclusive mode")
        step = thread.submit(project.run, way, revision)
        waiting = "select pid from pg_locks where mode = 'ShareUpdateExclusiveLock' and not granted"
        until(lambda: step.done() or empty_database.value(waiting), "the step waits")
        with Session(engine) as session, session.begin():
            queue.enqueue(session, channel="a", payload=1)
        [delivery] = queue.dequeue(engine)
        queue.complete(engine, delivery)
        assert not step.done()
        vacuum.exec_driver_sql("commit")
        step.result(PATIENCE.total_seconds())
    engine.dispose()
    assert empty_database.value("select fq_version()") == (2 if way == "upgrade" else 1)
