"""The housekeeping of workers."""

import logging
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text

from sqlalchemy_fairqueue import InvalidArgument, Queue, Worker
from sqlalchemy_fairqueue.worker.duties import Housekeeping
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database
from tests.fixtures.options import PATIENCE
from tests.fixtures.waits import Waits
from tests.worker.helpers import retimed, until


def _housekeeping(engine: Engine, schema: str | None = None) -> Housekeeping:
    return Housekeeping(Worker(engine, Queue("documents", schema=schema))._options)


_DAYS = "select count(*) from pg_class where relname like 'fq_history_p2%'"


def test_partitions_are_made_ahead(handled: Queue, engine: Engine, database: Database) -> None:
    """A worker's first round comes within the time for that, in a thread of its own, and makes those of the next days.

    It does no harm when it is done again.
    """
    before = database.value(_DAYS)
    with retimed(Worker(engine, handled), housekeeping_first=0.0):
        until(lambda: database.value(_DAYS) >= 8, "it is done")
    made = database.value(_DAYS)
    assert made > before
    housekeeping = _housekeeping(engine)
    housekeeping.start()
    assert housekeeping._round is not None
    housekeeping._round.result()
    assert database.value(_DAYS) == made


def test_workers_keep_samples(handled: Queue, engine: Engine, database: Database, clock: Clock) -> None:
    """Two workers keep samples of their queues, together one a minute."""
    handled.configure(engine, history=True)
    first, second = (retimed(Worker(engine, handled), samples_every=0.01) for _ in range(2))
    counted = "select count(distinct at) from fq_sample where queue = :queue"
    with first, second:
        for minutes in (1, 2, 3):
            until(lambda: database.value(counted, queue=handled.name) >= minutes, "a sample is kept")  # noqa: B023
            clock.advance(timedelta(minutes=1))
    assert database.value("select count(*) = count(distinct (queue, at)) from fq_sample where channel = ''")


def test_timeouts_of_the_role_do_not_hold(database: Database) -> None:
    """Many large rows take longer than a role lets a user's statement take, and would never be deleted."""
    database.execute(
        """
        create function slowly() returns trigger language plpgsql as 'begin perform pg_sleep(0.3); return old; end';
        create trigger slowly before delete on fq_key_period for each row execute function slowly();
        """
    )
    queue = Queue("documents")
    # Those that this version of the server has.
    names = "select name from pg_settings where name in ('statement_timeout', 'transaction_timeout')"
    timeouts = " ".join(f"-c {row.name}=250ms" for row in database.rows(names))
    engine = create_engine(database.url, connect_args={"options": timeouts})
    queue.enqueue(engine, channel="a", payload=1, key="a", unique_for=timedelta(microseconds=1))
    _housekeeping(engine).run()
    engine.dispose()
    assert database.value("select count(*) from fq_key_period") == 0


def test_a_round_ends_with_its_worker(queue: Queue, engine: Engine, waits: Waits) -> None:
    """A worker that stops lets the statement end that is under way, and nothing further begins."""
    worker = retimed(Worker(engine, queue), stop_dequeue=PATIENCE.total_seconds())
    housekeeping = Housekeeping(worker._options)
    with engine.connect() as holder:
        holder.execute(text("lock table fq_queue in access exclusive mode"))
        housekeeping.start()
        round_of_it = housekeeping._round
        assert round_of_it is not None
        waits.until("select pid from pg_stat_activity where wait_event_type = 'Lock' and query like '%fq_%'")
        stop = waits.start(lambda _: housekeeping.stop())
        until(lambda: housekeeping._stopping, "it is asked to stop")
    stop.result()
    assert round_of_it.done()
    housekeeping.start()
    assert housekeeping._round is round_of_it


def test_failures_are_logged(queue: Queue, engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """What fails is logged, and left for the next round; of a statement the log has what the server said, on a line."""
    days: Any = "a week"
    worker = retimed(Worker(engine, queue), history_days=days)
    _housekeeping(engine, "nowhere").run()
    assert "housekeeping" in caplog.text
    Housekeeping(worker._options).run()
    # Others may still be at their last round.
    [record] = [one for one in caplog.records if vars(one)["worker"] == worker.name]
    assert 'invalid input syntax for type integer: "a week"' in record.message
    assert "\n" not in record.message
    assert "SQL" not in record.message


def test_idle_channels_are_forgotten(queue: Queue, engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """Channels without work go after the queue's time, those with some, or with a policy of their own, stay.

    With None nothing is forgotten; a bad time is refused.
    """
    queue.configure(engine, forget_channels_after=timedelta(microseconds=1))
    queue.configure_channel(engine, "configured", weight=2)
    for channel in ("done", "waiting"):
        queue.enqueue(engine, channel=channel, payload=1)
    queue.complete(engine, queue.dequeue(engine, limit=1))
    housekeeping = _housekeeping(engine)
    queue.configure(engine, forget_channels_after=None)
    housekeeping.run()
    assert len(queue.channels(engine)) == 3
    with pytest.raises(InvalidArgument, match="forget_channels_after is 5"):
        queue.configure(engine, forget_channels_after=5)  # type: ignore[call-overload]
    queue.configure(engine, forget_channels_after=timedelta(microseconds=1))
    with caplog.at_level(logging.INFO, "sqlalchemy_fairqueue.worker"):
        # A connection that begins counts for a moment.
        while len(queue.channels(engine)) > 2:
            housekeeping.run()
    assert [one.channel for one in queue.channels(engine)] == ["configured", "waiting"]
    assert "1 idle channels forgotten" in caplog.text
    assert "trying again" not in caplog.text
    queue.enqueue(engine, channel="done", payload=2)
    assert [one.channel for one in queue.dequeue(engine, limit=9)] == ["waiting", "done"]
