"""Schedules as producers and operators use them: made in the caller's transaction, changed, paused, run, listed."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import ChannelFull, ChannelPolicy, InvalidArgument, Queue, Recurrence
from sqlalchemy_fairqueue.errors import LockOrderError, UnknownSchedule
from sqlalchemy_fairqueue.reports import ScheduleInfo
from sqlalchemy_fairqueue.values.messages import Enqueue
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database

pytestmark = pytest.mark.installed

queue = Queue("documents")
NIGHTLY = {"cron": "0 3 * * *", "timezone": "Europe/Berlin", "kind": "report", "payload": {"run": 1}}


def nightly(where: Engine, channel: str = "a", **words: object) -> None:
    """Schedule it."""
    queue.schedules.set(where, "nightly", channel=channel, **{**NIGHTLY, **words})  # type: ignore[call-overload]


def only(where: Engine) -> ScheduleInfo:
    """The only schedule."""
    [found] = queue.schedules.list(where)
    return found


def test_made_with_the_callers_commit(engine: Engine) -> None:
    """A schedule exists from the commit of the session on, and never if that rolls back."""
    with Session(engine) as session:
        queue.schedules.set(session, "nightly", channel="a", cron="0 3 * * *")
        session.rollback()
    assert queue.schedules.list(engine) == []
    with Session(engine) as session, session.begin():
        queue.schedules.set(session, "nightly", channel="a", cron="0 3 * * *")
        savepoint = session.begin_nested()
        queue.schedules.set(session, "hourly", channel="a", cron="0 * * * *")
        savepoint.rollback()
        queue.enqueue(session, channel="a", payload=1)
        assert queue.schedules.list(engine) == []
    assert [one.name for one in queue.schedules.list(engine)] == ["nightly"]


def test_everything_about_it(engine: Engine) -> None:
    """What is asked for is told, the next slot before any worker has seen it: of an interval, one after the call."""
    nightly(engine, catch_up="all", jitter=timedelta(minutes=5), max_attempts=3)
    found = only(engine)
    assert (found.queue, found.channel, found.name, found.kind) == ("documents", "a", "nightly", "report")
    assert (found.cron, found.timezone, found.every) == ("0 3 * * *", "Europe/Berlin", None)
    assert (found.catch_up, found.jitter, found.max_attempts, found.in_code) == ("all", timedelta(minutes=5), 3, False)
    assert (found.state, found.content_size) == ("active", len(b'{"run":1}'))
    assert (found.last_slot_at, found.problem) == (None, None)
    assert found.next_run_at is not None
    assert found.next_run_at > found.created_at
    assert found.next_run_at.minute == 0
    queue.schedules.set(engine, "poll", channel="b", every=timedelta(hours=6))
    [_, poll] = queue.schedules.list(engine)
    assert poll.next_run_at == poll.created_at + timedelta(hours=6)


def test_the_same_again_changes_nothing(engine: Engine, clock: Clock) -> None:
    """A deployment that schedules again leaves the slots as they are; another payload does so too. After a change of
    the expression no slot before it is made up for.
    """
    nightly(engine)
    before = only(engine)
    clock.advance(timedelta(hours=30))
    nightly(engine)
    assert only(engine).changed_at == before.changed_at
    nightly(engine, payload={"run": 2})
    after = only(engine)
    assert after.changed_at > before.changed_at
    assert after.next_run_at == before.next_run_at
    nightly(engine, cron="30 4 * * *")
    assert (only(engine).next_run_at or before.created_at) > clock.now()


def test_paused_and_resumed(engine: Engine, clock: Clock) -> None:
    """While it is paused it has no next slot, and then the first one after now."""
    nightly(engine)
    queue.schedules.pause(engine, "nightly", channel="a")
    queue.schedules.pause(engine, "nightly", channel="a")
    paused = only(engine)
    assert (paused.state, paused.next_run_at) == ("paused", None)
    nightly(engine, payload=2)
    assert only(engine).state == "paused"
    clock.advance(timedelta(days=3))
    queue.schedules.resume(engine, "nightly", channel="a")
    found = only(engine)
    assert (found.state, found.paused_at) == ("active", None)
    assert (found.next_run_at or paused.created_at) > clock.now()


def test_each_tenant_has_its_own(engine: Engine) -> None:
    """A name belongs to a channel: a schedule that the channel does not have, or not any more, is refused by name."""
    for channel in "ab":
        nightly(engine, channel)
    for _ in range(2):
        queue.schedules.remove(engine, "nightly", channel="a")
    assert only(engine).channel == "b"
    for verb in queue.schedules.pause, queue.schedules.resume, queue.schedules.run:
        with pytest.raises(UnknownSchedule) as error:
            verb(engine, "nightly", channel="a")
        assert (error.value.channel, error.value.schedule) == ("a", "nightly")


def test_run_by_hand(engine: Engine) -> None:
    """Its message is enqueued at once, also while it is paused, without a slot; it is for the time of the call. A bound
    of the channel holds for it as for an enqueue.
    """
    queue.configure_channel(engine, "a", ChannelPolicy(max_backlog=1))
    nightly(engine, headers={"trace": "x"})
    queue.schedules.pause(engine, "nightly", channel="a")
    before = only(engine).created_at
    message_id = queue.schedules.run(engine, "nightly", channel="a")
    [delivery] = queue.dequeue(engine)
    assert (delivery.message_id, delivery.kind, delivery.payload) == (message_id, "report", {"run": 1})
    headers = dict(delivery.headers or {})
    assert before <= datetime.fromisoformat(headers.pop("scheduled_for")) <= delivery.enqueued_at
    assert headers == {"trace": "x", "schedule": "nightly"}
    assert only(engine).last_slot_at is None
    queue.schedules.run(engine, "nightly", channel="a")
    with pytest.raises(ChannelFull):
        queue.schedules.run(engine, "nightly", channel="a")


def test_run_by_hand_in_the_lock_order(engine: Engine) -> None:
    """In a transaction it counts as an enqueue: it cannot follow a later channel or a settlement, nor go before one."""
    nightly(engine)
    nightly(engine, "b")
    queue.enqueue(engine, channel="c", payload=1)
    delivered = queue.dequeue(engine)
    with engine.connect() as connection:
        queue.enqueue(connection, channel="b", payload=1)
        with pytest.raises(LockOrderError, match=r"channel 'a' .* after channel 'b'"):
            queue.schedules.run(connection, "nightly", channel="a")
    with Session(engine) as session:
        queue.enqueue(session, channel="a", payload=1)
        queue.schedules.run(session, "nightly", channel="b")
        with pytest.raises(LockOrderError, match=r"schedules\.run is sent at once"):
            session.commit()
    with engine.connect() as connection:
        queue.complete(connection, delivered)
        with pytest.raises(LockOrderError, match="after a completion"):
            queue.schedules.run(connection, "nightly", channel="a")
    assert queue.stats(engine).ready == 0


def test_its_messages_have_its_ordering_key(engine: Engine) -> None:
    """It is one of the schedule, or of its prepared job, and another one is a change."""
    nightly(engine, ordering_key="reports")
    assert only(engine).ordering_key == "reports"
    ids = [queue.schedules.run(engine, "nightly", channel="a") for _ in range(2)]
    [delivery] = queue.dequeue(engine, limit=2)
    assert (delivery.message_id, delivery.ordering_key) == (ids[0], "reports")
    job = Enqueue(channel="a", payload={"run": 1}, kind="report", ordering_key="others")
    queue.schedules.set(engine, "nightly", cron="0 3 * * *", timezone="Europe/Berlin", job=job)
    assert only(engine).ordering_key == "others"
    nightly(engine)
    assert only(engine).ordering_key is None


def test_pages(engine: Engine) -> None:
    """Schedules come by channel and name, page by page, of a channel, or of a name."""
    for channel in "cab":
        for name in ("two", "one"):
            queue.schedules.set(engine, name, channel=channel, every=timedelta(hours=1))
    names = [(one.channel, one.name) for one in queue.schedules.list(engine)]
    assert names == [(channel, name) for channel in "abc" for name in ("one", "two")]
    page = queue.schedules.list(engine, limit=4)
    assert [(one.channel, one.name) for one in queue.schedules.list(engine, after=page[-1])] == names[4:]
    assert [one.name for one in queue.schedules.list(engine, channel="b")] == ["one", "two"]
    assert [one.channel for one in queue.schedules.list(engine, name="two")] == ["a", "b", "c"]


def test_a_prepared_job(engine: Engine) -> None:
    """A typed job gives the message, by queue.schedule and by its own method."""
    other = Queue("documents")

    @other.job
    def parse(*, upload: str, pages: int = 1) -> None:
        raise AssertionError(upload, pages)

    other.schedules.set(engine, "one", cron="0 3 * * *", job=parse.prepare("a", upload="x"))
    parse.schedule(engine, "two", Recurrence(every=timedelta(hours=1)), "a", upload="y", pages=2)
    assert [one.kind for one in other.schedules.list(engine)] == ["parse", "parse"]
    other.schedules.run(engine, "two", channel="a")
    [delivery] = other.dequeue(engine)
    assert delivery.payload == {"upload": "y", "pages": 2}


def test_refused_at_the_call(engine: Engine) -> None:
    """What cannot be scheduled is refused, and nothing is kept."""
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"name": ""}, "schedule '' has 0 bytes"),
        ({"channel": None}, "there is no channel"),
        ({"job": Enqueue(channel="b", payload=1)}, "job has the channel"),
        ({"channel": None, "job": Enqueue(channel="b", payload=1, key="k")}, "job has key, which"),
        ({"channel": None, "job": Enqueue(channel="b", payload=1, cost=5)}, "job has cost, which"),
        ({"channel": None, "job": 1}, "job is 1; give a prepared call"),
        ({"ordering_key": ""}, "ordering_key"),
        ({"headers": {"x": "y" * 65_520}}, "65,536 bytes"),
        ({"cron": "0 25 * * *"}, "bad hour"),
    ]
    for words, said in wrong:
        with pytest.raises(InvalidArgument, match=said):
            queue.schedules.set(engine, **{"name": "nightly", "channel": "a", "cron": "0 3 * * *", **words})
    assert queue.schedules.list(engine) == []


def test_refused_by_the_database(database: Database) -> None:
    """The function refuses what the table would, and names the argument."""
    for bad, named in (
        ("null, null, null, 'last', 0", "cron is null"),
        ("'0 3 * * *', 'UTC', 1000000, 'last', 0", r"cron is '0 3 \* \* \*', and every is 1000000"),
        ("'0 3 * * *', null, null, 'last', 0", "timezone is null"),
        ("null, null, 999999, 'last', 0", "every is 999999"),
        ("null, null, 1000000, 'never', 0", "catch_up is 'never'"),
        ("null, null, 1000000, 'last', -1", "jitter is -1"),
        ("null, null, 1000000, 'last', null", "jitter is null"),
    ):
        call = f"select fq_set_schedule('documents', 'a', 'nightly', {bad}, 'report', '', null, 20, null, false, 'k')"
        with pytest.raises(DBAPIError, match=f"schedule nightly of fq_set_schedule has a bad value: {named}"):
            database.execute(call)


def test_sessions_lock_schedules_in_one_order(engine: Engine) -> None:
    """Changes of several schedules are sent by channel and name, whatever the order of the calls."""
    for channel in "ab":
        nightly(engine, channel)
    with Session(engine) as first, first.begin():
        queue.schedules.pause(first, "nightly", channel="b")
        queue.schedules.remove(first, "nightly", channel="a")
    assert [(one.channel, one.state) for one in queue.schedules.list(engine)] == [("b", "paused")]
