"""Each statement of each verb reaches its rows by index or by ctid, as many as the batch needs, whatever lies in the
tables.

The plans are those of a fresh install that was never analysed: made in a session that starts while the tables are
empty.
"""

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial

import pytest

from tests.fixtures.clock import Clock
from tests.sql.client import HOUR, Kernel, OpenKernel, policy_json
from tests.sql.kernel.verbs import bound, limit, pause, resume
from tests.sql.life.verbs import (
    end_wait,
    heartbeat,
    keep_history,
    lock_messages,
    purge_channel,
    purge_dead,
    redrive,
    wait,
    wake,
)
from tests.sql.plans import assert_frugal, explained

pytestmark = pytest.mark.usefixtures("cloned")

BATCH = 10
# What a batch may read of one table in one statement: its channels or messages, one more a channel, and what was left
# behind by the call before.
BOUND = 4 * BATCH
_LIMITS = ("max_concurrency", "rate_interval", "limits")


def _administer(kernel: Kernel, one: str, two: str, three: str) -> Iterator[tuple[str, Callable[[], object]]]:
    """Pauses, limits, bounds and the history, with what consumers do meanwhile."""
    yield "pause", partial(pause, kernel, one, new=True)
    yield "resume", partial(resume, kernel, one)
    yield "pause queue", partial(pause, kernel)
    yield "resume queue", partial(resume, kernel)
    yield "record", partial(kernel.set_queue, history=True)
    yield "limit", partial(limit, kernel, 2 * BATCH)
    yield "raise", partial(limit, kernel, 20 * BATCH)
    yield "dequeue", kernel.dequeue
    yield "complete", lambda: kernel.complete(*kernel.dequeue(BATCH).hands)
    yield "dequeue more", partial(kernel.dequeue, BATCH)
    yield "hear", kernel.hear
    yield "configure", partial(kernel.configure, two, 5)
    yield "bound", partial(bound, kernel, three, 5)
    yield "lift", partial(limit, kernel, None)


def _warm(kernel: Kernel) -> None:
    """Let every function make its generic plans now, while the tables are as good as empty."""
    keep_history(kernel, 1)
    for _ in range(2):
        kernel.configure("first")
        bound(kernel, "bounded", 5)
        kernel.enqueue("first", "first", "first", "bounded", keys=[None, "a", "b", None])
        kernel.enqueue("first", "first", keys=["a", "c"], on="replace", notify=True)
        kernel.cancel(kernel.enqueue("first")[0].message_id)
        kernel.hear()
        kernel.enqueue("first", "first")
        one, two, three, four, *rest = kernel.dequeue(BATCH).hands
        kernel.enqueue("first", keys=["a"], on="replace", hold=[one.id])
        kernel.cancel(four.id)
        lock_messages(kernel, one.id)
        kernel.release(one, notify=True)
        kernel.retry(two, four, notify=True)
        kernel.bury(three, *rest[:1])
        kernel.extend(one.lease_id, HOUR, *rest[1:])
        heartbeat(kernel, one.lease_id)
        wait(kernel, one.lease_id)
        wake(kernel)
        end_wait(kernel, one.lease_id)
        kernel.complete(*rest[1:])
        redrive(kernel, three.id)
        redrive(kernel)
        purge_channel(kernel, "first")
        kernel.enqueue("first", "first")
        kernel.bury(*kernel.dequeue(BATCH).hands)
        purge_dead(kernel, three.id)
        purge_dead(kernel, kind="none")
        for _, work in _administer(kernel, "first", "second", "bounded"):
            work()
        kernel.set_queue(history=False)
        kernel.rows("update fq_lease set expires_at = fq_now()")
        kernel.drain()


def _fill(kernel: Kernel, messages: int, channels: int) -> None:
    """A backlog that was enqueued long ago, put in by the shortest way: half in the first channel, the rest spread over
    the others, each tenth with a key.
    """
    kernel.rows(
        "insert into fq_channel (queue, name) select 'q', 'c' || i from generate_series(1, %(n)s) i", n=channels
    )
    kernel.rows(
        """
        insert into fq_message (channel_id, kind, content, dequeue_at, enqueued_at, max_attempts, key)
        select c.id + case when i %% 2 = 0 then 0 else i %% %(channels)s end, 'work', '{}', i, i, 20,
          case when i %% 10 = 0 then 'k' || i end
        from fq_channel c
        cross join generate_series(1, %(messages)s) i
        where c.name = 'c1'
        """,
        messages=messages,
        channels=channels,
    )
    kernel.rows("update fq_queue_state set ready_floor = '-9223372036854775808', ready_channel = 0")
    # A head is a lower bound: zero will do.
    kernel.rows(
        "insert into fq_channel_state (channel_id, queue, head_dequeue_at, head_message_id, tag, ready_tag)"
        " select id, 'q', 0, 0, id - 9000000000000000000, id - 9000000000000000000 from fq_channel where name like 'c%'"
    )


