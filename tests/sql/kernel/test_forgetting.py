"""Channels of tenants that left are forgotten, and no message is lost by it."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.fixtures.waits import Waits
from tests.sql.client import HOUR, Kernel, OpenKernel, on
from tests.sql.kernel.verbs import forget, forgotten, pause, unbalanced


@pytest.fixture(autouse=True)
def at_once(kernel: Kernel) -> None:
    """Idle channels are forgotten as soon as they are idle."""
    kernel.set_queue(forget_channels_after=1)


def mark(kernel: Kernel) -> int:
    """fq_mark_idle_channels, of all channels; how many were marked."""
    found = 0
    row: dict[str, Any] = {"last_id": 0}
    while row["last_id"] is not None:
        [row] = kernel.rows("select * from fq_mark_idle_channels(%(after)s, 2)", after=row["last_id"])
        found += row["marked"]
    return found


def names(kernel: Kernel) -> list[str]:
    """The channels that are there, each with a state row."""
    found = kernel.rows(
        "select c.name, s.channel_id from fq_channel c full join fq_channel_state s on s.channel_id = c.id"
    )
    assert all(None not in row.values() for row in found)
    return sorted(row["name"] for row in found)


def use(kernel: Kernel, *channels: str) -> None:
    """Let channels have had messages, which are done."""
    kernel.enqueue(*channels)
    while hands := kernel.dequeue(100).hands:
        kernel.complete(*hands)
    kernel.hear()


def test_an_idle_channel_is_forgotten_and_comes_back(kernel: Kernel) -> None:
    """Its rows go; the next enqueue makes it anew."""
    use(kernel, "a", "b", "c")
    [old] = {row["id"] for row in kernel.rows("select id from fq_channel where name = 'a'")}
    assert mark(kernel) == 3
    assert names(kernel) == ["a", "b", "c"]
    assert (forgotten(kernel), names(kernel)) == (3, [])
    kernel.enqueue("a", "a")
    assert [hand.channel for hand in kernel.dequeue(9).hands] == ["a", "a"]
    assert kernel.value("select id from fq_channel") != old
    assert unbalanced(kernel) == []


def test_a_channel_with_anything_stays(kernel: Kernel) -> None:
    """Messages, leased ones, signals, dead letters, a pause and a policy of its own keep a channel."""
    use(kernel, *"abcdefgh")
    kernel.configure("f", weight=3)
    pause(kernel, "e")
    kernel.enqueue("d")
    kernel.bury(*kernel.dequeue(1).hands)
    kernel.enqueue("c")
    kernel.dequeue(1, lease=HOUR)
    kernel.enqueue("b", delays=[HOUR])
    kernel.hear()
    kernel.enqueue("a")
    marked = mark(kernel)
    assert (marked >= 2, forgotten(kernel), names(kernel)) == (True, 2, list("abcdef"))
    assert kernel.value("select count(*) from fq_channel_state where forget_xid is not null") == 0


def test_a_channel_whose_configuration_is_taken_back_goes(kernel: Kernel) -> None:
    """Without a plan and with all fields reset it is as new; as long as one field is its own, it stays."""
    use(kernel, "a", "b", "c")
    every = kernel.value("select array(select jsonb_object_keys(fq_changed_policy(null, null)))")
    for channel in "abc":
        kernel.configure(channel, weight=3)
    assert mark(kernel) == 0
    for channel, changes in (
        ("a", {"plan": None, "reset": every}),
        ("b", {"reset": ["weight"]}),
        ("c", {"reset": every, "weight": 2}),
    ):
        kernel.rows(
            "select fq_configure_channel('q', %(channel)s, %(changes)s)", channel=channel, changes=Jsonb(changes)
        )
    assert mark(kernel) == 1
    assert (forgotten(kernel), names(kernel)) == (1, ["b", "c"])


def test_the_time_is_that_of_the_queue(kernel: Kernel) -> None:
    """Thirty days before it is set, never with null."""
    use(kernel, "a")
    use(Kernel(kernel.connection, queue="other"), "x")
    kernel.set_queue(forget_channels_after=None)
    assert mark(kernel) == 0
    kernel.rows("update fq_channel_state set last_dequeue_at = 0, used_at = used_at - 31 * 24 * %(hour)s", hour=HOUR)
    assert mark(kernel) == 1
    forgotten(kernel)
    assert names(kernel) == ["a"]


@pytest.mark.parametrize("channels", [["a"], ["a", "b", "c"]])
@pytest.mark.parametrize("keys", [False, True])
def test_an_enqueue_takes_the_mark_back(kernel: Kernel, channels: list[str], keys: bool) -> None:  # noqa: FBT001
    """A channel that was used again is not forgotten, also when its message is done by then."""
    use(kernel, *channels, "gone")
    assert mark(kernel) == len(channels) + 1
    kernel.enqueue(*channels, keys=["k"] * len(channels) if keys else None)
    kernel.complete(*kernel.dequeue(9).hands)
    kernel.hear()
    assert forgotten(kernel) == 1
    assert names(kernel) == channels


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("late", [False, True])
def test_who_may_not_have_seen_the_mark_is_waited_for(
    kernel: Kernel,
    open_kernel: OpenKernel,
    isolation: str,
    late: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """A transaction that began before the mark may add a message without it: the channel waits for its end."""
    use(kernel, "a", "b")
    producer = open_kernel(isolation=isolation.replace(" ", "_"))
    producer.rows("select count(*) from fq_channel")
    if not late:
        producer.enqueue("a")
    assert mark(kernel) == 2
    found = forget(kernel)
    assert found["waiting"]
    if late:
        producer.enqueue("a")
    assert forget(kernel)["forgotten"] == 0
    producer.commit()
    while (found := forget(kernel))["waiting"]:
        pass
    assert found["forgotten"] == 1
    assert names(kernel) == ["a"]
    assert [hand.channel for hand in kernel.dequeue(9).hands] == ["a"]
    assert unbalanced(kernel) == []


def test_a_round_is_everybodys(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """Whoever goes on with a round waits for the same transactions; later marks wait for the next round."""
    use(kernel, "a", "b")
    producer = open_kernel()
    producer.enqueue("a")
    assert mark(kernel) == 2
    begun, other = forget(kernel), open_kernel(autocommit=True)
    assert set(forget(other)["waiting"]) <= set(begun["waiting"])
    use(kernel, "c")
    mark(kernel)
    assert forget(other)["forgotten"] == 0
    producer.commit()
    while forget(other)["waiting"]:
        pass
    assert names(kernel) == ["a", "c"]
    assert forgotten(kernel) == 1
    assert names(kernel) == ["a"]


@pytest.mark.parametrize("ahead", [99_999_999, 20], ids=["not reached", "reached"])
def test_a_round_of_another_server_is_none(kernel: Kernel, open_kernel: OpenKernel, ahead: int) -> None:
    """A restored dump may say that all have ended in a snapshot that this server has not reached: it is thrown away,
    and says nothing about marks of this server once its ids are beyond it.
    """
    use(kernel, "a", "b")
    producer, other = open_kernel(), open_kernel(autocommit=True)
    producer.enqueue("a")
    kernel.rows(
        "insert into fq_round (duty, snapshot, waiting) select 'forget',"
        " format('%%1$s:%%1$s:', pg_current_xact_id()::text::bigint + %(ahead)s), '{}'",
        ahead=ahead,
    )
    mark(kernel)
    for _ in range(20):
        other.rows("select pg_current_xact_id()")
    found = forget(kernel)
    assert (found["forgotten"], found["waiting"] != []) == (0, True)
    producer.commit()
    assert forgotten(kernel) == 1
    assert names(kernel) == ["a"]


def test_a_prepared_transaction_is_waited_for(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """One that is prepared before or after the first call counts until it is committed."""
    use(kernel, "a", "b", "c")
    early, late = open_kernel(), open_kernel()
    early.enqueue("a")
    early.rows("prepare transaction 'early'")
    late.enqueue("b")
    assert mark(kernel) == 3
    forget(kernel)
    late.rows("prepare transaction 'late'")
    late.rollback()
    kernel.rows("commit prepared 'early'")
    waiting = forget(kernel)
    while any(not name.startswith("prepared ") for name in waiting["waiting"]):
        waiting = forget(kernel)
    assert (waiting["forgotten"], len(waiting["waiting"])) == (0, 1)
    kernel.rows("commit prepared 'late'")
    assert forget(kernel)["forgotten"] == 1
    assert names(kernel) == ["a", "b"]
    assert sorted(hand.channel for hand in kernel.dequeue(9).hands) == ["a", "b"]


@pytest.mark.parametrize("configures", [False, True], ids=["enqueue", "configure"])
def test_who_uses_a_channel_waits_for_who_deletes_it_and_makes_it_anew(
    kernel: Kernel, open_kernel: OpenKernel, waits: Waits, *, configures: bool
) -> None:
    """An enqueue neither fails nor adds a message to rows that are gone; a policy is kept by the new channel."""
    use(kernel, "a")
    mark(kernel)
    deleting = open_kernel()
    assert forgotten(deleting) == 1
    verb = (lambda rival: rival.configure("a", weight=7)) if configures else (lambda rival: rival.enqueue("a"))
    rival = waits.start(on(verb)).blocked()
    deleting.commit()
    rival.result()
    assert names(kernel) == ["a"]
    assert kernel.dequeue(9).channels == ([] if configures else ["a"])
    assert kernel.state("a")["weight"] == (7 if configures else 1)


def test_who_took_a_mark_back_is_passed_by(kernel: Kernel, open_kernel: OpenKernel, waits: Waits) -> None:
    """A channel with a message of an open transaction stays, and nobody waits for that transaction."""
    use(kernel, "a", "b")
    mark(kernel)
    producer = open_kernel()
    producer.enqueue("a")
    # A round for which all transactions have ended.
    kernel.rows("insert into fq_round (duty, snapshot, waiting) select 'forget', pg_current_snapshot()::text, '{}'")
    assert waits.unhindered(on(forget))["forgotten"] == 1
    producer.commit()
    assert names(kernel) == ["a"]
    assert len(kernel.dequeue(9).hands) == 1


def test_a_crash_between_the_steps_loses_nothing(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """Marks that nobody follows mean nothing, and the next round finds them."""
    use(kernel, "a", "b")
    mark(kernel)
    deleting = open_kernel()
    assert forgotten(deleting) == 2
    kernel.rows("select pg_terminate_backend(%(pid)s)", pid=deleting.pid)
    with pytest.raises(psycopg.OperationalError):
        deleting.commit()
    kernel.enqueue("a")
    assert len(kernel.dequeue(1).hands) == 1
    mark(kernel)
    assert forgotten(kernel) == 1
    assert names(kernel) == ["a"]


def produce(producer: Kernel, seed: int) -> int:
    """Enqueue to random channels, in transactions that look around before or not, and commit or roll back."""
    chance = random.Random(seed)  # noqa: S311 - repeatable
    committed = 0
    for _ in range(60):
        channels = sorted(chance.choices("abcdefghijklmnopqrst", k=chance.choice([1, 1, 3])))
        try:
            if chance.random() < 0.5:
                producer.rows("select count(*) from fq_channel")
            producer.enqueue(*channels)
            if chance.random() < 0.2:
                producer.rollback()
            else:
                producer.commit()
                committed += len(channels)
        except psycopg.errors.SerializationFailure:
            producer.rollback()
    return committed


def forget_all(kernel: Kernel, finished: threading.Event) -> int:
    """Mark and forget, until the end and at least once."""
    forgotten, found = 0, None
    while not finished.is_set() or not forgotten:
        mark(kernel)
        found = forget(kernel)
        forgotten += found["forgotten"]
        if not found["waiting"]:
            found = None
    return forgotten


def consume(kernel: Kernel, finished: threading.Event) -> int:
    """Complete what is delivered, until the end and until nothing is left."""
    done = 0
    while True:
        last = finished.is_set()
        hands = kernel.dequeue(5, lease=HOUR).hands
        kernel.complete(*hands)
        done += len(hands)
        if last and not hands and kernel.value("select count(*) from fq_message") == 0:
            return done


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.whole) for seed in (1, 2))])
def test_nothing_is_lost_among_many(kernel: Kernel, open_kernel: OpenKernel, seed: int) -> None:
    """Producers of all isolation levels, two who forget and a consumer at once: what was committed is delivered."""
    levels = ["READ_COMMITTED", "READ_COMMITTED", "REPEATABLE_READ", "SERIALIZABLE"]
    producers = [open_kernel(isolation=level) for level in levels]
    finished = threading.Event()
    with ThreadPoolExecutor(8) as threads:
        results = [threads.submit(produce, one, 100 * seed + number) for number, one in enumerate(producers)]
        forgotten = [threads.submit(forget_all, open_kernel(autocommit=True), finished) for _ in range(2)]
        consumed = threads.submit(consume, kernel, finished)
        try:
            committed = sum(one.result() for one in results)
        finally:
            finished.set()
        assert consumed.result() == committed
        assert sum(one.result() for one in forgotten) > 0
    names(kernel)
    assert unbalanced(kernel) == []
