"""Rows that a dequeue cannot deliver: each costs itself and one failed call, and no other message."""

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event, text

from sqlalchemy_fairqueue import ChannelPolicy, PayloadError, Queue
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database
from tests.queue.damage import lose
from tests.queue.seeds import add, seed
from tests.worker.conftest import StartWorker, start
from tests.worker.helpers import expire_leases, until

__all__ = ["start"]

Spoil = Callable[[Database, int], None]


def _plant(database: Database, message_id: int | None, table: str = "fq_message", **values: str) -> None:
    """Give a message, or a dead letter, values that the constraints of the table refuse."""
    checks = database.rows(
        "select conname as name, pg_get_constraintdef(oid) as definition from pg_constraint"
        f" where conrelid = '{table}'::regclass and contype = 'c'"
    )
    for check in checks:
        database.execute(f"alter table {table} drop constraint {check.name}")
    columns = ", ".join(f"{column} = {value}" for column, value in values.items())
    key = "id" if table == "fq_message" else "message_id"
    database.execute(f"update {table} set {columns} where {key} = {message_id}")
    for check in checks:
        database.execute(f"alter table {table} add constraint {check.name} {check.definition} not valid")


# headers that print as some 1.1 GB, and that PostgreSQL keeps in a few kB
_ENDLESS = "jsonb_build_object('a', (select jsonb_agg(cast('1e131071' as numeric)) from generate_series(1, 8300)))"

SPOILT: dict[str, tuple[Spoil, str]] = {
    "content lost": (lose, "paused"),
    "headers lost": (lambda database, one: lose(database, one, "headers"), "paused"),
    "headers without end": (lambda database, one: _plant(database, one, headers=_ENDLESS), "paused"),
    "attempts": (lambda database, one: _plant(database, one, attempts="2147483647"), "dead"),
    "deliveries": (lambda database, one: _plant(database, one, deliveries="2147483647"), "dead"),
}

spoilt = pytest.mark.parametrize(
    ("spoil", "outcome"),
    [
        # Each failed call writes a gigabyte of text.
        pytest.param(*value, id=name, marks=[pytest.mark.whole] if name == "headers without end" else [])
        for name, value in SPOILT.items()
    ],
)


def _failures(engine: Engine) -> list[str]:
    """The statements that fail from now on."""
    found: list[str] = []
    event.listen(engine, "handle_error", lambda context: found.append(str(context.original_exception)))
    return found


@spoilt
def test_a_row_costs_itself(
    queue: Queue, engine: Engine, database: Database, caplog: pytest.LogCaptureFixture, *, spoil: Spoil, outcome: str
) -> None:
    """The dequeue that meets it returns the other messages; it becomes a dead letter by itself, or its channel waits
    until it is withdrawn.
    """
    queue.configure_channel(engine, "a", ChannelPolicy(max_concurrency=2))
    bad = queue.enqueue(engine, channel="a", payload=1, key="k").message_id
    good = [queue.enqueue(engine, channel=name, payload=2).message_id for name in ("b", "a", "a")]
    spoil(database, bad or 0)
    failures = _failures(engine)
    with caplog.at_level(logging.ERROR):
        batch = queue.dequeue(engine, limit=10)
    late = good[1:] if outcome == "paused" else []
    assert sorted(one.message_id for one in batch) == sorted(one or 0 for one in good if one not in late)
    assert len(failures) == 1
    [record] = [one for one in caplog.records if one.name == "sqlalchemy_fairqueue.queue"]
    assert (record.queue, record.message_id) == ("documents", bad)  # type: ignore[attr-defined]
    assert f"message {bad}" in record.getMessage()
    assert len(record.getMessage()) < 500
    assert "SQL statement" not in record.getMessage()
    assert [one.message_id for one in queue.dead_letters.list(engine)] == ([bad] if outcome == "dead" else [])
    queue.complete(engine, batch)
    batch = queue.dequeue(engine, limit=10)
    assert batch == []
    if outcome == "paused":
        [channel, _] = queue.channels(engine)
        assert (channel.paused_at is not None, "cannot be delivered" in (channel.problem or "")) == (True, True)
        queue.cancel(engine, bad or 0)
        queue.resume(engine, channel="a")
        batch = queue.dequeue(engine, limit=10)
        assert [one.message_id for one in batch] == late
        queue.complete(engine, batch)
        assert queue.dequeue(engine) == []
    assert len(failures) == 1
    [channel, _] = queue.channels(engine)
    assert (channel.backlog, channel.current_concurrency, channel.ready, channel.problem) == (0, 0, 0, None)
    assert queue.enqueue(engine, channel="a", payload=3, key="k").message_id is not None


