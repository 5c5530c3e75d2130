"""fq_limit_queue and what dequeue makes of it: never more messages of a queue are out than its limit allows, and
whatever frees one is followed by exactly one more.
"""

from functools import partial

import pytest
from sqlalchemy import NullPool, create_engine, text

from tests.fixtures.database import Database, install
from tests.fixtures.waits import Waits
from tests.sql.client import HOUR, MILLISECOND, SECOND, Kernel, OpenKernel, on
from tests.sql.kernel.verbs import limit, unbalanced

pytestmark = pytest.mark.usefixtures("balanced")

SOON = 10 * MILLISECOND


def count(kernel: Kernel) -> int:
    """The queue's count."""
    found: int = kernel.value("select current_concurrency from fq_queue_state where queue = %(queue)s")
    return found


def test_a_completion_frees_the_slots_of_all_its_channels_by_one_signal(kernel: Kernel) -> None:
    """Only a channel that has a limit of its own is signalled itself; each slot of the queue is used again."""
    limit(kernel, 4)
    kernel.configure("own", max_concurrency=1)
    kernel.enqueue("a", "b", "c", "own")
    kernel.hear()
    hands = kernel.dequeue(10).hands
    kernel.enqueue(*"defgh")
    kernel.hear()
    assert kernel.complete(*hands) == {}
    assert kernel.rows("select freed, queue_freed from fq_signal order by freed") == [
        {"freed": 0, "queue_freed": 3},
        {"freed": 1, "queue_freed": 1},
    ]
    assert kernel.dequeue(10).channels == ["d", "e", "f", "g"]
    assert count(kernel) == 4


def test_at_the_limit_a_consumer_waits_until_a_lease_ends(kernel: Kernel) -> None:
    """Nothing comes before a slot is freed or a lease expires, so that is when something may be due."""
    limit(kernel, 1)
    kernel.enqueue("a", "b")
    assert kernel.dequeue(10, lease=80 * HOUR).due_in == pytest.approx(90 * HOUR, abs=HOUR)
    assert kernel.dequeue(10).due_in == pytest.approx(90 * HOUR, abs=HOUR)


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_two_consumers_at_the_same_instant_share_the_last_slot(
    kernel: Kernel, open_kernel: OpenKernel, waits: Waits, end: str
) -> None:
    """While one call is under way another takes nothing, waits for nothing and is told to come back soon."""
    limit(kernel, 1)
    kernel.enqueue("a", "b")
    first = open_kernel()
    assert first.dequeue().channels == ["a"]
    second = waits.unhindered(on(Kernel.dequeue))
    assert (second.hands, second.due_in) == ([], SOON)
    getattr(first, end)()
    assert len(kernel.dequeue(10).hands) == (end == "rollback")


@pytest.mark.parametrize("verb", ["complete", "release", "retry", "bury"])
def test_a_slot_is_free_when_its_transaction_commits(kernel: Kernel, open_kernel: OpenKernel, verb: str) -> None:
    """A settlement that rolls back frees nothing; one that commits frees one slot."""
    limit(kernel, 1)
    kernel.enqueue("a", "a")
    (hand,) = kernel.dequeue().hands
    business = open_kernel()
    for end, free in (("rollback", 0), ("commit", 1)):
        getattr(business, verb)(hand)
        assert kernel.dequeue().hands == []
        getattr(business, end)()
        assert len(kernel.dequeue(10).hands) == free


def test_a_raised_limit_counts_for_the_next_call(kernel: Kernel) -> None:
    """A consumer that found no room takes as soon as there is some."""
    limit(kernel, 1)
    kernel.enqueue("a", "b")
    kernel.dequeue()
    kernel.enqueue("c", "a")
    for _ in range(2):
        assert kernel.dequeue(10).hands == []
    limit(kernel, 3)
    assert kernel.dequeue(10).channels == ["b", "c"]


@pytest.mark.parametrize("opened", [True, False], ids=["opened", "never dequeued"])
def test_setting_a_limit_waits_for_a_dequeue_under_way(
    kernel: Kernel, open_kernel: OpenKernel, waits: Waits, *, opened: bool
) -> None:
    """What calls are taking while a limit waits for them is counted; they wait for nothing, and take nothing beside
    the first delivery of the queue.
    """
    kernel.enqueue(*"abcd")
    if opened:
        kernel.ready()
    consumer = open_kernel()
    assert len(consumer.dequeue(2).hands) == 2
    rival = waits.start(on(partial(limit, most=3))).blocked()
    taken = waits.unhindered(on(lambda other: other.dequeue().channels))
    assert taken == (["c"] if opened else [])
    consumer.commit()
    rival.result()
    assert count(kernel) == 2 + len(taken)
    assert len(kernel.dequeue(10).hands) == 1 - len(taken)


_STALLED_LOOK = """
alter function fq_look(text, integer, bigint) rename to fq_look_at_once;
create table stalled ();
create function fq_look(p_queue text, p_limit integer, p_now bigint) returns record language plpgsql as $$
declare
  v_sight record := public.fq_look_at_once(p_queue, p_limit, p_now);
begin
  lock table public.stalled in share mode;
  return v_sight;
end
$$;
"""