def _analyse_empty(kernel: Kernel, reader: Kernel) -> None:
    """Let the statistics say that the tables are empty, and have some pages all the same: what an old snapshot keeps
    does not count. By them the shortest way to a row is to read the whole primary key.
    """
    reader.value("select count(*) from fq_message")
    kernel.enqueue(*["first"] * 2_000)
    kernel.bury(*kernel.dequeue(1_000).hands)
    kernel.rows("select fq_purge_dead('q')")
    kernel.complete(*kernel.drain(1_000))
    kernel.rows("vacuum analyze")
    reader.rollback()


@pytest.mark.parametrize("messages", [40_000, pytest.param(1_000_000, marks=pytest.mark.whole)])
@pytest.mark.parametrize("analysed", [False, True], ids=["never analysed", "analysed while empty"])
def test_every_verb_is_frugal_with_many_messages(
    kernel: Kernel, open_kernel: OpenKernel, messages: int, *, analysed: bool
) -> None:
    """With plans made on empty tables and many messages in 2,000 channels, each verb reads in proportion to its batch.

    Without the pinned planner settings and the look-ups that cannot be turned round, a plan of the empty tables reads
    them whole.
    """
    if analysed:
        _analyse_empty(kernel, open_kernel(isolation="REPEATABLE_READ"))
    _warm(kernel)
    _fill(open_kernel(autocommit=True), messages, 2_000)
    # Consumers of another queue wait.
    kernel.rows(
        "insert into fq_lease (id, queue, consumer, expires_at, waiting_until)"
        " select i, 'other', 'me', 9000000000000000, 9000000000000000 from generate_series(1, 10000) i"
    )
    bound(kernel, "c5", 1_000_000)
    kernel.set_queue(history=True)
    names = [f"c{number}" for number in range(1, BATCH + 1)]
    half = messages // 2
    ids = range(half, half + BATCH)
    work: Callable[[], object]
    frugal, sql = partial(assert_frugal, kernel, BOUND), partial(partial, kernel.rows)

    for work in (
        lambda: kernel.enqueue(*names, notify=True),
        lambda: kernel.enqueue(*names, keys=names),
        lambda: kernel.enqueue(*names, keys=names, on="replace", hold=ids),
        lambda: kernel.enqueue("new"),
        lambda: kernel.enqueue("c7", notify=True),
        lambda: kernel.enqueue("c5"),
        sql("select fq_enqueue_one('q', 'c1', '1', p_key => 'k10', p_on_duplicate => 'replace')"),
        sql("select fq_enqueue_one('q', 'c1', '1', p_ordering_key => 'c1', p_on_duplicate => 'coalesce')"),
        kernel.hear,
    ):
        frugal(work)
    batches = [assert_frugal(kernel, BOUND, partial(kernel.dequeue, size, lease=HOUR)) for size in (1, BATCH, BATCH)]
    hands = [hand for batch in batches[1:] for hand in batch.hands]
    assert len(hands) == 2 * BATCH
    lease_id = hands[0].lease_id
    for work in (
        lambda: kernel.dequeue(BATCH, lease_id=lease_id),
        lambda: kernel.extend(lease_id, HOUR, *batches[1].hands),
        lambda: heartbeat(kernel, lease_id),
        lambda: kernel.charge_running([(hand, 5, 0) for hand in batches[1].hands]),
        lambda: kernel.correct(hands[0], 5),
        sql("select * from fq_set_aside('q', 1, 0, %(ids)s, 'unreadable')", ids=batches[1].ids),
        lambda: kernel.cancel(*batches[1].ids[:5], *(id_ + 2 * BATCH for id_ in ids[:5])),
        lambda: kernel.release(*hands[:6], notify=True),
        lambda: kernel.retry(*hands[6:10], notify=True),
        lambda: kernel.bury(*hands[10:16]),
        lambda: kernel.complete(*hands[16:19]),
        lambda: kernel.complete(hands[19]),
        lambda: wait(kernel, lease_id),
        lambda: wake(kernel),
        lambda: end_wait(kernel, lease_id),
        lambda: lock_messages(kernel, *ids),
        sql("select * from fq_message_details('q', %(ids)s, 10, 0)", ids=list(ids)),
        sql("select * from fq_find_named('q', array['c1'], array['c1'], array[null])"),
        sql("select fq_make_due('q', %(id)s, false)", id=ids[0]),
        sql("select fq_move_message('q', %(id)s, 'c2', null, false)", id=ids[1]),
        sql("select fq_purge_channel('q', 'c1', p_key => 'c1')"),
    ):
        frugal(work)
    kernel.enqueue(*["small"] * BATCH)
    frugal(lambda: purge_channel(kernel, "small"))
    kernel.rows(
        "insert into fq_dead_letter (message_id, channel_id, queue, kind, content, enqueued_at, attempts, max_attempts,"
        " deliveries, reason, died_at)"
        " select 1000000000 + i, c.id, 'q', 'work', '', 0, 1, 1, 1, 'bad', i"
        " from fq_channel c, generate_series(1, 20000) i where c.name = 'c1'"
    )
    for work in (
        lambda: redrive(kernel, *range(-BATCH, 0), 1000000007, 1000000008),
        lambda: redrive(kernel, limit=BATCH),
        lambda: purge_dead(kernel, *range(-BATCH, 0), 1000000103, 1000000104),
        lambda: purge_dead(kernel, before=5 * BATCH),
    ):
        frugal(work)
    # By statistics of empty tables the first limit of a channel reads all leases.
    kernel.rows("delete from fq_lease where queue = 'other'")
    frugal(lambda: kernel.configure("c1", 5))
    kernel.rows(
        "insert into fq_promotion (queue, due_at, message_id) select 'q', dequeue_at, id from fq_message"
        " where id = %(id)s",
        id=messages - 1,
    )
    kernel.rows("update fq_lease set expires_at = fq_now() where queue = 'q'")
    frugal(lambda: kernel.dequeue(BATCH))
    assert kernel.value("select count(*) from fq_promotion") == 0
    for name, work in _administer(kernel, "c1", "c2", "c3"):
        with explained(kernel) as scans:
            work()
        wide = [scan for scan in scans if scan.node == "Seq Scan" or scan.rows > BOUND]
        # The first limit of a queue locks all channels with messages.
        locked = {"fq_channel", "fq_channel_state"} if name == "limit" else set()
        assert [str(scan) for scan in wide if scan.table not in locked] == []


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"history": True}, id="history"),
        pytest.param({"result_retention": HOUR}, id="results"),
        pytest.param({"on_dead": "hold", "on_dead_kinds": ["work"]}, id="on dead"),
        pytest.param({"default_plan": "p"}, id="plan"),
        pytest.param({"fair_by": "cost"}, id="cost"),
        pytest.param({"fair_by": "seconds"}, id="seconds"),
        pytest.param({"max_concurrency": 10_000}, id="limit"),
        pytest.param({"rate_interval": 1, "rate_burst": 10_000}, id="rate"),
        pytest.param({"limits": ["shared"]}, id="shared limit"),
    ],
)
def test_every_setting_is_frugal(kernel: Kernel, open_kernel: OpenKernel, settings: dict[str, object]) -> None:
    """What a setting adds to the verbs of consumers reads in proportion to the batch, too, by plans of empty tables."""
    kernel.rows("select fq_configure_limit('shared', %(changes)s)", changes=policy_json(max_concurrency=10_000))
    kernel.rows("select fq_configure_plan('q', 'p', %(changes)s)", changes=policy_json(max_concurrency=9_000))
    function = "set_queue" if settings.keys().isdisjoint(_LIMITS) else "limit_queue"
    kernel.rows(f"select fq_{function}('q', %(settings)s)", settings=policy_json(**settings))
    _analyse_empty(kernel, open_kernel(isolation="REPEATABLE_READ"))
    _warm(kernel)
    _fill(open_kernel(autocommit=True), 40_000, 2_000)
    frugal = partial(assert_frugal, kernel, BOUND)
    calls = [assert_frugal(kernel, BOUND, partial(kernel.dequeue, size, lease=HOUR)) for size in (1, BATCH)]
    one, two, three, four, *rest = [hand for call in calls for hand in call.hands]
    frugal(partial(kernel.rows, "select * from fq_heartbeat(%(ids)s, 60000000, 'q')", ids=[one.lease_id]))
    frugal(partial(kernel.rows, "select * from fq_results('q', %(ids)s)", ids=[one.id, two.id]))
    more = "select * from fq_take_more('q', %(id)s, %(lease_id)s, %(deliveries)s, 5, null, null)"
    frugal(partial(kernel.rows, more, id=four.id, lease_id=four.lease_id, deliveries=four.deliveries))
    frugal(partial(kernel.rows, "select * from fq_held(%(id)s)", id=one.lease_id))
    frugal(partial(kernel.release, one))
    frugal(partial(kernel.retry, two))
    frugal(partial(kernel.bury, three))
    frugal(partial(kernel.complete, four))
    # Rows that were changed since are not where the delivery found them.
    *moved, last = rest
    kernel.rows("update fq_message set error = 'moved' where id = any (%(ids)s)", ids=[hand.id for hand in moved])
    frugal(partial(kernel.retry, moved.pop()))
    frugal(partial(kernel.complete, *moved))
    keep = (
        "select * from fq_complete('q', array[%(id)s::bigint], array[%(row)s::tid], array[%(lease_id)s::bigint],"
        " array[%(deliveries)s::integer], p_kept => array[true], p_results => array['1'::bytea])"
    )
    frugal(partial(kernel.rows, keep, id=last.id, row=last.row, lease_id=last.lease_id, deliveries=last.deliveries))