@pytest.mark.many
@spoilt
def test_a_row_whose_lease_expired(
    queue: Queue, engine: Engine, database: Database, spoil: Spoil, outcome: str
) -> None:
    """A message that is spoilt while somebody holds it gives back its slots when its lease ends."""
    queue.configure_channel(engine, "a", ChannelPolicy(max_concurrency=1))
    queue.configure(engine, max_concurrency=1, history=True)
    bad = queue.enqueue(engine, channel="a", payload=1, max_attempts=1).message_id
    good = queue.enqueue(engine, channel="a", payload=2).message_id
    queue.dequeue(engine)
    spoil(database, bad or 0)
    expire_leases(database)
    failures = _failures(engine)
    batch = Queue("documents").dequeue(engine, limit=10)
    assert len(failures) <= 1
    if outcome == "paused":
        assert batch == []
        queue.cancel(engine, bad or 0)
        queue.resume(engine, channel="a")
        batch = queue.dequeue(engine, limit=10)
    assert [one.message_id for one in batch] == [good]
    assert [one.message_id for one in queue.dead_letters.list(engine)] == ([bad] if outcome == "dead" else [])
    queue.complete(engine, batch)
    assert database.value("select count(*) from fq_history where message_id = :bad", bad=bad) == 1
    assert queue.dequeue(engine) == []
    assert (queue.stats(engine).current_concurrency, queue.channels(engine)[0].current_concurrency) == (0, 0)


def test_a_worker(queue: Queue, engine: Engine, database: Database, start: StartWorker) -> None:
    """A worker handles all others, beside many bad ones and without a failure that it would back off from."""
    handled: list[int] = []
    queue.handler("work")(lambda delivery: handled.append(delivery.message_id))
    ids = [queue.enqueue(engine, channel=f"c{n % 3}", kind="work", payload=n).message_id or 0 for n in range(30)]
    bad = ids[::4]
    for one in bad:
        _plant(database, one, attempts="2147483647")
    worker = start(queue)
    until(lambda: len(handled) == 22, "the good ones are handled")
    assert sorted(handled) == sorted(set(ids) - set(bad))
    until(lambda: len(queue.dead_letters.list(engine)) == len(bad), "the bad ones are dead")
    assert worker.stats.failures == 0


def test_a_broken_state(queue: Queue, engine: Engine, database: Database) -> None:
    """A channel whose state cannot be updated is paused, and all others go on; mended and resumed, it goes on, too."""
    ids = [queue.enqueue(engine, channel=name, payload=0).message_id for name in "aabb"]
    database.execute("select fq_hear('documents')")
    broken = (
        "update fq_channel_state set row_version = {} where channel_id = (select id from fq_channel where name = 'a')"
    )
    database.execute(broken.format(2**63 - 1))
    assert [one.message_id for one in queue.dequeue(engine, limit=10)] == ids[2:]
    assert "its state cannot be updated" in (queue.channels(engine)[0].problem or "")
    database.execute(broken.format(0))
    queue.resume(engine, channel="a")
    assert [one.message_id for one in queue.dequeue(engine, limit=10)] == ids[:2]


