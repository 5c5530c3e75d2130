"""Ordering keys: of the messages of a channel that have the same, one is out at a time, in their order."""

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from tests.sql.answers import Hand
from tests.sql.client import HOUR, Kernel, OpenKernel

pytestmark = pytest.mark.usefixtures("balanced")

LIMITS = pytest.mark.parametrize("limit", [1, 5])


def _send(kernel: Kernel, *keys: str | None, channel: str = "a") -> list[int]:
    """Enqueue a message for each key; their ids."""
    return [one.message_id for one in kernel.enqueue(*[channel] * len(keys), ordering_keys=keys)]


def _replace(kernel: Kernel, ordering_key: str | None, delay: str | None = None) -> None:
    """Rewrite the message whose key is u."""
    kernel.rows(
        "select fq_enqueue_one('q', 'a', '1', p_key => 'u', p_on_duplicate => 'replace',"
        " p_ordering_key => %(ordering_key)s, p_delay => %(delay)s::interval)",
        ordering_key=ordering_key,
        delay=delay,
    )


def _taken(kernel: Kernel, limit: int, calls: int = 6) -> list[Hand]:
    """What some dequeues in a row give."""
    return [hand for _ in range(calls) for hand in kernel.dequeue(limit).hands]


def _ids(hands: list[Hand]) -> list[int]:
    return [hand.id for hand in hands]


@LIMITS
def test_one_of_a_key_is_out(kernel: Kernel, limit: int) -> None:
    """The next one of a key comes when the first has ended, and behind what waited meanwhile; the same key in another
    channel is another key. While one is held back, its key is not looked at again and again.
    """
    _send(kernel, "k", "k", "l", None, "k", None)
    hands = _taken(kernel, limit)
    assert sorted(_ids(hands)) == [1, 3, 4, 6]
    assert kernel.value("select count(*) from fq_signal") == 0
    [other] = _send(kernel, "k", channel="b")
    assert _ids(_taken(kernel, limit)) == [other] == [7]
    kernel.complete(hands[0])
    assert hands[0].id == 1
    _send(kernel, None)
    assert _ids(_taken(kernel, limit, calls=2)) == [8, 2]
    kernel.complete(hands[1])
    assert _taken(kernel, limit) == []
    kernel.complete(kernel.out()[2])
    assert _ids(_taken(kernel, limit)) == [5]


@LIMITS
@pytest.mark.parametrize(
    ("end", "next_"),
    [
        pytest.param(lambda kernel, hand: kernel.complete(hand), [2], id="complete"),
        pytest.param(lambda kernel, hand: kernel.bury(hand, reason="bad"), [2], id="bury"),
        pytest.param(lambda kernel, hand: kernel.release(hand), [1], id="release"),
        pytest.param(lambda kernel, hand: kernel.retry(hand), [1], id="retry"),
        pytest.param(lambda kernel, hand: kernel.retry(hand, delay=HOUR), [], id="retry later"),
        pytest.param(lambda kernel, _: kernel.rows("update fq_lease set expires_at = fq_now() - 1"), [1], id="lost"),
    ],
)
def test_what_becomes_of_the_next_one(
    kernel: Kernel, limit: int, end: Callable[[Kernel, Hand], object], next_: list[int]
) -> None:
    """It goes when the first is gone; else the first one comes again, and holds it back as long as it waits."""
    _send(kernel, "k", "k", "k")
    [hand] = _taken(kernel, limit)
    end(kernel, hand)
    assert _ids(_taken(kernel, limit)) == next_


@LIMITS
def test_messages_that_wait_may_go_away(kernel: Kernel, limit: int) -> None:
    """A cancel, a purge and a move of the first one that waits let the next one go."""
    _send(kernel, *["k"] * 5)
    [first] = _taken(kernel, limit)
    assert kernel.cancel(2) == {}
    kernel.complete(first)
    [third] = _taken(kernel, limit)
    assert third.id == 3
    kernel.rows("select fq_move_message('q', 4, 'b', null, false)")
    moved = [hand for hand in _taken(kernel, limit) if hand.channel == "b"]
    assert _ids(moved) == [4]
    kernel.complete(third)
    assert _ids(_taken(kernel, limit)) == [5]
    kernel.rows("select fq_purge_channel('q', 'a')")
    _send(kernel, "k")
    kernel.complete(kernel.out()[5])
    assert _ids(_taken(kernel, limit)) == [6]


