"""Transactions that have written and stay open: they make no dequeue dearer, and what they enqueue is found at once
when they commit, wherever the floor of the signals has risen meanwhile.
"""

from functools import partial
from random import Random

import pytest

from tests.sql.client import Follower, Kernel, OpenKernel
from tests.sql.plans import buffers

pytestmark = pytest.mark.usefixtures("cloned")

ROUNDS = 20


def _read(consumer: Follower) -> int:
    """What a dequeue of one message reads that changes nothing, the least of three."""
    found = []
    for _ in range(3):
        consumer.kernel.enqueue("a")
        found.append(buffers(consumer.kernel, partial(consumer.take, 1)))
        consumer.kernel.rows("update fq_lease set expires_at = fq_now()")
        consumer.drain()
    return min(found)


def _signal(kernel: Kernel, signals: int) -> None:
    """Signals that say nothing, in a transaction of their own."""
    kernel.rows(
        "insert into fq_signal (queue, channel_id) select 'q', id from fq_channel, generate_series(1, %(signals)s)"
        " where name = 'a'",
        signals=signals,
    )


@pytest.mark.parametrize("writers", [1, 30])
def test_open_writers_do_not_make_a_dequeue_dearer(kernel: Kernel, open_kernel: OpenKernel, writers: int) -> None:
    """After 20,000 signals, and with so many transactions that began at different times and have written, a dequeue
    reads less than twice as many buffers, and a few for each of them; then each that commits is heard at once.
    """
    kernel.rows("create table business (value integer)")
    kernel.enqueue("a", "b")
    consumer = Follower(kernel)
    consumer.drain()
    before = _read(consumer)
    opened: list[tuple[Kernel, int]] = []
    for number in range(ROUNDS):
        while len(opened) * ROUNDS < writers * (number + 1):
            writer = open_kernel()
            writer.rows("insert into business values (1)")
            opened.append((writer, writer.enqueue("b")[0].message_id))
        _signal(kernel, 1000)
        assert consumer.serve() == []
    assert _read(consumer) < 2 * before + 4 * writers
    Random(writers).shuffle(opened)  # noqa: S311 - repeatable
    for writer, message_id in opened:
        writer.commit()
        assert consumer.serve() == [message_id]
    assert _read(consumer) < 2 * before


@pytest.mark.parametrize("way", ["savepoint", "prepared"])
def test_signals_of_subtransactions_and_prepared_transactions_are_kept_in_mind(
    kernel: Kernel, open_kernel: OpenKernel, way: str
) -> None:
    """A signal counts as that of the whole transaction, and a prepared one is open until it is committed."""
    kernel.enqueue("a", "b")
    consumer = Follower(kernel)
    consumer.drain()
    writer = open_kernel()
    if way == "savepoint":
        writer.rows("select pg_current_xact_id()")
        writer.rows("savepoint one")
    (early,) = writer.enqueue("b")
    if way == "savepoint":
        writer.rows("release savepoint one")
        writer.rows("savepoint two")
        writer.enqueue("b")
        writer.rows("rollback to savepoint two")
    for _ in range(3):
        _signal(kernel, 1000)
        assert consumer.serve() == []
    (late,) = writer.enqueue("b")
    if way == "prepared":
        writer.rows("prepare transaction 'open'")
        writer.connection.close()
    for _ in range(3):
        _signal(kernel, 1000)
        assert consumer.serve() == []
    assert kernel.value("select heard_open <> '{}' from fq_queue_state")
    if way == "prepared":
        kernel.rows("commit prepared 'open'")
    else:
        writer.commit()
    assert consumer.serve() == [early.message_id, late.message_id]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.whole) for seed in (1, 2))])
def test_what_commits_late_and_in_another_order_is_never_missed(
    kernel: Kernel, open_kernel: OpenKernel, seed: int
) -> None:
    """Random programs: up to eight transactions enqueue, signal and end in any order, while two consumers
    take turns. Each message is delivered by the next calls after its commit, and none twice.
    """
    random = Random(seed)  # noqa: S311 - repeatable
    # A floor rises past open transactions where that saves many ids.
    kernel.rows("alter sequence fq_signal_id_seq increment by 100")
    kernel.enqueue(*"abc")
    kernel.drain()
    consumers = [Follower(kernel), Follower(open_kernel(autocommit=True))]
    connections = [open_kernel() for _ in range(8)]
    pending: dict[int, list[int]] = {}
    for _ in range(250):
        action = random.choice(["write", "write", "commit", "rollback", "dequeue", "dequeue", "savepoint"])
        number = random.randrange(len(connections))
        writer = connections[number]
        if action == "write":
            added = writer.enqueue(*random.choices("abc", k=random.randint(1, 3)))
            pending.setdefault(number, []).extend(one.message_id for one in added)
        elif action == "savepoint":
            writer.rows("savepoint one")
            added = writer.enqueue(random.choice("abc"))
            if random.random() < 0.5:
                writer.rows("rollback to savepoint one")
                added = []
            pending.setdefault(number, []).extend(one.message_id for one in added)
        elif action == "rollback":
            writer.rollback()
            pending.pop(number, None)
        elif action == "commit":
            writer.commit()
            ready = pending.pop(number, [])
            consumer = random.choice(consumers)
            assert sorted(consumer.serve()) == sorted(ready)
        else:
            kernel.enqueue("a")
            assert len(random.choice(consumers).serve()) == 1
    assert kernel.value("select count(*) from fq_signal") == 0


def test_signals_of_a_locked_channel_make_no_dequeue_dearer(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """While a transaction keeps a channel locked that has unheard signals, a dequeue reads no more for their number."""
    kernel.enqueue("a", "locked")
    consumer = Follower(kernel)
    consumer.drain()
    before = _read(consumer)
    business = open_kernel()
    business.rows(
        "select from fq_channel_state s join fq_channel c on c.id = s.channel_id and c.name = 'locked'"
        " for no key update of s"
    )
    (late,) = kernel.enqueue("locked")
    for _ in range(10):
        _signal(kernel, 1000)
        assert consumer.serve() == []
    # One signal of the channel is heard in vain and, every 10 ms, put back.
    assert _read(consumer) < 2 * before
    business.rollback()
    assert consumer.serve() == [late.message_id]
