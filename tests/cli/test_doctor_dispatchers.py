"""Findings of doctor about the dispatch row of a queue, which a session keeps: nobody hears of new messages."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest
from sqlalchemy import Connection, Engine, NullPool, create_engine, text

from tests.cli.messages import QUEUE, Findings, enqueue, lease, levels
from tests.cli.test_installation import role
from tests.fixtures.connections import Connect
from tests.fixtures.database import Database
from tests.fixtures.waits import Waits
from tests.worker.helpers import until

Meanwhile = Callable[[Callable[[], object]], None]

_QUEUES = "sqlalchemy_fairqueue.doctor.queues"
_SAMPLES = "sqlalchemy_fairqueue.doctor.findings"
_PID = "select pg_backend_pid()"
# By what anybody can read, as in psql: the functions of the queue are not needed for it.
_BY_HAND = """
    select pg_advisory_lock(hashtextextended(n.name, s.seed)), pg_advisory_lock(s.seed),
      pg_advisory_lock(hashtext(n.name)), pg_advisory_lock(s.seed::integer, hashtext(n.name))
    from (values ('documents'), ('a'), ('fq_keep_history'), ('')) n(name)
    cross join (
      select unnest(array[c.oid, c.reltype])::bigint as seed
      from pg_class c
      where c.relname like 'fq%' and c.relkind in ('r', 'p')
      union all
      select 0
    ) s
"""


@pytest.fixture(autouse=True)
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    """Doctor does not wait between its samples, and calls ``do`` meanwhile: ``meanwhile(do)``. Ages are young."""

    def between(do: Callable[[], object]) -> None:
        monkeypatch.setattr(f"{_SAMPLES}.sleep", lambda _seconds: do())

    between(lambda: None)
    monkeypatch.setattr(f"{_QUEUES}._HELD_LONG", timedelta(days=1))
    return between


def _serve(engine: Engine) -> None:
    """Deliver a message, and leave another."""
    for _ in range(2):
        enqueue(engine, "a")
    assert len(lease(engine, 1)) == 1


def _dequeuing(engine: Engine, connect: Connect) -> tuple[Connection, Connection]:
    """Leave two dequeues open, of which the first attends to the queue; return their connections."""
    enqueue(engine, "a", "b", "c")
    assert len(lease(engine, 1)) == 1
    enqueue(engine, "d")
    both = connect(), connect()
    for dequeuing in both:
        assert len(dequeuing.exec_driver_sql("select from fq_dequeue('documents', 1, 60000000, 'me')").all()) == 2
    return both


def test_a_change_of_a_limit_that_stays_open(
    findings: Findings, engine: Engine, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction that has changed a queue's limit and stays open is told; ended as the remedy says, all goes on."""
    _serve(engine)
    other = create_engine(database.url, poolclass=NullPool, connect_args={"application_name": "settings page"})
    with other.connect() as changing:
        QUEUE.configure(changing, max_concurrency=2)
        pid = changing.exec_driver_sql(_PID).scalar_one()
        assert lease(engine) == []

        [told] = findings("dispatchers")

        assert told["level"] == "warning"
        assert told["message"].startswith(
            f"queue 'documents': backend {pid} (postgres, settings page) keeps its dispatch row and its transaction is "
            "open for"
        )
        assert told["values"].pop("open_seconds") > 0
        assert [told["values"][name] for name in ("pid", "state", "waiting")] == [pid, "idle in transaction", None]
        monkeypatch.setattr(f"{_QUEUES}._HELD_LONG", timedelta())
        assert levels(findings("dispatchers")) == ["problem"]
        assert told["remedy"].endswith(f"select pg_terminate_backend({pid});")
        database.execute(told["remedy"].partition(": ")[2])
        changing.invalidate()
    until(lambda: lease(engine), "the queue is dequeued again")
    assert levels(findings("dispatchers")) == ["ok"]


def test_a_change_of_a_limit_that_ends(
    findings: Findings, engine: Engine, connect: Connect, meanwhile: Meanwhile
) -> None:
    """A change that is over at the next sample is no reason to complain, however long its transaction was open."""
    _serve(engine)
    changing = connect()
    QUEUE.configure(changing, max_concurrency=2)
    meanwhile(changing.commit)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{_QUEUES}._HELD_LONG", timedelta())
        assert levels(findings("dispatchers")) == ["ok"]