@LIMITS
@pytest.mark.parametrize("new", [None, "l"])
def test_a_replaced_message_may_change_its_key(kernel: Kernel, limit: int, new: str | None) -> None:
    """The next one of the key that it had goes, and it waits for others of its new one."""
    _send(kernel, "k", "l")
    hands = _taken(kernel, limit)
    kernel.complete(hands[0])
    kernel.enqueue("a", keys=["u"], ordering_keys=["k"], delays=[HOUR])
    _send(kernel, "k")
    assert _taken(kernel, limit) == []
    _replace(kernel, new, delay="1 hour")
    assert _ids(_taken(kernel, limit)) == [4]
    _replace(kernel, new)
    assert _ids(_taken(kernel, limit)) == ([3] if new is None else [])
    kernel.complete(hands[1])
    assert _ids(_taken(kernel, limit)) == ([] if new is None else [3])


@LIMITS
def test_a_dead_letter_comes_back(kernel: Kernel, limit: int) -> None:
    """It keeps its ordering key, and goes before what was added after it."""
    _send(kernel, "k", "k", "k")
    [first] = _taken(kernel, limit)
    kernel.bury(first, reason="bad")
    [second] = _taken(kernel, limit)
    kernel.rows("select fq_redrive('q')")
    assert _taken(kernel, limit) == []
    kernel.complete(second)
    assert _ids(_taken(kernel, limit)) == [1]


@LIMITS
@pytest.mark.parametrize("end", ["redrive", "purge"])
def test_a_dead_letter_may_hold_its_key(kernel: Kernel, limit: int, end: str) -> None:
    """After on_dead="hold" the others of its key wait until it is redriven and ends, or is purged; other keys go on."""
    kernel.rows("""select fq_set_queue('q', '{"on_dead": "hold"}')""")
    _send(kernel, "k", "k", "l", None)
    hands = _taken(kernel, limit)
    kernel.bury(*hands, reason="bad")
    _send(kernel, "k", "m")
    [other] = _taken(kernel, limit)
    assert other.id == 6
    if end == "redrive":
        kernel.rows("select fq_redrive('q', array[1])")
        [again] = _taken(kernel, limit)
        assert again.id == 1
        kernel.complete(again)
    else:
        kernel.rows("select fq_purge_dead('q', array[1])")
    assert _ids(_taken(kernel, limit)) == [2]


@LIMITS
def test_a_purge_that_sees_no_other_message(kernel: Kernel, open_kernel: OpenKernel, limit: int) -> None:
    """A message that is held back while a purge of the dead letter is open goes when that commits."""
    kernel.rows("""select fq_set_queue('q', '{"on_dead": "hold"}')""")
    _send(kernel, "k")
    kernel.bury(*_taken(kernel, limit), reason="bad")
    other = open_kernel()
    other.rows("select fq_purge_dead('q', array[1])")
    _send(kernel, "k")
    assert _taken(kernel, limit) == []
    other.commit()
    assert _ids(_taken(kernel, limit)) == [2]


@LIMITS
def test_what_was_committed_late_goes_next(kernel: Kernel, open_kernel: OpenKernel, limit: int) -> None:
    """A message with a lower id that is committed while a later one is out waits for it, and goes before the others."""
    _send(kernel, None)
    kernel.complete(*_taken(kernel, limit))
    other = open_kernel()
    other.enqueue("a", ordering_keys=["k"])
    _send(kernel, "k", "k")
    [second] = _taken(kernel, limit)
    assert second.id == 3
    other.commit()
    assert _taken(kernel, limit) == []
    kernel.complete(second)
    assert _ids(_taken(kernel, limit)) == [2]


@LIMITS
@pytest.mark.parametrize(("isolation", "before"), [("READ_COMMITTED", True), ("REPEATABLE_READ", False)])
def test_an_end_that_sees_no_other_message(
    kernel: Kernel, open_kernel: OpenKernel, limit: int, isolation: str, *, before: bool
) -> None:
    """A message that the transaction which ends the first one cannot see waits for its commit, and goes then."""
    _send(kernel, "k")
    [first] = _taken(kernel, limit)
    other = open_kernel(isolation=isolation)
    other.rows("select from fq_message")
    if before:
        other.complete(first)
    _send(kernel, "k")
    assert _taken(kernel, limit) == []
    if not before:
        other.complete(first)
    assert _taken(kernel, limit) == []
    other.commit()
    assert _ids(_taken(kernel, limit)) == [2]


