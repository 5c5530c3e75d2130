"""The steps between versions while programs work."""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from threading import Condition, Event

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import ChannelPolicy, Delivery, Queue
from sqlalchemy_fairqueue.embedded import Server
from sqlalchemy_fairqueue.sql import assert_no_drift
from tests.alembic.conftest import Project
from tests.alembic.migrations import ladder
from tests.fixtures.database import Database
from tests.fixtures.options import PATIENCE
from tests.sql.client import Kernel
from tests.sql.kernel.verbs import unbalanced
from tests.worker.helpers import until

# As a library that needs version 2 would call it.
RELEASE = text("""
    select message_id, outcome from fq_end_attempts(p_queue => cast(:queue as text), p_ids => cast(:ids as bigint[]),
      p_rows => cast(:rows as tid[]), p_lease_ids => cast(:leases as bigint[]),
      p_deliveries => cast(:deliveries as integer[]), p_delays => cast(:delays as bigint[]),
      p_outcome => 'released', p_errors => null, p_note => 'again')
""")
QUEUE = "documents"
CHANNELS = [f"tenant {number}" for number in range(6)]
# Producers wait beyond that: what a migration that takes long leaves behind is to be worked off in no time.
MOST = 600


class Clients:
    """Producers and consumers, each in a thread."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.progress: Counter[str] = Counter()
        self.moved = Condition()
        self.enqueued: list[int] = []
        self.completed: list[int] = []
        self.working: dict[str, Future[None]] = {}

    @contextmanager
    def at_work(self, **jobs: Callable[["Clients", Engine], None]) -> Iterator[None]:
        """Let them do their jobs; afterwards stop them, and raise what went wrong in any of them."""
        stopped = Event()
        with ThreadPoolExecutor(len(jobs)) as threads:
            self.working |= {name: threads.submit(self.work, name, job, stopped) for name, job in jobs.items()}
            try:
                yield
            finally:
                stopped.set()
        for name in jobs:
            self.working.pop(name).result()

    def work(self, name: str, job: Callable[["Clients", Engine], None], stopped: Event) -> None:
        """Do a job again and again on an engine of its own."""
        engine = create_engine(self.database.url)
        while not stopped.is_set():
            with self.moved:
                if job is produce and len(self.enqueued) - len(self.completed) > MOST:
                    self.moved.wait(0.1)
                    continue
            job(self, engine)
            with self.moved:
                self.progress[name] += 1
                self.moved.notify_all()
        engine.dispose()

    def goes_on(self) -> None:
        """Return when each of them has done its job a few more times; fail if one has ended or does not get on."""

        def went_on() -> bool:
            done = [future.result() for future in self.working.values() if future.done()]
            return not done and all(self.progress[name] >= before[name] + 8 for name in self.working)

        with self.moved:
            before = Counter(self.progress)
            assert self.moved.wait_for(went_on, PATIENCE.total_seconds() * 2), f"{before} became {self.progress}"


def produce(clients: Clients, engine: Engine) -> None:
    """Enqueue a message a channel in one transaction, and one with a key on the engine."""
    queue = Queue(QUEUE)
    with Session(engine) as session, session.begin():
        receipts = [queue.enqueue(session, channel=channel, payload=1) for channel in CHANNELS]
    receipts.append(queue.enqueue(engine, channel=CHANNELS[0], payload=1, key=str(clients.progress.total())))
    ids = {receipt.message_id for receipt in receipts if receipt.message_id is not None}
    clients.enqueued += ids - {*clients.enqueued}


def consume(clients: Clients, engine: Engine, *, newer: bool = False) -> None:
    """Take up to five messages, give back every second or third that is new, and complete the others."""
    queue = Queue(QUEUE)
    batch = queue.dequeue(engine, limit=5)
    back = [one for one in batch if one.deliveries == 1 and one.message_id % (2 if newer else 3) == 0]
    if not newer:
        queue.release(engine, back)
    elif back:
        given = {
            "queue": QUEUE,
            "ids": [one.message_id for one in back],
            "rows": [one.row_id for one in back],
            "leases": [one.lease.id for one in back],
            "deliveries": [one.deliveries for one in back],
            "delays": [None] * len(back),
        }
        with engine.begin() as connection:
            assert connection.execute(RELEASE, given).all() == []
    complete(clients, engine, [one for one in batch if one not in back])


def complete(clients: Clients, engine: Engine, done: list[Delivery]) -> None:
    """Complete deliveries in a session, as business code does."""
    with Session(engine) as session, session.begin():
        Queue(QUEUE).complete(session, done)
    clients.completed += [delivery.message_id for delivery in done]


@pytest.mark.timeout(240)
def test_steps_under_load(project: Project, empty_database: Database) -> None:
    """Up, down and up again while programs of both versions work: none meets an error, and each message is completed
    once. Those that need version 2 are rolled out after the step up, and back before the step down.
    """
    ladder(project, empty_database)
    project.run("upgrade", "one")
    engine = create_engine(empty_database.url)
    Queue(QUEUE).configure(engine, defaults=ChannelPolicy(max_concurrency=3, max_backlog=10_000))
    clients = Clients(empty_database)
    with clients.at_work(producer=produce, consumer=consume, other_consumer=consume):
        for way, revision in (("upgrade", "two"), ("downgrade", "one"), ("upgrade", "two")):
            clients.goes_on()
            project.run(way, revision)
            if way == "upgrade":
                with clients.at_work(newer_consumer=partial(consume, newer=True)):
                    clients.goes_on()

    # Nobody else has any in hand, and each channel gives up to three: each round takes some, or something is stuck.
    while left := empty_database.value("select count(*) from fq_message"):
        complete(clients, engine, list(Queue(QUEUE).dequeue(engine, limit=100)))
        assert empty_database.value("select count(*) from fq_message") < left
    assert sorted(clients.completed) == sorted(clients.enqueued)
    with engine.connect() as connection:
        assert_no_drift(connection)
    engine.dispose()
    kernel = Kernel.open(empty_database.conninfo, autocommit=True)
    assert unbalanced(kernel) == []
    kernel.connection.close()


STEPS = (("upgrade", "two", 2), ("downgrade", "one", 1))


@pytest.mark.whole
def test_autovacuum_gives_way(project: Project, private_server: Callable[..., Server]) -> None:
    """A step does not fail for a long autovacuum of the messages: that ends when it is waited for."""
    server = private_server(settings={"autovacuum": "on", "autovacuum_naptime": "1s"})
    database = Database(server.url())
    ladder(project, database)
    project.run("upgrade", "one")
    with database.own.connect() as connection:
        # As slow as it can be made: hours for what follows.
        connection.exec_driver_sql(
            "alter table fq_message set (autovacuum_vacuum_threshold = 1, autovacuum_vacuum_cost_limit = 1,"
            " autovacuum_vacuum_cost_delay = 100)"
        )
        connection.exec_driver_sql(
            "insert into fq_message (channel_id, kind, content, dequeue_at, enqueued_at, max_attempts)"
            " select 1, 'parse', '', 0, 0, 1 from generate_series(1, 50000)"
        )
        connection.exec_driver_sql("delete from fq_message where id & 1 = 0")
    vacuums = "select pid from pg_stat_progress_vacuum where relid = 'fq_message'::regclass"
    for way, revision, version in STEPS:
        until(lambda: database.value(vacuums), "autovacuum is at work")
        project.run(way, revision)
        assert database.value("select fq_version()") == version


def test_calls_go_on_beside_a_vacuum(project: Project, empty_database: Database) -> None:
    """While a step waits for somebody's vacuum it holds nobody up, and it goes on afterwards."""
    ladder(project, empty_database)
    project.run("upgrade", "one")
    engine = create_engine(empty_database.url, connect_args={"options": "-c lock_timeout=50ms"})
    queue = Queue(QUEUE)
    waiting = "select pid from pg_locks where mode = 'ShareUpdateExclusiveLock' and not granted"
    for way, revision, version in STEPS:
        with ThreadPoolExecutor(1) as thread, empty_database.own.connect() as vacuum:
            # What a vacuum holds for as long as it runs.
            vacuum.exec_driver_sql("begin; lock table fq_message in share update exclusive mode")
            step = thread.submit(project.run, way, revision)
            until(lambda: step.done() or empty_database.value(waiting), "the step waits")  # noqa: B023 - within it
            with Session(engine) as session, session.begin():
                queue.enqueue(session, channel="a", payload=1)
            [delivery] = queue.dequeue(engine)
            queue.complete(engine, delivery)
            assert not step.done()
            vacuum.exec_driver_sql("commit")
            step.result(PATIENCE.total_seconds())
        assert empty_database.value("select fq_version()") == version
    engine.dispose()