def test_many_ready_channels_cost_no_more_than_a_few(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """A dequeue reads as many channels as its batch needs, however many are ready."""
    _warm(kernel)
    _fill(open_kernel(autocommit=True), 40_000, 20_000)
    for size in 1, BATCH, 1, BATCH:
        assert_frugal(kernel, BOUND, partial(kernel.dequeue, size))


def test_settling_by_place_reads_no_index_of_messages(kernel: Kernel) -> None:
    """A delivery whose row has not moved is settled by its ctid: under SERIALIZABLE that avoids false conflicts. Its
    channel, which never changes, says of which queue it is. No lease is read to notify nobody, and no history.
    """
    kernel.enqueue(*["a"] * 14)
    hands = kernel.dequeue(14).hands
    with explained(kernel) as scans:
        kernel.complete(hands[0])
        kernel.complete(*hands[1:3])
        kernel.release(*hands[3:6])
        kernel.retry(*hands[6:9])
        kernel.bury(hands[9])
        kernel.bury(*hands[10:])
    reads = {(scan.table, scan.node) for scan in scans}
    # A letter looks for the note that its message has left if that was a member of a group, and whether it is followed.
    letters = {("fq_group_note", "Index Scan"), ("fq_queue", "Index Scan")}
    assert reads == {("fq_message", "Tid Scan"), ("fq_channel", "Index Scan"), *letters}


def test_reclaim_reads_expired_leases_only(kernel: Kernel) -> None:
    """Among a thousand live leases, reclaiming one reads the expired one and its messages."""
    _warm(kernel)
    kernel.rows(
        "insert into fq_lease (id, queue, consumer, expires_at)"
        " select i, 'q', 'other', fq_now() + 3600000000 from generate_series(1, 1000) i"
    )
    kernel.rows(
        "insert into fq_message (channel_id, kind, content, dequeue_at, enqueued_at, max_attempts, lease_id)"
        " select 1, 'work', '', 0, 0, 20, 1 + i % 1000 from generate_series(1, 10000) i"
    )
    kernel.rows("update fq_lease set expires_at = fq_now() where id = 7")
    assert_frugal(kernel, BOUND, lambda: kernel.rows("select fq_reclaim('q', 1000)"))
    assert kernel.value("select count(*) from fq_message where lease_id = 7") == 0


def test_waits_are_not_read_unless_told(kernel: Kernel) -> None:
    """Without p_notify no enqueue looks at the leases."""
    with explained(kernel) as scans:
        kernel.enqueue("a")
        kernel.enqueue("a", "b")
        kernel.enqueue("a", keys=["k"], on="replace")
    assert "fq_lease" not in {scan.table for scan in scans}


def test_marks_that_an_old_snapshot_keeps_are_passed_over(
    kernel: Kernel, open_kernel: OpenKernel, clock: Clock
) -> None:
    """Under an open snapshot, finding who waits reads none of the waits that are over, however many are kept."""
    lease_id, _ = wait(kernel, wait=24 * HOUR)
    end_wait(kernel, lease_id)
    snapshot = open_kernel(isolation="REPEATABLE_READ")
    snapshot.value("select count(*) from fq_lease")
    for _ in range(100):
        wait(kernel, lease_id, 1)
        end_wait(kernel, lease_id)
    clock.advance(timedelta(days=1))
    producer = open_kernel()
    assert not wake(producer)
    assert producer.value("select pg_stat_get_xact_tuples_returned('fq_lease_waiting_ix'::regclass)") == 0
    wait(kernel, None, HOUR)
    assert wake(producer)
    assert producer.value("select pg_stat_get_xact_tuples_returned('fq_lease_waiting_ix'::regclass)") == 1


def test_signals_that_an_old_snapshot_keeps_are_passed_over(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """Under an open snapshot, an enqueue to a bounded channel reads none of the signals that were heard."""
    bound(kernel, "a", 1_000)
    snapshot = open_kernel(isolation="REPEATABLE_READ")
    snapshot.value("select count(*) from fq_signal")
    for _ in range(100):
        kernel.enqueue("a")
    kernel.hear()
    producer = open_kernel()
    producer.enqueue("a")
    assert producer.value("select pg_stat_get_xact_tuples_returned('fq_signal_bounded_ix'::regclass)") == 0
    kernel.drain()
