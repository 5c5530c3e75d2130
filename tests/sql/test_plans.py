"""Each statement of each verb reaches its rows by index or by ctid, as many as the batch needs, whatever lies in the
tables.

The plans are those of a fresh install that was never analysed: made in a session that starts while the tables are
empty.
"""

from functools import partial

import pytest

from tests.sql.client import HOUR, Kernel, OpenKernel, policy_json
from tests.sql.plans import assert_frugal, explained

pytestmark = pytest.mark.usefixtures("cloned")

BATCH = 10
# What a batch may read of one table in one statement: its channels or messages, one more a channel, and what was left
# behind by the call before.
BOUND = 4 * BATCH
_LIMITS = ("max_concurrency", "rate_interval", "limits")


def _warm(kernel: Kernel) -> None:
    """Let every function make its generic plans now, while the tables are as good as empty."""
    for _ in range(2):
        kernel.configure("first")
        kernel.enqueue("first", "first", "first", keys=[None, "a", "b"])
        kernel.cancel(kernel.enqueue("first")[0].message_id)
        kernel.hear()
        kernel.enqueue("first", "first")
        one, two, three, *rest = kernel.dequeue(BATCH).hands
        kernel.release(one)
        kernel.retry(two)
        kernel.bury(three)
        kernel.extend(one.lease_id, HOUR, *rest)
        kernel.complete(*rest)
        kernel.rows("update fq_lease set expires_at = fq_now()")
        kernel.drain()


def _fill(kernel: Kernel, messages: int, channels: int) -> None:
    """A backlog that was enqueued long ago, put in by the shortest way: half in the first channel, the rest spread over
    the others.
    """
    kernel.rows(
        "insert into fq_channel (queue, name) select 'q', 'c' || i from generate_series(1, %(n)s) i", n=channels
    )
    kernel.rows(
        """
        insert into fq_message (channel_id, kind, content, dequeue_at, enqueued_at, max_attempts)
        select c.id + case when i %% 2 = 0 then 0 else i %% %(channels)s end, 'work', '{}', i, i, 20
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
    names = [f"c{number}" for number in range(1, BATCH + 1)]

    def frugal(sql: str, **parameters: object) -> None:
        assert_frugal(kernel, BOUND, lambda: kernel.rows(sql, **parameters))

    assert_frugal(kernel, BOUND, lambda: kernel.enqueue(*names))
    assert_frugal(kernel, BOUND, lambda: kernel.enqueue(*names, keys=names))
    assert_frugal(kernel, BOUND, lambda: kernel.enqueue("new"))
    frugal("select fq_enqueue_one('q', 'c1', '1', p_key => 'c1', p_on_duplicate => 'replace')")
    frugal("select fq_enqueue_one('q', 'c1', '1', p_ordering_key => 'c1', p_on_duplicate => 'coalesce')")
    assert_frugal(kernel, BOUND, kernel.hear)
    batches = []
    for limit in (1, BATCH):
        assert_frugal(kernel, BOUND, lambda: batches.append(kernel.dequeue(limit, lease=HOUR)))  # noqa: B023 - called at once
    hands = batches[1].hands
    assert len(hands) == BATCH
    assert_frugal(kernel, BOUND, lambda: kernel.dequeue(BATCH, lease_id=hands[0].lease_id))
    assert_frugal(kernel, BOUND, lambda: kernel.extend(hands[0].lease_id, HOUR, *hands))
    assert_frugal(kernel, BOUND, lambda: kernel.charge_running([(hand, 5, 0) for hand in hands]))
    assert_frugal(kernel, BOUND, lambda: kernel.correct(hands[0], 5))
    frugal("select * from fq_set_aside('q', 1, 0, %(ids)s, 'unreadable')", ids=[hand.id for hand in hands])
    assert_frugal(kernel, BOUND, lambda: kernel.release(*hands[:3]))
    assert_frugal(kernel, BOUND, lambda: kernel.retry(*hands[3:5]))
    assert_frugal(kernel, BOUND, lambda: kernel.bury(*hands[5:7]))
    assert_frugal(kernel, BOUND, lambda: kernel.complete(*hands[7:]))
    ids = list(range(messages // 2, messages // 2 + BATCH))
    frugal("select fq_lock_messages('q', %(ids)s)", ids=ids)
    frugal("select * from fq_message_details('q', %(ids)s, 10, 0)", ids=ids)
    frugal("select * from fq_find_named('q', array['c1'], array['c1'], array[null])")
    frugal("select fq_make_due('q', %(id)s, false)", id=ids[0])
    frugal("select fq_move_message('q', %(id)s, 'c2', null, false)", id=ids[1])
    frugal("select fq_purge_channel('q', 'c1', p_key => 'c1')")
    assert_frugal(kernel, BOUND, lambda: kernel.cancel(*ids))
    kernel.rows(
        "insert into fq_dead_letter (message_id, channel_id, queue, kind, content, enqueued_at, attempts, max_attempts,"
        " deliveries, reason, died_at)"
        " select 1000000000 + i, c.id, 'q', 'work', '', 0, 1, 1, 1, 'bad', i"
        " from fq_channel c, generate_series(1, 20000) i where c.name = 'c1'"
    )
    frugal("select * from fq_redrive('q', array[1000000007, 1000000008])")
    frugal("select fq_purge_dead('q', array[1000000003, 1000000004])")
    assert_frugal(kernel, BOUND, lambda: kernel.configure("c1", 5))
    kernel.rows(
        "insert into fq_promotion (queue, due_at, message_id) select 'q', dequeue_at, id from fq_message"
        " where id = %(id)s",
        id=messages - 1,
    )
    kernel.rows("update fq_lease set expires_at = fq_now()")
    assert_frugal(kernel, BOUND, lambda: kernel.dequeue(BATCH))
    assert kernel.value("select count(*) from fq_promotion") == 0


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
    calls = []
    for limit in (1, BATCH):
        frugal(lambda: calls.append(kernel.dequeue(limit, lease=HOUR)))  # noqa: B023 - called at once
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
    for limit in 1, BATCH, 1, BATCH:
        assert_frugal(kernel, BOUND, partial(kernel.dequeue, limit))


def test_settling_by_place_reads_no_index_of_messages(kernel: Kernel) -> None:
    """A delivery whose row has not moved is settled by its ctid: under SERIALIZABLE that avoids false conflicts. Its
    channel, which never changes, says of which queue it is.
    """
    kernel.enqueue(*["a"] * 12)
    hands = kernel.dequeue(12).hands
    with explained(kernel) as scans:
        kernel.complete(*hands[:3])
        kernel.release(*hands[3:6])
        kernel.retry(*hands[6:9])
        kernel.bury(*hands[9:])
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
