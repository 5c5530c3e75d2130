"""Bound grants: a call outside of the queues or channels of a grant is refused with QF007, and changes nothing."""

from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest
from sqlalchemy import NullPool, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import ChannelPolicy, Enqueue, Queue, Worker
from sqlalchemy_fairqueue.errors import NotGranted
from sqlalchemy_fairqueue.worker.duties import Samples
from sqlalchemy_fairqueue.worker.leases import ServedQueue
from tests.roles.conftest import SCHEMA, Actor, Installation

if TYPE_CHECKING:
    from collections.abc import Callable

MINE, OTHER = Queue("mine", schema=SCHEMA), Queue("other", schema=SCHEMA)


def put(jobs: Installation, queue: Queue, *channels: str) -> list[int]:
    """Messages that the owner enqueues."""
    with Session(jobs.owner) as session, session.begin():
        made = queue.enqueue_many(session, [Enqueue(channel=one, kind="parse", payload=1) for one in channels])
    return [one.message_id or 0 for one in made]


def bound(jobs: Installation, kind: str, *, channels: list[str] | None = None) -> Actor:
    """A role whose work is bound to one queue."""
    actor = jobs.role(kind)
    jobs.grant(actor.name, kind, queues=["mine"], channels=channels)
    return actor


def messages(jobs: Installation) -> int:
    """The messages of all queues."""
    found: int = jobs.database.value(f"select count(*) from {SCHEMA}.fq_message")
    return found


def test_channels_of_a_producer(jobs: Installation) -> None:
    """A producer enqueues to and cancels in its channels of its queue; the whole transaction fails elsewhere."""
    actor = bound(jobs, "producer", channels=["a", "b"])
    [theirs] = put(jobs, MINE, "c")
    for channel in ("a", "b"):
        with Session(actor.engine) as session, session.begin():
            receipt = MINE.enqueue(session, channel=channel, kind="parse", payload=1)
        assert MINE.cancel(actor.engine, receipt.message_id or 0).outcome == "cancelled"
    before = messages(jobs)

    with pytest.raises(
        NotGranted, match=r"not granted producer or loader for queue 'mine' channel 'c'.*op.grant_fairqueue"
    ):
        MINE.enqueue(actor.engine, channel="c", kind="parse", payload=1)
    with pytest.raises(NotGranted, match="for queue 'other' channel 'a'"):
        OTHER.enqueue(actor.engine, channel="a", kind="parse", payload=1)
    with Session(actor.engine) as session:
        MINE.enqueue_many(session, [Enqueue(channel=one, kind="parse", payload=1) for one in ("a", "b", "c")])
        with pytest.raises(NotGranted):
            session.commit()
    with pytest.raises(NotGranted, match="channel 'c'"):
        MINE.cancel(actor.engine, theirs)
    assert messages(jobs) == before
    # A message that is gone is no business of anybody's.
    assert MINE.cancel(actor.engine, 10**9).outcome == "missing"


def test_periods_of_a_producer(jobs: Installation) -> None:
    """A key with a period is enqueued, and a duplicate told, within the channels of the grant alone."""
    actor, hour = bound(jobs, "producer", channels=["a"]), timedelta(hours=1)
    for queue, channel in ((MINE, "a"), (MINE, "c"), (OTHER, "a")):
        first = queue.enqueue(jobs.owner, channel=channel, kind="parse", payload=1, key="k", unique_for=hour).message_id
        if (queue, channel) == (MINE, "a"):
            assert (
                MINE.enqueue(actor.engine, channel="a", kind="parse", payload=1, key="k", unique_for=hour).message_id
                == first
            )
            assert MINE.enqueue(
                actor.engine, channel="a", kind="parse", payload=1, key="new", unique_for=hour
            ).message_id
            continue
        with pytest.raises(NotGranted, match=f"not granted .* for queue '{queue.name}' channel '{channel}'"):
            queue.enqueue(actor.engine, channel=channel, kind="parse", payload=1, key="k", unique_for=hour)


def test_bounds_change_at_once(jobs: Installation) -> None:
    """A grant that is widened, or taken back, holds for the next call of a session that is open."""
    actor = bound(jobs, "producer", channels=["a"])
    with actor.engine.connect() as connection:

        def enqueue() -> None:
            MINE.enqueue(connection, channel="b", kind="parse", payload=1)
            connection.commit()

        with pytest.raises(NotGranted):
            enqueue()
        connection.rollback()
        jobs.grant(actor.name, "producer", channels=["b", "c"])
        enqueue()
        jobs.grant(actor.name, "producer")
        enqueue()
        jobs.revoke(actor.name)
        with pytest.raises(DBAPIError, match="permission denied"):
            enqueue()


