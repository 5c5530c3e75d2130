"""Bound grants: a call outside of the queues or channels of a grant is refused with QF007, and changes nothing."""

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Connection, Engine, NullPool, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import ChannelPolicy, Enqueue, Queue, Worker
from sqlalchemy_fairqueue.database.errors import refusal_of, sqlstate_of
from sqlalchemy_fairqueue.errors import NotGranted
from sqlalchemy_fairqueue.worker.duties import Samples
from sqlalchemy_fairqueue.worker.leases import ServedQueue
from tests.roles.conftest import SCHEMA, Actor, Installation

if TYPE_CHECKING:
    from collections.abc import Callable

MINE, OTHER = Queue("mine", schema=SCHEMA), Queue("other", schema=SCHEMA)


def job(channel: str) -> Enqueue:
    """A message."""
    return Enqueue(channel=channel, kind="parse", payload=1)


def put(where: Engine | Connection, queue: Queue, *channels: str) -> list[int]:
    """Enqueue there, and commit on an engine."""
    return [one.message_id or 0 for one in queue.enqueue_many(where, map(job, channels))]


def bound(jobs: Installation, kind: str, *, channels: list[str] | None = None) -> Actor:
    """A role whose work is bound to one queue."""
    return jobs.role(kind, kind, queues=["mine"], channels=channels)


def messages(jobs: Installation) -> int:
    """The messages of all queues."""
    found: int = jobs.database.value(f"select count(*) from {SCHEMA}.fq_message")
    return found


def test_channels_of_a_producer(jobs: Installation) -> None:
    """A producer enqueues to and cancels in its channels of its queue; the whole transaction fails elsewhere."""
    actor = bound(jobs, "producer", channels=["a", "b"])
    [theirs] = put(jobs.owner, MINE, "c")
    for channel in ("a", "b"):
        with Session(actor.engine) as session, session.begin():
            receipt = MINE.enqueue(session, channel=channel, kind="parse", payload=1)
        assert MINE.cancel(actor.engine, receipt.message_id or 0).outcome == "cancelled"
    before = messages(jobs)

    with pytest.raises(NotGranted, match=r"producer or loader for queue 'mine' channel 'c'.*op.grant_fairqueue"):
        put(actor.engine, MINE, "c")
    with pytest.raises(NotGranted, match="for queue 'other' channel 'a'"):
        put(actor.engine, OTHER, "a")
    with Session(actor.engine) as session:
        MINE.enqueue_many(session, map(job, "abc"))
        with pytest.raises(NotGranted):
            session.commit()
    with pytest.raises(NotGranted, match="channel 'c'"):
        MINE.cancel(actor.engine, theirs)
    for queue in (MINE, OTHER):
        with pytest.raises(NotGranted):
            queue.groups.list(actor.engine)
    assert messages(jobs) == before
    # A message that is gone is no business of anybody's.
    assert MINE.cancel(actor.engine, 10**9).outcome == "missing"


def test_periods_of_a_producer(jobs: Installation) -> None:
    """A key with a period is enqueued, and a duplicate told, within the channels of the grant alone."""
    actor = bound(jobs, "producer", channels=["a"])

    def keep(engine: Engine, queue: Queue, channel: str, key: str = "k") -> int | None:
        words: dict[str, Any] = {"key": key, "unique_for": timedelta(hours=1)}
        return queue.enqueue(engine, channel=channel, kind="parse", payload=1, **words).message_id

    assert keep(actor.engine, MINE, "a", "new")
    assert keep(jobs.owner, MINE, "a") == keep(actor.engine, MINE, "a")
    for queue, channel in ((MINE, "c"), (OTHER, "a")):
        assert keep(jobs.owner, queue, channel)
        with pytest.raises(NotGranted, match=f"not granted .* for queue '{queue.name}' channel '{channel}'"):
            keep(actor.engine, queue, channel)


def test_bounds_change_at_once(jobs: Installation) -> None:
    """A grant that is widened, or taken back, holds for the next call of a session that is open."""
    actor = bound(jobs, "producer", channels=["a"])
    with actor.engine.connect() as connection:
        with pytest.raises(NotGranted):
            put(connection, MINE, "b")
        connection.rollback()
        jobs.grant(actor.name, "producer", channels=["b", "c"])
        put(connection, MINE, "b")
        connection.commit()
        jobs.grant(actor.name, "producer")
        put(connection, MINE, "b")
        connection.commit()
        jobs.revoke(actor.name)
        with pytest.raises(DBAPIError, match="permission denied"):
            put(connection, MINE, "b")