def test_a_name_that_the_connection_has_no_bytes_for(queue: Queue, engine: Engine, database: Database) -> None:
    """Channels, kinds, headers and dead letters of any language reach a consumer whatever its encoding is."""
    latin = create_engine(database.url, connect_args={"client_encoding": "latin1"})
    queue.enqueue(engine, channel="日本", kind="作業", payload="値", headers={"鍵": "値"})
    queue.enqueue(engine, channel="plain", payload=1)
    assert sorted(one.channel for one in queue.channels(latin)) == ["plain", "日本"]
    batch = queue.dequeue(latin, limit=10)
    [found] = [one for one in batch if one.channel == "日本"]
    assert (found.kind, found.payload, found.headers) == ("作業", "値", {"鍵": "値"})
    queue.bury(latin, found, reason="no")
    [letter] = queue.dead_letters.list(latin)
    assert (letter.channel, letter.kind, letter.headers) == ("日本", "作業", {"鍵": "値"})
    latin.dispose()


def test_what_the_client_cannot_read(engine: Engine, database: Database) -> None:
    """A message that was delivered and that Python has no value for is set aside by its consumer."""
    for enqueued_at in ("9223372036854775807", "-9223372036854775808"):
        queue = Queue(enqueued_at)
        bad = queue.enqueue(engine, channel="a", payload=1).message_id
        good = queue.enqueue(engine, channel="a", payload=2).message_id
        database.execute(f"update fq_message set enqueued_at = {enqueued_at} where id = {bad}")
        assert [one.message_id for one in queue.dequeue(engine, limit=10)] == [good]
        [channel] = queue.channels(engine)
        assert "its consumer cannot read it" in (channel.problem or "")
        queue.enqueue(engine, channel="a", payload=3)
        assert queue.dequeue(engine, limit=10) == []
        database.execute(f"update fq_message set enqueued_at = 0 where id = {bad}")
        queue.resume(engine, channel="a")
        assert [one.payload for one in queue.dequeue(engine, limit=10)] == [1, 3]


def test_messages_of_another_queue(queue: Queue, engine: Engine, database: Database) -> None:
    """Whoever knows the lease and the id of a delivery of another queue sets nothing of it aside."""
    queue.enqueue(engine, channel="a", payload=1)
    [held] = queue.dequeue(engine)
    lease = database.value("select lease_id from fq_message where id = :id", id=held.message_id)
    call = "select * from fq_set_aside(:queue, 1, :lease, array[:id]::bigint[], 'mine')"
    assert database.rows(call, queue="another", lease=lease, id=held.message_id) == []
    queue.complete(engine, held)
    assert (queue.dead_letters.list(engine), queue.channels(engine)[0].problem) == ([], None)


@pytest.mark.whole
def test_a_dead_letter_that_cannot_be_read(queue: Queue, engine: Engine, database: Database) -> None:
    """It is listed with what is wrong, beside the others, and can be purged."""
    bad, good = (queue.enqueue(engine, channel="a", payload=n, headers={"n": n}).message_id or 0 for n in range(2))
    queue.bury(engine, queue.dequeue(engine, limit=2), reason="no")
    _plant(database, bad, "fq_dead_letter", headers=_ENDLESS)
    letters = {one.message_id: one for one in queue.dead_letters.list(engine)}
    assert (letters[good].payload, letters[good].headers) == (1, {"n": 1})
    assert "cannot be read" in (letters[bad].error or "")
    with pytest.raises(PayloadError, match=f"dead letter {bad} cannot be read"):
        _ = letters[bad].payload
    assert queue.dead_letters.purge(engine, bad) == 1


def test_other_errors_are_raised(queue: Queue, engine: Engine, database: Database) -> None:
    """An error about no row sets nothing aside."""
    queue.enqueue(engine, channel="a", payload=1)
    database.execute("alter function fq_choose_one rename to gone")
    with pytest.raises(Exception, match="fq_choose_one"):
        queue.dequeue(engine, limit=10)
    database.execute("alter function gone rename to fq_choose_one")
    assert len(queue.dequeue(engine, limit=10)) == 1