@pytest.mark.parametrize("kind", ["consumer", "operator"])
def test_queues(jobs: Installation, kind: str) -> None:
    """Every verb of a consumer and of an operator is refused on another queue than those of the grant."""
    actor = bound(jobs, kind)
    put(jobs, MINE, "a")
    [theirs] = put(jobs, OTHER, "a")
    [held] = OTHER.dequeue(jobs.owner)
    before = messages(jobs)
    engine = actor.engine
    consumer: list[Callable[[], object]] = [
        lambda: OTHER.dequeue(engine),
        lambda: OTHER.complete(engine, held),
        lambda: OTHER.retry(engine, held),
        lambda: OTHER.release(engine, held),
        lambda: OTHER.bury(engine, held, reason="no"),
        lambda: OTHER.extend(engine, held),
    ]
    operator: list[Callable[[], object]] = [
        lambda: OTHER.stats(engine),
        lambda: OTHER.channels(engine),
        lambda: OTHER.pause(engine),
        lambda: OTHER.pause(engine, "a"),
        lambda: OTHER.resume(engine, "a"),
        lambda: OTHER.configure(engine, max_concurrency=3),
        lambda: OTHER.configure(engine, history=True),
        lambda: OTHER.configure(engine, defaults=ChannelPolicy(weight=3)),
        lambda: OTHER.configure_channel(engine, "a", weight=2),
        lambda: OTHER.cancel(engine, theirs),
        lambda: OTHER.purge(engine, "a"),
        lambda: OTHER.dead_letters.list(engine),
        lambda: OTHER.dead_letters.redrive(engine),
        lambda: OTHER.dead_letters.purge(engine),
    ]
    for verb in consumer if kind == "consumer" else operator:
        with pytest.raises(NotGranted, match=f"is not granted .*{kind}.* for queue 'other'"):
            verb()
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
    put(jobs, OTHER, "a", "b")
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
    _assert_refused(actor, calls, "is not granted")


def test_what_a_refusal_tells(jobs: Installation) -> None:
    """Who is bound to a channel learns of no bound and of no consumer elsewhere, not by a refusal of its own either."""
    actor = bound(jobs, "producer", channels=["a"])
    put(jobs, OTHER, "a")
    [held] = OTHER.dequeue(jobs.owner)
    calls = [
        "fq_refuse('full', 'mine', 'b', 1, null)",
        "fq_refuse('full', 'other', 'a', 1, null)",
        f"fq_refuse('lost', 'other', 'a', 1, array[{held.message_id}]::bigint[])",
    ]
    _assert_refused(actor, calls, "is not granted")
    refuse = f"select {SCHEMA}.fq_refuse('lost', 'mine', 'a', 1, array[{held.message_id}]::bigint[])"
    with actor.engine.connect() as connection, pytest.raises(DBAPIError) as told:
        connection.exec_driver_sql(refuse)
    assert isinstance(told.value.orig, psycopg.Error)
    assert '"holder": null' in (told.value.orig.diag.message_detail or "")


def test_completions_of_an_operator(jobs: Installation) -> None:
    """What was completed is told of the queues of the grant alone."""
    actor = bound(jobs, "operator")
    _assert_refused(actor, ["fq_completions('1:1:', array['mine', 'other'])"], "is not granted")
    with actor.engine.connect() as connection:
        assert connection.exec_driver_sql(f"select {SCHEMA}.fq_completions('1:1:', array['mine'])").all() == []


def test_samples_of_a_consumer(jobs: Installation, caplog: pytest.LogCaptureFixture) -> None:
    """Samples are kept of the queues of the grant; a worker that may not keep them leaves them to others for good."""
    put(jobs, MINE, "a")
    put(jobs, OTHER, "a")
    actor = bound(jobs, "consumer")
    _assert_refused(actor, ["fq_keep_samples(array['mine', 'other'])"], "is not granted")
    with actor.engine.connect() as connection:
        assert connection.exec_driver_sql(f"select {SCHEMA}.fq_keep_samples(array['mine'])").scalar_one() == 2
    options = Worker(actor.engine, OTHER)._options
    samples = Samples([ServedQueue(one, options, {}) for one in options.queues], options)
    samples.run()
    samples.run()
    assert sum("leaves samples to others" in record.message for record in caplog.records) == 1


def _assert_refused(actor: Actor, calls: list[str], why: str) -> None:
    with actor.engine.connect() as connection:
        for call in calls:
            with pytest.raises(DBAPIError, match=why) as refused:
                connection.exec_driver_sql(f"select {SCHEMA}.{call}")
            assert isinstance(refused.value.orig, psycopg.Error)
            assert refused.value.orig.sqlstate == "QF007", call
            connection.rollback()