@pytest.mark.parametrize("kind", ["consumer", "operator"])
def test_queues(jobs: Installation, kind: str) -> None:
    """Every verb of a consumer and of an operator is refused on another queue than those of the grant."""
    actor = bound(jobs, kind)
    put(jobs.owner, MINE, "a")
    [theirs] = put(jobs.owner, OTHER, "a")
    [held] = OTHER.dequeue(jobs.owner)
    before = messages(jobs)
    engine = actor.engine
    letters = OTHER.dead_letters
    settings: list[dict[str, Any]] = [{"max_concurrency": 3}, {"history": True}, {"defaults": ChannelPolicy(weight=3)}]
    verbs: dict[str, list[Callable[[Engine], object]]] = {
        "consumer": [
            OTHER.dequeue,
            *(partial(verb, deliveries=held) for verb in (OTHER.complete, OTHER.retry, OTHER.release, OTHER.extend)),
            partial(OTHER.bury, deliveries=held, reason="no"),
        ],
        "operator": [
            *(OTHER.stats, OTHER.channels, OTHER.pause, letters.list, letters.redrive, letters.purge),
            *(partial(verb, channel="a") for verb in (OTHER.pause, OTHER.resume, OTHER.purge)),
            *(partial(OTHER.configure, **words) for words in settings),
            partial(OTHER.configure_channel, channel="a", weight=2),
            partial(OTHER.cancel, message_id=theirs),
        ],
    }
    for verb in verbs[kind]:
        with pytest.raises(NotGranted, match=f"is not granted .*{kind}.* for queue 'other'"):
            verb(engine)
    assert messages(jobs) == before
    OTHER.complete(jobs.owner, held)

    if kind == "consumer":
        [delivery] = MINE.dequeue(engine)
        MINE.extend(engine, delivery)
        MINE.complete(engine, delivery)
    else:
        MINE.pause(engine, "a")
        MINE.resume(engine, "a")
        MINE.configure(engine, max_concurrency=3)
        assert MINE.stats(engine).ready == 1
        assert MINE.purge(engine, "a").purged == 1


def test_low_level_calls_of_a_consumer(jobs: Installation) -> None:
    """Calls that name a lease or messages instead of a queue are refused by the queue that these are of."""
    actor = bound(jobs, "consumer")
    put(jobs.owner, OTHER, "a", "b")
    held, *_ = OTHER.dequeue(jobs.owner)
    lease = jobs.database.value(f"select lease_id from {SCHEMA}.fq_message where id = {held.message_id}")
    calls = [
        f"fq_heartbeat(array[{lease}]::bigint[], 1000000)",
        f"fq_held({lease})",
        f"fq_refuse('lost', 'other', null, null, array[{held.message_id}]::bigint[], false)",
        f"fq_lock_messages('other', array[{held.message_id}]::bigint[])",
        "fq_wait('other', 'me', null, 1000000)",
        "fq_refuse('full', 'other', 'a', 1, null)",
        "fq_refuse('lost', 'other', null, null, array[1]::bigint[])",
    ]
    _assert_refused(actor, *calls)


def test_what_a_refusal_tells(jobs: Installation) -> None:
    """Who is bound to a channel learns of no bound and of no consumer elsewhere, not by a refusal of its own either."""
    actor = bound(jobs, "producer", channels=["a"])
    put(jobs.owner, OTHER, "a")
    [held] = OTHER.dequeue(jobs.owner)
    calls = [
        "fq_refuse('full', 'mine', 'b', 1, null)",
        "fq_refuse('full', 'other', 'a', 1, null)",
        f"fq_refuse('lost', 'other', 'a', 1, array[{held.message_id}]::bigint[])",
    ]
    _assert_refused(actor, *calls)
    refuse = f"select {SCHEMA}.fq_refuse('lost', 'mine', 'a', 1, array[{held.message_id}]::bigint[])"
    with actor.engine.connect() as connection, pytest.raises(DBAPIError) as told:
        connection.exec_driver_sql(refuse)
    assert '"holder": null' in (refusal_of(told.value).detail or "")


def test_completions_of_an_operator(jobs: Installation) -> None:
    """What was completed is told of the queues of the grant alone."""
    actor = bound(jobs, "operator")
    _assert_refused(actor, "fq_completions('1:1:', array['mine', 'other'])")
    with actor.engine.connect() as connection:
        assert connection.exec_driver_sql(f"select {SCHEMA}.fq_completions('1:1:', array['mine'])").all() == []


def test_samples_of_a_consumer(jobs: Installation, caplog: pytest.LogCaptureFixture) -> None:
    """Samples are kept of the queues of the grant; a worker that may not keep them leaves them to others for good."""
    put(jobs.owner, MINE, "a")
    put(jobs.owner, OTHER, "a")
    actor = bound(jobs, "consumer")
    _assert_refused(actor, "fq_keep_samples(array['mine', 'other'])")
    with actor.engine.connect() as connection:
        assert connection.exec_driver_sql(f"select {SCHEMA}.fq_keep_samples(array['mine'])").scalar_one() == 2
    options = Worker(actor.engine, OTHER)._options
    samples = Samples([ServedQueue(one, options, {}) for one in options.queues], options)
    samples.run()
    samples.run()
    assert sum("leaves samples to others" in record.message for record in caplog.records) == 1


def _assert_refused(actor: Actor, *calls: str) -> None:
    with actor.engine.connect() as connection:
        for call in calls:
            with pytest.raises(DBAPIError, match="is not granted") as refused:
                connection.exec_driver_sql(f"select {SCHEMA}.{call}")
            assert sqlstate_of(refused.value) == "QF007", call
            connection.rollback()