def test_a_channel_that_the_search_heard_of(queue: Queue, engine: Engine, database: Database) -> None:
    """The search for the bad row hears signals: a channel that becomes ready by them has its turn at once."""
    with engine.connect() as earlier:
        first = queue.enqueue(earlier, channel="b", payload=0).message_id
        _, bad, last = [queue.enqueue(engine, channel="a", payload=number).message_id for number in range(1, 4)]
        queue.dequeue(engine, limit=1)
        earlier.commit()
    _plant(database, bad, attempts="2147483647")
    failures = _failures(engine)
    batch = queue.dequeue(engine, limit=5)
    assert len(failures) == 1
    assert sorted(one.message_id for one in batch) == [first, last]


def test_a_locked_suspect_is_left_alone(queue: Queue, engine: Engine, database: Database, connect: Any) -> None:
    """A message that another transaction has locked is neither delivered nor set aside."""
    bad = queue.enqueue(engine, channel="a", payload=1).message_id
    _plant(database, bad, attempts="2147483647")
    holder = connect()
    holder.exec_driver_sql("select from fq_message for update")
    assert queue.dequeue(engine, limit=10) == []
    assert queue.dead_letters.list(engine) == []
    holder.rollback()


def test_a_locked_channel_is_left_alone(queue: Queue, engine: Engine, database: Database, connect: Any) -> None:
    """What sets a row aside waits for no transaction that has paused or configured a channel: it passes that by."""
    bad = queue.enqueue(engine, channel="a", payload=1).message_id or 0
    good = queue.enqueue(engine, channel="b", payload=2).message_id
    queue.enqueue(engine, channel="locked", payload=3)
    database.execute("select fq_hear('documents')")
    _plant(database, bad, attempts="2147483647")
    holder = connect()
    holder.exec_driver_sql(
        "select from fq_channel_state s join fq_channel c on c.id = s.channel_id"
        " where c.name = 'locked' for no key update of s"
    )
    impatient = create_engine(database.url, connect_args={"options": "-c lock_timeout=5s"})
    assert [one.message_id for one in queue.dequeue(impatient, limit=10)] == [good]
    assert [one.message_id for one in queue.dead_letters.list(engine)] == [bad]
    holder.rollback()
    impatient.dispose()


def test_behind_slots_that_a_dequeue_takes_back(queue: Queue, engine: Engine, database: Database, clock: Clock) -> None:
    """The channel is full until a dequeue takes an expired lease back; the withdrawn one makes room for the bad one."""
    queue.configure_channel(engine, "a", ChannelPolicy(max_concurrency=2))
    first, withdrawn, bad, last = [queue.enqueue(engine, channel="a", payload=number).message_id for number in range(4)]
    queue.dequeue(engine, limit=2, lease=timedelta(seconds=1))
    queue.cancel(engine, withdrawn or 0)
    _plant(database, bad, attempts="2147483647")
    clock.advance(timedelta(seconds=2))
    assert [one.message_id for one in queue.dequeue(engine, limit=10)] == [first, last]
    assert [one.message_id for one in queue.dead_letters.list(engine)] == [bad]


def test_behind_slots_that_a_plan_adds(queue: Queue, engine: Engine, database: Database) -> None:
    """The channel is full until a dequeue brings it the new limit of its plan."""
    queue.plans.configure(engine, "free", ChannelPolicy(max_concurrency=1))
    queue.configure(engine, default_plan="free")
    first, bad, last = [queue.enqueue(engine, channel="a", payload=number).message_id for number in range(3)]
    assert [one.message_id for one in queue.dequeue(engine, limit=10)] == [first]
    _plant(database, bad, attempts="2147483647")
    with engine.connect() as other:
        # A change of the plan passes a locked channel by, and dequeues bring it.
        other.execute(text("select from fq_channel_state for no key update"))
        queue.plans.configure(engine, "free", ChannelPolicy(max_concurrency=3))
    # What was passed by is visited again after a while.
    database.execute("update fq_plan set spread_at = 0")
    assert [one.message_id for one in queue.dequeue(engine, limit=10)] == [last]