def test_queues_of_a_loader(jobs: Installation) -> None:
    """A loader that is bound to a queue stages what it likes, and merges into that queue alone."""
    actor = bound(jobs, "loader")
    with actor.engine.connect() as connection:
        stage = connection.exec_driver_sql(f"select {SCHEMA}.fq_make_stage(3600000000::bigint)").scalar_one()
        connection.commit()
        merge = f"'{stage}', '{{}}'::bigint[], 0::bigint, null::bigint, null::text, 'skip', 0::bigint, true"
        calls = {
            queue: [
                f"fq_make_stage_channels('{queue}', '{stage}', '{{}}'::bigint[], 10, null::jsonb)",
                f"fq_merge('{queue}', 'job', {merge})",
                f"fq_find_load('{queue}', 'job')",
            ]
            for queue in ("mine", "other")
        }
        for call in calls["other"]:
            with pytest.raises(DBAPIError, match="is not granted loader for queue 'other'"):
                connection.exec_driver_sql(f"select {SCHEMA}.{call}")
            connection.rollback()
        for call in calls["mine"]:
            connection.exec_driver_sql(f"select {SCHEMA}.{call}")


def test_several_grants(jobs: Installation) -> None:
    """Grants of all roles that a role is a member of add up; each channel needs one that covers it."""
    first, second, member = (jobs.role(name) for name in ("first", "second", "member"))
    jobs.grant(first.name, "producer", channels=["a"])
    jobs.grant(second.name, "producer", queues=["mine"], channels=["b"])
    jobs.grant(second.name, "consumer")
    jobs.database.execute(f'grant "{first.name}", "{second.name}" to "{member.name}"')
    with Session(member.engine) as session, session.begin():
        MINE.enqueue_many(session, [Enqueue(channel=one, kind="parse", payload=1) for one in ("a", "b")])
    OTHER.enqueue(member.engine, channel="a", kind="parse", payload=1)
    for queue, channel in ((OTHER, "b"), (MINE, "c")):
        with pytest.raises(NotGranted):
            queue.enqueue(member.engine, channel=channel, kind="parse", payload=1)


def test_set_role(jobs: Installation) -> None:
    """SET ROLE decides whose grants bound a call, also where the session's own role is free or the owner."""
    actor = bound(jobs, "producer", channels=["a"])
    url = jobs.database.url.update_query_dict({"options": f"-crole={actor.name}"})
    engine = create_engine(url, poolclass=NullPool)
    MINE.enqueue(engine, channel="a", kind="parse", payload=1)
    with pytest.raises(NotGranted):
        MINE.enqueue(engine, channel="b", kind="parse", payload=1)
    MINE.enqueue(jobs.owner, channel="b", kind="parse", payload=1)


def test_a_renamed_role(jobs: Installation) -> None:
    """Bounds follow a role that is renamed, as its privileges do."""
    actor = bound(jobs, "producer", channels=["a"])
    jobs.database.execute(f'alter role "{actor.name}" rename to "{actor.name}_then"')
    try:
        engine = create_engine(jobs.database.url.set(username=f"{actor.name}_then"), poolclass=NullPool)
        MINE.enqueue(engine, channel="a", kind="parse", payload=1)
        with pytest.raises(NotGranted):
            MINE.enqueue(engine, channel="b", kind="parse", payload=1)
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
    [theirs] = put(jobs, MINE, "c")
    with jobs.owner.connect() as other:
        MINE.cancel(other, theirs)
        with pytest.raises(NotGranted):
            MINE.cancel(actor.engine, theirs)
        other.rollback()


def test_follow_ups_of_groups(jobs: Installation) -> None:
    """A worker that may enqueue to some channels folds groups with follow-ups in all channels of the queue."""
    then = Enqueue(channel="reports", kind="report", payload=1)
    with Session(jobs.owner) as session, session.begin(), MINE.group(session, then=then) as group:
        group.enqueue_many([Enqueue(channel="a", kind="parse", payload=1)])
    actor = bound(jobs, "consumer")
    jobs.grant(actor.name, "producer", queues=["mine"], channels=["a"])
    MINE.complete(actor.engine, MINE.dequeue(actor.engine))
    with actor.engine.begin() as connection:
        connection.exec_driver_sql(f"select {SCHEMA}.fq_fold_groups(100, 100, false)")
    [found] = jobs.database.rows(f"select kind, problem from {SCHEMA}.fq_message, {SCHEMA}.fq_group")
    assert tuple(found) == ("report", None)
    with pytest.raises(NotGranted):
        MINE.enqueue(actor.engine, channel="reports", kind="parse", payload=1)