@LIMITS
def test_a_locked_message_holds_up_its_key_alone(kernel: Kernel, open_kernel: OpenKernel, limit: int) -> None:
    """While somebody has the next one locked, the others of its key wait, and other keys go on."""
    _send(kernel, "k", "k", "k", "l", "l")
    hands = _taken(kernel, limit)
    assert _ids(hands) == [1, 4]
    other = open_kernel()
    other.rows("select from fq_message where id = 2 for update")
    kernel.complete(*hands)
    assert _ids(_taken(kernel, limit)) == [5]
    other.rollback()
    assert _ids(_taken(kernel, limit)) == [2]


def test_a_long_key_hides_nobody(kernel: Kernel) -> None:
    """However many messages of one key stand first, those behind them come, at once and by single calls."""
    _send(kernel, *["k"] * 300, "l", None)
    assert _ids(_taken(kernel, 1)) == [1, 301, 302]
    _send(kernel, *["k"] * 300, "m", None)
    assert _ids(_taken(kernel, 10)) == [603, 604]


@LIMITS
def test_a_very_long_key_holds_up_no_call(kernel: Kernel, limit: int) -> None:
    """A call moves a bounded number of messages out of the way; others are served, and the next call goes on."""
    _send(kernel, *["k"] * 5000, None)
    _send(kernel, None, None, channel="b")
    moved, taken = [0], list[int]()
    while len(taken) < 4:
        taken += _ids(kernel.dequeue(limit).hands)
        moved.append(kernel.value("select count(*) from fq_message where dequeue_at = 9223372036854775807"))
        assert moved[-1] - moved[-2] <= 3000
    assert (taken[0], sorted(taken)) == (1, [1, 5001, 5002, 5003])


def test_bulk_and_single_enqueues(kernel: Kernel) -> None:
    """A single message, many, and one with a key of its own take the same order; bad keys are refused."""
    send = partial(kernel.enqueue, "a")
    send(contents=[b"1"], ordering_keys=["k"])
    kernel.enqueue("a", "a", contents=[b"2", b"other"], ordering_keys=["k", "l"])
    send(contents=[b"3"], keys=["once"], ordering_keys=["k"])
    kernel.enqueue(*"aaa", contents=[b"4", b"5", b"6"], keys=["z", None, "b"], ordering_keys=["k", "k", "k"])
    order = []
    while hands := _taken(kernel, 5):
        order += [hand.content for hand in hands]
        kernel.complete(*hands)
    assert order == [b"1", b"other", b"2", b"3", b"4", b"5", b"6"]
    for bad in "", "k" * 513:
        with pytest.raises(Exception, match="ordering_key"):
            _send(kernel, bad)
        with pytest.raises(Exception, match="ordering_key"):
            _send(kernel, "k", bad)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("limit", [1, 7])
def test_consumers_at_the_same_time(kernel: Kernel, open_kernel: OpenKernel, limit: int) -> None:
    """Several consumers that complete, retry, release and lose messages never hold two of a key, keep the order of each
    key, and nothing is stuck or lost.
    """
    keys, each = 12, 25
    for round_ in range(each):
        kernel.enqueue(
            *[f"c{key % 3}" for key in range(keys)],
            contents=[f"{key} {round_}".encode() for key in range(keys)],
            ordering_keys=[f"k{key}" for key in range(keys)],
        )
    lock = threading.Lock()
    out: set[bytes] = set()
    done: dict[bytes, list[int]] = {}
    wrong: list[str] = []

    def consume(number: int) -> None:
        chance = random.Random(number)  # noqa: S311 - any order will do
        consumer = open_kernel(autocommit=True)
        while sum(map(len, done.values())) < keys * each and not wrong:
            for hand in consumer.dequeue(limit).hands:
                key, place = hand.content.split()
                with lock:
                    if key in out:
                        wrong.append(f"two of key {key!r} are out")
                    out.add(key)
                verb = chance.choice(["complete", "complete", "retry", "release"])
                with lock:
                    out.discard(key)
                    if verb == "complete":
                        done.setdefault(key, []).append(int(place))
                if getattr(consumer, verb)(hand):
                    wrong.append(f"{hand} was lost")

    with ThreadPoolExecutor(4) as pool:
        for failed in [pool.submit(consume, number) for number in range(4)]:
            failed.result()
    assert wrong == []
    assert set(done) == {str(key).encode() for key in range(keys)}
    assert all(order == list(range(each)) for order in done.values())
    assert kernel.value("select count(*) from fq_message") == 0