def test_without_a_letter_for_it(queue: Queue, engine: Engine, database: Database, clock: Clock) -> None:
    """A message whose lease has expired, with its attempts used up, and which no letter can hold, comes back."""
    bad = queue.enqueue(engine, channel="a", payload=1).message_id
    queue.dequeue(engine, lease=timedelta(seconds=1))
    _plant(database, bad, max_attempts="0")
    good = queue.enqueue(engine, channel="a", payload=2).message_id
    clock.advance(timedelta(seconds=2))
    assert [one.message_id for one in queue.dequeue(engine, limit=2)] == [bad, good]


def test_of_a_queue_that_shares_a_limit(queue: Queue, engine: Engine, database: Database, clock: Clock) -> None:
    """Nobody consumes the other queue any more, and what it has out ends in this one's dequeue, whatever it is."""
    other = Queue("other")
    queue.limits.configure(engine, "api", max_concurrency=1)
    for one in (queue, other):
        one.configure(engine, limits=["api"])
    bad = other.enqueue(engine, channel="a", payload=1).message_id
    other.dequeue(engine, lease=timedelta(seconds=1))
    _plant(database, bad, max_attempts="0")
    good = queue.enqueue(engine, channel="a", payload=2).message_id
    clock.advance(timedelta(seconds=2))
    assert [one.message_id for one in queue.dequeue(engine)] == [good]
    assert other.channels(engine)[0].ready == 1


def test_deep_in_a_channel_of_much_weight(queue: Queue, engine: Engine, database: Database) -> None:
    """A row is found however deep in its channel a dequeue goes, and however many other channels are ready."""
    queue.configure_channel(engine, "heavy", ChannelPolicy(weight=100))
    heavy = add(queue, engine, *range(8), channel="heavy")
    seed(queue, engine, *(f"light-{channel % 30}" for channel in range(90)))
    bad = heavy[5]
    _plant(database, bad, attempts="2147483647")
    failures = _failures(engine)
    taken = [one.message_id for one in queue.dequeue(engine, limit=37)]
    assert [one for one in taken if one in heavy] == [one for one in heavy if one != bad]
    assert len(failures) == 1
    assert [one.message_id for one in queue.dead_letters.list(engine)] == [bad]


def test_what_a_promotion_brings_to_the_front(queue: Queue, engine: Engine, database: Database) -> None:
    """A delayed message with a priority, which the dequeue itself moves before the others, is found behind them."""
    good = [queue.enqueue(engine, channel="a", payload=n).message_id or 0 for n in range(5)]
    bad = queue.enqueue(engine, channel="a", payload=5, delay=timedelta(hours=1), priority=1).message_id or 0
    due_at = database.value("select fq_now() - 1")
    database.execute(f"update fq_message set dequeue_at = {due_at}, attempts = 2147483647 where id = {bad}")
    database.execute(f"update fq_promotion set due_at = {due_at} where message_id = {bad}")
    failures = _failures(engine)
    assert [one.message_id for one in queue.dequeue(engine, limit=2)] == good[:2]
    assert len(failures) == 1
    assert [one.message_id for one in queue.dead_letters.list(engine)] == [bad]


@pytest.mark.parametrize("limit", [1, 3])
def test_a_bad_row_behind_those_that_wait_for_their_ordering_key(
    engine: Engine, database: Database, limit: int
) -> None:
    """A dequeue passes by these, however many they are, and so does who looks for the row."""
    queue = Queue("documents")
    add(queue, engine, *range(30), ordering_key="k")
    bad, _ = add(queue, engine, "bad", "good")
    queue.dequeue(engine, limit=1)
    _plant(database, bad, attempts="2147483647")
    assert [one.payload for one in queue.dequeue(engine, limit=limit)] == ["good"]


def test_a_bad_row_that_waited_for_its_ordering_key(engine: Engine, database: Database) -> None:
    """It is found in the call that lets it go."""
    queue = Queue("documents")
    first, bad = add(queue, engine, 0, 1, ordering_key="k")
    [delivery] = queue.dequeue(engine, limit=10)
    assert delivery.message_id == first
    _plant(database, bad, attempts="2147483647")
    queue.complete(engine, delivery)
    queue.enqueue(engine, channel="a", payload="good")
    assert [one.payload for one in queue.dequeue(engine, limit=10)] == ["good"]