def test_queues_of_a_loader(jobs: Installation) -> None:
    """A loader that is bound to a queue stages what it likes, and merges into that queue alone."""
    actor = bound(jobs, "loader")
    with actor.engine.begin() as connection:
        stage = connection.exec_driver_sql(f"select {SCHEMA}.fq_make_stage(3600000000::bigint)").scalar_one()
    merge = f"'{stage}', '{{}}'::bigint[], 0::bigint, null::bigint, null::text, 'skip', 0::bigint, true"
    calls = (
        f"fq_make_stage_channels('%s', '{stage}', '{{}}'::bigint[], 10, null::jsonb)",
        f"fq_merge('%s', 'job', {merge})",
        "fq_find_load('%s', 'job')",
    )
    _assert_refused(actor, *(call % "other" for call in calls))
    with actor.engine.connect() as connection:
        for call in calls:
            connection.exec_driver_sql(f"select {SCHEMA}.{call}" % "mine")


def test_several_grants(jobs: Installation) -> None:
    """Grants of all roles that a role is a member of add up; each channel needs one that covers it."""
    first, member = jobs.role("first", "producer", channels=["a"]), jobs.role("member")
    second = jobs.role("second", "producer", queues=["mine"], channels=["b"])
    jobs.grant(second.name, "consumer")
    jobs.database.execute(f'grant "{first.name}", "{second.name}" to "{member.name}"')
    with Session(member.engine) as session, session.begin():
        MINE.enqueue_many(session, map(job, "ab"))
    put(member.engine, OTHER, "a")
    for queue, channel in ((OTHER, "b"), (MINE, "c")):
        with pytest.raises(NotGranted):
            put(member.engine, queue, channel)


def test_set_role(jobs: Installation) -> None:
    """SET ROLE decides whose grants bound a call, also where the session's own role is free or the owner."""
    actor = bound(jobs, "producer", channels=["a"])
    url = jobs.database.url.update_query_dict({"options": f"-crole={actor.name}"})
    engine = create_engine(url, poolclass=NullPool)
    put(engine, MINE, "a")
    with pytest.raises(NotGranted):
        put(engine, MINE, "b")
    put(jobs.owner, MINE, "b")


def test_a_renamed_role(jobs: Installation) -> None:
    """Bounds follow a role that is renamed, as its privileges do."""
    actor = bound(jobs, "producer", channels=["a"])
    jobs.database.execute(f'alter role "{actor.name}" rename to "{actor.name}_then"')
    try:
        engine = create_engine(jobs.database.url.set(username=f"{actor.name}_then"), poolclass=NullPool)
        put(engine, MINE, "a")
        with pytest.raises(NotGranted):
            put(engine, MINE, "b")
    finally:
        jobs.database.execute(f'alter role "{actor.name}_then" rename to "{actor.name}"')


def test_a_function_of_the_application(jobs: Installation) -> None:
    """A role without a grant enqueues by a definer function of one that has; the function's text is the bound."""
    sender, web = jobs.role("sender", "producer"), jobs.role("web")
    bound(jobs, "producer", channels=["a"])  # bounds of others are no matter
    jobs.database.execute(
        f'create schema shop authorization "{sender.name}"; grant usage on schema shop to "{web.name}"'
    )
    with sender.engine.begin() as connection:
        connection.exec_driver_sql(
            "create function shop.tell() returns void language sql security definer set search_path = pg_catalog as "
            f"$$ select {SCHEMA}.fq_enqueue('mine', array['x'], array['k'], array[''::bytea], array[null]::jsonb[], "
            "array[null]::bigint[], array[null]::bigint[], array[null]::integer[], array[null]::text[], "
            "array[null]::integer[]) $$"
        )
    with web.engine.begin() as connection:
        connection.exec_driver_sql("select shop.tell()")
    assert messages(jobs) == 1


def test_rows_are_locked_for_nobody(jobs: Installation) -> None:
    """A refused cancel waits for nothing and holds nothing."""
    actor = bound(jobs, "producer", channels=["a"])
    [theirs] = put(jobs.owner, MINE, "c")
    with jobs.owner.connect() as other:
        MINE.cancel(other, theirs)
        with pytest.raises(NotGranted):
            MINE.cancel(actor.engine, theirs)
        other.rollback()


def test_follow_ups_of_groups(jobs: Installation) -> None:
    """A worker that may enqueue to some channels folds groups with follow-ups in all channels of the queue."""
    then = Enqueue(channel="reports", kind="report", payload=1)
    with Session(jobs.owner) as session, session.begin(), MINE.group(session, then=then) as group:
        group.enqueue_many([job("a")])
    actor = bound(jobs, "consumer")
    jobs.grant(actor.name, "producer", queues=["mine"], channels=["a"])
    MINE.complete(actor.engine, MINE.dequeue(actor.engine))
    with actor.engine.begin() as connection:
        connection.exec_driver_sql(f"select {SCHEMA}.fq_fold_groups(100, 100, false)")
    [found] = jobs.database.rows(f"select kind, problem from {SCHEMA}.fq_message, {SCHEMA}.fq_group")
    assert tuple(found) == ("report", None)
    with pytest.raises(NotGranted):
        put(actor.engine, MINE, "reports")
