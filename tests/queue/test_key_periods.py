"""Keys that stay taken for a period, counted from the enqueue or from the end of the message."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import ChannelPolicy, Delivery, DuplicateMessage, Enqueue, InvalidArgument, Queue, Receipt
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database
from tests.queue.periods import HOUR, SECOND, complete_all, enqueue_key

_ROWS = "select count(*) from fq_key_period"


End = Callable[[Queue, Engine, Delivery], object]


def _cancel(queue: Queue, engine: Engine, delivery: Delivery) -> None:
    queue.cancel(engine, delivery.message_id)
    queue.release(engine, delivery)


def _withdraw(queue: Queue, engine: Engine, delivery: Delivery) -> None:
    queue.release(engine, delivery)
    queue.cancel(engine, delivery.message_id)


def _purge(queue: Queue, engine: Engine, delivery: Delivery) -> None:
    queue.release(engine, delivery)
    assert queue.purge(engine, delivery.channel).purged == 1


ENDS: dict[str, End] = {
    "completed": lambda queue, engine, delivery: queue.complete(engine, delivery),
    "dead": lambda queue, engine, delivery: queue.bury(engine, delivery, reason="poison"),
    "cancelled while leased": _cancel,
    "cancelled": _withdraw,
    "purged": _purge,
}


def test_each_end(engine: Engine, clock: Clock) -> None:
    """From the enqueue on, or while its message lives and then for the period, a key is taken, however that ends."""
    for end, settle in ENDS.items():
        queue = Queue(end)
        counted: dict[str, Receipt] = {}
        for channel in ("enqueue", "completion"):
            counted[channel] = enqueue_key(queue, engine, channel=channel, unique_from=channel)
        clock.advance(HOUR / 2)
        deliveries = {one.channel: one for one in queue.dequeue(engine, limit=2, lease=12 * HOUR)}
        settle(queue, engine, deliveries["enqueue"])
        clock.advance(HOUR / 2 - SECOND)
        for channel, first in counted.items():
            again = enqueue_key(queue, engine, channel=channel, unique_from=channel)
            assert (again.outcome, again.created, again.message_id) == ("duplicate", False, first.message_id)
        clock.advance(SECOND)
        assert enqueue_key(queue, engine, channel="enqueue").created
        clock.advance(3 * HOUR)
        assert enqueue_key(queue, engine, channel="completion").message_id == counted["completion"].message_id
        settle(queue, engine, deliveries["completion"])
        clock.advance(HOUR - SECOND)
        assert enqueue_key(queue, engine, channel="completion").message_id == counted["completion"].message_id
        clock.advance(SECOND)
        assert enqueue_key(queue, engine, channel="completion").created


def test_retries_and_expired_leases_do_not_end_it(queue: Queue, engine: Engine, clock: Clock) -> None:
    """A message that comes back has not ended: its period, counted from the completion, has not begun."""
    enqueue = partial(enqueue_key, queue, engine, unique_from="completion")
    first = enqueue()
    queue.retry(engine, queue.dequeue(engine))
    clock.advance(2 * HOUR)
    queue.dequeue(engine, lease=SECOND)
    clock.advance(2 * HOUR)
    [delivery] = queue.dequeue(engine)
    assert enqueue().message_id == delivery.message_id == first.message_id


def test_channels_and_queues_have_their_own(queue: Queue, engine: Engine) -> None:
    """A period is one of a key in a channel of a queue."""
    enqueue_key(queue, engine)
    assert enqueue_key(queue, engine, channel="b").created
    assert enqueue_key(queue, engine, key="other").created
    assert enqueue_key(Queue("others"), engine).created


def test_raise(queue: Queue, engine: Engine, database: Database) -> None:
    """It names the message that began the period, though that has ended: at a COMMIT, at once, and in a batch."""
    first = enqueue_key(queue, engine, on_duplicate="raise")
    complete_all(queue, engine)
    words: dict[str, Any] = {"channel": "a", "payload": 1, "key": "k", "unique_for": HOUR, "on_duplicate": "raise"}
    with pytest.raises(DuplicateMessage, match=f"message {first.message_id} holds it .* or for its unique_for"):
        enqueue_key(queue, engine, on_duplicate="raise")
    with Session(engine) as session:
        with pytest.raises(DuplicateMessage):
            queue.enqueue(session.connection(), **words)
        queue.enqueue(session.connection(), channel="a", payload="goes on")
        session.commit()
    with pytest.raises(DuplicateMessage) as caught:
        queue.enqueue_many(engine, [Enqueue(channel="a", payload=2), Enqueue(**words)])
    assert (caught.value.channel, caught.value.key, caught.value.message_id) == ("a", "k", first.message_id)
    assert database.value("select count(*) from fq_message") == 1


def test_one_call(queue: Queue, engine: Engine, database: Database) -> None:
    """In one call each message meets those before it; those with and without a period keep their order and receipts."""
    ended = enqueue_key(queue, engine, key="ended")
    complete_all(queue, engine)
    one = partial(Enqueue, channel="a", unique_for=HOUR)
    receipts = queue.enqueue_many(
        engine,
        [
            one(payload=1, key="ended"),
            Enqueue(channel="a", payload=2),
            one(payload=3, key="new"),
            one(payload=4, key="new"),
            one(payload=5, key="new", on_duplicate="replace", unique_from="completion"),
            Enqueue(channel="b", payload=6, key="ended"),
            one(payload=7, key="ended", on_duplicate="replace"),
            Enqueue(channel="a", payload=8, key="plain"),
        ],
    )
    outcomes = ["duplicate", "created", "created", "duplicate", "replaced", "created", "duplicate", "created"]
    assert [one.outcome for one in receipts] == outcomes
    assert receipts[0].message_id == receipts[6].message_id == ended.message_id
    assert receipts[2].message_id == receipts[3].message_id == receipts[4].message_id
    found = queue.dequeue(engine, limit=10)
    assert sorted(delivery.payload for delivery in found) == [2, 5, 6, 8]
    assert [delivery.payload for delivery in found if delivery.channel == "a" and delivery.payload != 5] == [2, 8]
    kept = "select string_agg(key, ' ' order by key) from fq_key_period where expires_at is null"
    assert database.value(kept) == "new"


def test_nothing_but_duplicates(queue: Queue, engine: Engine, database: Database) -> None:
    """A call of which nothing is left adds nothing and signals nothing."""
    keys = [f"{number}" for number in range(5)]
    messages = [Enqueue(channel="a", payload=1, key=key, unique_for=HOUR) for key in keys]
    assert all(one.created for one in queue.enqueue_many(engine, messages))
    complete_all(queue, engine)
    signals = database.value("select count(*) from fq_signal")
    assert not any(one.created for one in queue.enqueue_many(engine, messages))
    assert database.value("select count(*) from fq_signal") == signals


def test_enqueue_and_end_in_one_transaction(queue: Queue, engine: Engine) -> None:
    """A message that its own transaction cancels has existed: its period holds from the commit on."""
    for unique_from in ("enqueue", "completion"):
        with Session(engine) as session:
            message_id = queue.enqueue(
                session.connection(), channel=unique_from, payload=1, key="k", unique_for=HOUR, unique_from=unique_from
            ).message_id
            assert message_id is not None
            queue.cancel(session, message_id)
            session.commit()
        assert enqueue_key(queue, engine, channel=unique_from).message_id == message_id
    assert queue.dequeue(engine) == []


def test_what_is_not_added_begins_no_period(queue: Queue, engine: Engine, database: Database) -> None:
    """A full channel that drops it leaves the key free."""
    queue.configure_channel(engine, "a", ChannelPolicy(max_backlog=1, on_full="drop"))
    queue.enqueue(engine, channel="a", payload=1)
    assert enqueue_key(queue, engine).outcome == "dropped"
    assert database.value(_ROWS) == 0


def test_a_message_that_vanished(queue: Queue, engine: Engine, database: Database) -> None:
    """Where a message was removed past its trigger, its key is free: nothing would ever begin the period."""
    enqueue_key(queue, engine, unique_from="completion")
    database.execute("truncate fq_message")
    assert enqueue_key(queue, engine, unique_from="completion").created
    assert not enqueue_key(queue, engine).created


def test_a_forgotten_channel(queue: Queue, engine: Engine) -> None:
    """A channel that is deleted and made again still has the periods of its keys."""
    first = enqueue_key(queue, engine)
    complete_all(queue, engine)
    with engine.begin() as connection:
        connection.exec_driver_sql("delete from fq_signal")
        connection.exec_driver_sql("delete from fq_channel_state")
        connection.exec_driver_sql("delete from fq_channel")
    assert enqueue_key(queue, engine).message_id == first.message_id


def test_members_of_groups(engine: Engine) -> None:
    """A duplicate of a message that has ended is no member; follow-ups have no period."""
    queue = Queue("documents", check_kinds=False)
    enqueue_key(queue, engine)
    complete_all(queue, engine)
    member = Enqueue(channel="a", payload=1, key="k", unique_for=HOUR)
    with Session(engine) as session:
        with queue.group(session) as group:
            receipts = group.enqueue_many([member, Enqueue(channel="a", payload=2, key="new", unique_for=HOUR)])
        session.commit()
        assert [one.created for one in receipts] == [False, True]
        assert queue.groups.status(session, group.id).total == 1
        with pytest.raises(InvalidArgument, match=r"then has unique_for=.*leave it out"):
            queue.group(session, then=member)


def test_a_hidden_element(engine: Engine, database: Database) -> None:
    """An array whose subscripts do not begin at 1, never made by a client, is one message with its period too."""
    for channels, on_duplicates, outcome in (
        ("'[0:0]={b}'", "null", "created"),
        ("'{a}'", "'[0:0]={replace}'", "replaced"),
    ):
        queue = Queue(outcome)
        enqueue_key(queue, engine, unique_for=None)
        found = database.rows(
            f"select outcome from fq_enqueue('{queue.name}', {channels}, '{{x}}', array[''::bytea], "
            "array[null::jsonb], array[null::bigint], array[null::bigint], array[null::integer], '{k}', "
            f"array[null::integer], null, {on_duplicates}, false, null, null, null, '{{3600000000}}', '{{true}}')"
        )
        assert [row.outcome for row in found] == [outcome]
        assert database.value(f"{_ROWS} where queue = '{outcome}'") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"unique_for": HOUR, "key": None}, "there is no key, so that nothing is unique; give a key"),
        ({"unique_for": timedelta()}, r"unique_for is datetime.timedelta\(0\); give a timedelta from"),
        ({"unique_for": 3600}, "unique_for is 3600; give a timedelta from"),
        ({"unique_for": timedelta(days=366)}, "to 365 days"),
        ({"unique_for": HOUR, "unique_from": "start"}, "unique_from is 'start'; give 'enqueue' or 'completion'"),
        ({"unique_for": None, "unique_from": "completion"}, "there is no unique_for; give the period, or leave it out"),
    ],
)
def test_bad_periods(words: dict[str, Any], said: str) -> None:
    """A bad value is refused before anything is recorded."""
    with pytest.raises(InvalidArgument, match=said):
        Enqueue(**{"channel": "a", "payload": 1, "key": "k", **words})


def test_housekeeping(queue: Queue, engine: Engine, clock: Clock, database: Database) -> None:
    """It deletes rows whose period is over, at most so many at once, and no other; the keys behave the same."""
    for number in range(5):
        enqueue_key(queue, engine, key=f"{number}")
    enqueue_key(queue, engine, key="long", unique_for=2 * HOUR)
    living = enqueue_key(queue, engine, key="living", unique_from="completion", delay=24 * HOUR)
    complete_all(queue, engine)
    assert database.value("select deleted from fq_prune_expired(10)") == 0
    clock.advance(HOUR + SECOND)
    assert [database.value("select deleted from fq_prune_expired(3)") for _ in range(3)] == [3, 2, 0]
    assert database.value(_ROWS) == 2
    assert enqueue_key(queue, engine, key="0").created
    assert not enqueue_key(queue, engine, key="long").created
    assert enqueue_key(queue, engine, key="living").message_id == living.message_id


def test_a_moved_message(queue: Queue, engine: Engine, clock: Clock) -> None:
    """Its period stays in the channel where it was enqueued, and begins there when it ends in another."""
    first = enqueue_key(queue, engine, unique_from="completion")
    assert queue.admin.move(engine, first.message_id or 0, "b") == "moved"
    clock.advance(2 * HOUR)
    assert enqueue_key(queue, engine).message_id == first.message_id
    complete_all(queue, engine)
    clock.advance(HOUR - SECOND)
    assert enqueue_key(queue, engine).message_id == first.message_id
    assert enqueue_key(queue, engine, channel="b").created
    clock.advance(SECOND)
    assert enqueue_key(queue, engine).created


def test_a_moved_message_is_replaced(queue: Queue, engine: Engine, clock: Clock, database: Database) -> None:
    """A period that it gets in its new channel leaves the one that waits for its end in the first."""
    first = enqueue_key(queue, engine, unique_from="completion")
    assert queue.admin.move(engine, first.message_id or 0, "b") == "moved"
    assert enqueue_key(queue, engine, channel="b", on_duplicate="replace").outcome == "replaced"
    complete_all(queue, engine)
    clock.advance(HOUR - SECOND)
    assert enqueue_key(queue, engine).message_id == first.message_id
    assert not enqueue_key(queue, engine, channel="b").created
    clock.advance(2 * SECOND)
    assert database.value("select deleted from fq_prune_expired(10)") == 2
    assert enqueue_key(queue, engine).created


def test_a_redriven_message(queue: Queue, engine: Engine, clock: Clock) -> None:
    """A dead letter comes back within the period, which goes on from its first end."""
    first = enqueue_key(queue, engine, unique_from="completion")
    queue.bury(engine, queue.dequeue(engine), reason="poison")
    assert queue.dead_letters.redrive(engine) == {first.message_id: "redriven"}
    [delivery] = queue.dequeue(engine, lease=12 * HOUR)
    assert delivery.message_id == first.message_id
    clock.advance(HOUR)
    assert not enqueue_key(queue, engine).created
    queue.complete(engine, delivery)
    assert enqueue_key(queue, engine).created