def test_a_dequeue_that_looked_before_the_first_limit_takes_nothing(
    kernel: Kernel, open_kernel: OpenKernel, waits: Waits
) -> None:
    """A call that stalls before it locks a channel asks again whether its queue is limited; else the limit would not
    count what it takes.
    """
    kernel.enqueue(*"abc")
    kernel.ready()
    kernel.rows(_STALLED_LOOK)
    holder = open_kernel()
    holder.rows("lock table stalled in exclusive mode")
    stalled = waits.start(on(lambda rival: rival.dequeue(2))).blocked()
    limit(kernel, 1)
    holder.commit()
    call = stalled.result()
    assert (call.hands, call.due_in) == ([], SOON)
    assert len(kernel.dequeue(3).hands) == 1


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_an_open_limit_stops_its_queue_only(kernel: Kernel, open_kernel: OpenKernel, waits: Waits, end: str) -> None:
    """Until its transaction ends, calls of the queue take nothing; nobody else notices."""
    kernel.enqueue(*"abcd")
    Kernel(kernel.connection, queue="other").enqueue("a")
    known = kernel.dequeue()
    admin = open_kernel()
    limit(admin, 2)
    call = waits.unhindered(on(lambda rival: rival.dequeue(lease_id=known.lease_id, lease=SECOND)))
    assert (call.hands, call.due_in, call.lease_id) == ([], SOON, known.lease_id)
    assert waits.unhindered(on(lambda rival: Kernel(rival.connection, queue="other").dequeue().channels)) == ["a"]
    waits.unhindered(on(lambda rival: rival.enqueue("a", "new", keys=["k", None])))
    waits.unhindered(on(Kernel.hear))
    getattr(admin, end)()
    assert len(kernel.dequeue(10).hands) == (1 if end == "commit" else 5)


def test_dequeues_go_on_while_a_completion_is_waited_for(kernel: Kernel, open_kernel: OpenKernel, waits: Waits) -> None:
    """A limit that waits for somebody's transaction stops nobody yet; what is taken meanwhile is counted as well."""
    kernel.enqueue(*"abcdef")
    one, _ = kernel.dequeue(2).hands
    business = open_kernel()
    business.complete(one)
    rival = waits.start(on(partial(limit, most=4))).blocked()
    assert len(waits.unhindered(on(lambda consumer: consumer.dequeue(2).hands))) == 2
    business.commit()
    rival.result()
    assert count(kernel) == 3
    assert len(kernel.dequeue(10).hands) == 1


def test_configuring_a_channel_keeps_no_slot_of_the_queue(
    kernel: Kernel, open_kernel: OpenKernel, waits: Waits
) -> None:
    """While a channel is configured in an open transaction, the queue's slots that its messages freed are used."""
    limit(kernel, 1)
    kernel.enqueue("a", "b")
    (hand,) = kernel.dequeue().hands
    assert kernel.complete(hand) == {}
    admin = open_kernel()
    admin.configure("a", 7)
    assert waits.unhindered(on(lambda consumer: consumer.dequeue(10).channels)) == ["b"]
    admin.commit()
    assert unbalanced(kernel) == []
    assert kernel.hear() > 0
    assert kernel.value("select count(*) from fq_signal") == 0


def test_hearing_beside_a_dequeue_leaves_it_the_queue_s_slots(
    kernel: Kernel, open_kernel: OpenKernel, waits: Waits
) -> None:
    """Slots of the queue are freed by whoever has its state row, once."""
    limit(kernel, 2)
    kernel.enqueue(*"abcd")
    one, two = kernel.dequeue(2).hands
    kernel.complete(one)
    consumer = open_kernel()
    assert len(consumer.dequeue(10).hands) == 1
    kernel.complete(two)
    assert waits.unhindered(on(Kernel.hear)) == 0
    assert unbalanced(kernel) == []
    consumer.commit()
    assert kernel.hear() == 1
    assert len(kernel.dequeue(10).hands) == 1


def test_queues_of_one_name_in_two_schemas_are_two(
    kernel: Kernel, open_kernel: OpenKernel, database: Database, waits: Waits
) -> None:
    """A limit stops one queue of one installation: a configuration elsewhere stops nobody."""
    with create_engine(database.url, poolclass=NullPool).begin() as connection:
        connection.execute(text("create schema other"))
        install(connection, schema="other")
    kernel.enqueue("a", "b")
    kernel.dequeue()
    admin = open_kernel()
    one = "jsonb '{\"max_concurrency\": 1}'"
    admin.rows(f"select other.fq_limit_queue('q', {one}), fq_limit_queue('p', {one})")
    assert waits.unhindered(on(lambda rival: rival.dequeue().channels)) == ["b"]


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_the_first_delivery_waits_for_nobody(kernel: Kernel, open_kernel: OpenKernel, waits: Waits, end: str) -> None:
    """A queue that was never dequeued is opened by its first limit or its first delivery: the other one takes nothing
    meanwhile, or counts what was taken.
    """
    kernel.enqueue(*"abcd")
    admin = open_kernel()
    limit(admin, 2)
    call = waits.unhindered(on(Kernel.dequeue))
    assert (call.hands, call.due_in) == ([], SOON)
    getattr(admin, end)()
    assert len(kernel.dequeue(10).hands) == (2 if end == "commit" else 4)


def test_a_limit_that_was_rolled_back(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """A limit that was rolled back, or released by a savepoint, closes nothing for longer than its transaction."""
    kernel.enqueue(*"abcd")
    kernel.dequeue()
    admin = open_kernel()
    admin.rows("savepoint one")
    limit(admin, 2)
    assert kernel.dequeue().hands == []
    admin.rows("rollback to savepoint one")
    assert len(kernel.dequeue().hands) == 1
    limit(admin, 2)
    admin.rows("release savepoint one")
    assert kernel.dequeue().hands == []
    admin.rollback()
    assert len(kernel.dequeue(10).hands) == 2