def test_advisory_locks_stop_nothing(engine: Engine, database: Database, waits: Waits) -> None:
    """A role without any right takes every advisory lock whose key it can guess: deliveries, limits and housekeeping go
    on.
    """
    enqueue(engine, "a")
    enqueue(engine, "a")
    guest = f"{database.name}_guest"
    with role(database, guest):
        database.execute(f'alter role "{guest}" login')
        other = create_engine(database.url.set(username=guest), poolclass=NullPool, isolation_level="AUTOCOMMIT")
        with other.connect() as idle:
            idle.execute(text(_BY_HAND))
            assert len(waits.unhindered(lambda rival: lease(rival, 1))) == 1
            for most in (5, None, 6):
                waits.unhindered(partial(QUEUE.configure, max_concurrency=most))
            waits.unhindered(lambda rival: QUEUE.configure_channel(rival, "a", max_concurrency=3))
            assert len(waits.unhindered(lambda rival: lease(rival, 1))) == 1
            assert database.value("select count(*) from fq_keep_history()") > 0


def test_dequeues_that_stay_open(findings: Findings, engine: Engine, connect: Connect, meanwhile: Meanwhile) -> None:
    """The one that attends to the queue is told: nobody else hears of messages. Others hinder nobody."""
    attending, _ = _dequeuing(engine, connect)

    [told] = findings("dispatchers")

    assert (told["values"]["pid"], told["values"]["waiting"]) == (attending.exec_driver_sql(_PID).scalar_one(), None)
    assert "keeps its dispatch row and its transaction is open for" in told["message"]
    assert "nobody hears of its new messages" in told["message"]
    meanwhile(attending.commit)
    assert levels(findings("dispatchers")) == ["ok"]


def test_a_change_of_a_limit_that_waits(
    findings: Findings, engine: Engine, database: Database, connect: Connect, waits: Waits
) -> None:
    """Whoever waits to change the limit keeps dequeues away too: told is for whom it waits."""
    attending, sharing = _dequeuing(engine, connect)
    pid = sharing.exec_driver_sql(_PID).scalar_one()
    attending.commit()
    changing = waits.start(lambda rival: QUEUE.configure(rival, max_concurrency=2)).blocked()

    [told] = findings("dispatchers")

    waiting = database.value(
        "select pid from pg_stat_activity where datname = current_database() and application_name = :name",
        name=changing.name,
    )
    assert (told["values"]["pid"], told["values"]["waiting"]) == (pid, waiting)
    assert f"keeps backend {waiting} waiting, which has its dispatch row, and its transaction" in told["message"]
    sharing.commit()
    changing.result()
    assert levels(findings("dispatchers")) == ["ok"]


def test_prepared_transactions(findings: Findings, engine: Engine, database: Database, connect: Connect) -> None:
    """A prepared transaction keeps the row without a session: told by its name, with what ends it."""
    _serve(engine)
    preparing = connect()
    preparing.exec_driver_sql("select fq_limit_queue('documents', '{\"max_concurrency\": 2}', false)")
    preparing.exec_driver_sql("prepare transaction 'the queue''s'")
    try:
        [told] = findings("dispatchers")
    finally:
        database.execute("rollback prepared 'the queue''s'")

    assert (told["values"]["gid"], told["values"]["pid"], told["level"]) == ("the queue's", None, "warning")
    assert "of 'postgres' keeps its dispatch row since it was prepared" in told["message"]
    assert told["remedy"].endswith("commit prepared 'the queue''s'; or: rollback prepared 'the queue''s';")
    assert levels(findings("dispatchers")) == ["ok"]


def test_rows_that_other_roles_keep(findings: Findings, database: Database, engine: Engine, connect: Connect) -> None:
    """For how long another role keeps a row may be hidden: it is told all the same, with whatever can be seen."""
    _serve(engine)
    changing = connect()
    QUEUE.configure(changing, max_concurrency=2)
    pid = changing.exec_driver_sql(_PID).scalar_one()
    name = f"{database.name}_Watcher"
    with role(database, name, "select on all tables in schema public") as url:
        [hidden] = findings("dispatchers", "--database-url", url)

        assert (hidden["level"], hidden["values"]["pid"], hidden["values"]["user"]) == ("warning", pid, "postgres")
        assert hidden["values"]["open_seconds"] is None
        assert f"keeps its dispatch row for how long role '{name}' may not see: nobody" in hidden["message"]
        assert f"pg_terminate_backend({pid})" in hidden["remedy"]
        database.execute(f'grant pg_read_all_stats to "{name}"')
        [seen] = findings("dispatchers", "--database-url", url)
        assert seen["values"]["open_seconds"] > 0
