"""Traps of the server's own features: publications, two-phase commit, serializable callers, hostile search paths,
references.
"""

import pytest

from tests.sql.client import Kernel, OpenKernel
from tests.sql.life.verbs import keep_history

pytestmark = pytest.mark.usefixtures("cloned")


def test_a_publication_of_all_tables_hinders_nothing(kernel: Kernel) -> None:
    """Every table has a replica identity, the state's being full: with a FOR ALL TABLES publication every verb still
    works.
    """
    kernel.rows("create publication everything for all tables")
    kernel.set_queue(history=True)
    kernel.configure_queue(50)
    kernel.configure_queue(60)
    kernel.configure("a", 50)
    added = kernel.enqueue(*["a"] * 8, keys=[*"abcdefgh"])
    kernel.cancel(added[0].message_id)
    one, two, three, four, *_ = kernel.dequeue(7).hands
    assert kernel.extend(one.lease_id, 60_000_000) is not None
    assert kernel.complete(one) == kernel.release(two) == kernel.retry(three) == kernel.bury(four) == {}
    kernel.rows("update fq_lease set expires_at = fq_now()")
    assert len(kernel.drain()) == 5
    assert kernel.value("select count(*) from fq_signal") <= 1
    # What the default partition took is moved to its day.
    assert "made" in keep_history(kernel, 0).values()
    assert kernel.value("select count(*) from fq_history_default") == 0


def test_serializable_completion_and_follow_up_never_fail(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """Rows are reached by ctid: serializable transactions that complete and enqueue on different channels, rows side
    by side, all commit.
    """
    names = ("a", "b", "c")
    kernel.configure("a", 1000)
    kernel.enqueue(*names * 120)
    hands = kernel.dequeue(360).hands
    by_channel = {name: [hand for hand in hands if hand.channel == name] for name in names}
    sessions = [open_kernel(isolation="SERIALIZABLE") for _ in names]
    for _ in range(60):
        for session, name in zip(sessions, names, strict=True):
            mine = [by_channel[name].pop(), by_channel[name].pop()]
            assert session.complete(*mine) == {}
        for session, name in zip(sessions, names, strict=True):
            session.enqueue(name)
        kernel.dequeue(2)
        for session in sessions:
            session.commit()
    assert kernel.value("select count(*) from fq_message") == 180


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_two_phase_transactions(kernel: Kernel, open_kernel: OpenKernel, end: str) -> None:
    """Enqueues and completions can be prepared: until the end others are served, then all of it counts or none."""
    kernel.configure("a", 2)
    kernel.enqueue("a", "a")
    (hand,) = kernel.dequeue().hands
    business = open_kernel()
    # Such names are the whole server's.
    business.connection.tpc_begin(f"global {business.connection.info.dbname}")
    business.enqueue("a", "new")
    assert business.complete(hand) == {}
    business.connection.tpc_prepare()
    business.connection.close()
    assert len(kernel.dequeue(10).hands) == 1
    kernel.enqueue("b")
    assert kernel.dequeue(10).channels == ["b"]
    (gid,) = kernel.rows("select gid from pg_prepared_xacts where database = current_database()")
    assert kernel.connection.autocommit
    kernel.rows(f"{end} prepared '{gid['gid']}'")
    assert sorted(kernel.dequeue(10).channels) == (["a", "new"] if end == "commit" else [])
    assert kernel.complete(hand) == ({hand.id: "lost"} if end == "commit" else {})


def test_a_hostile_search_path_changes_nothing(kernel: Kernel) -> None:
    """Names are pinned: temporary tables and a schema that shadow tables, operators and functions are never reached."""
    for table in ("fq_message", "fq_signal", "fq_channel", "fq_channel_state", "fq_lease", "fq_queue"):
        kernel.rows(f"create temporary table {table} (trap integer)")
    kernel.rows("create schema hostile")
    trap = "language plpgsql as $$ begin raise exception 'trapped'; end $$"
    kernel.rows(f"create function hostile.cardinality(anyarray) returns integer {trap}")
    kernel.rows(f"create function hostile.clock_timestamp() returns timestamptz {trap}")
    kernel.rows(f"create function hostile.equal(bigint, bigint) returns boolean {trap}")
    kernel.rows("create operator hostile.= (leftarg = bigint, rightarg = bigint, function = hostile.equal)")
    kernel.rows("set search_path = hostile, pg_temp, pg_catalog, public")
    kernel.configure("a", 2)
    kernel.enqueue("a", "a", "a", keys=[None, "k", None])
    one, two = kernel.dequeue(3).hands
    assert kernel.extend(one.lease_id, 60_000_000, one) is not None
    assert kernel.release(one) == kernel.complete(two) == {}
    assert len(kernel.drain()) == 2
    assert kernel.value("select public.fq_now()") > 0


def test_a_user_s_reference_does_not_hinder(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """A row that references a message, written by an open transaction, locks its key only: the message is handed out
    all the same.
    """
    (added,) = kernel.enqueue("a")
    kernel.rows("create table upload (message_id bigint references fq_message on delete set null)")
    business = open_kernel()
    business.rows("insert into upload values (%(id)s)", id=added.message_id)
    call = kernel.dequeue()
    assert call.ids == [added.message_id]
    business.commit()
    assert kernel.complete(*call.hands) == {}
    assert kernel.value("select message_id from upload") is None


def test_prepared_statements_of_callers_work(kernel: Kernel) -> None:
    """Every verb works prepared on the server, with plans that were made while the tables were empty."""
    kernel.connection.prepare_threshold = 0
    for _ in range(12):
        kernel.enqueue("a", "b", keys=["k", None])
        hands = kernel.dequeue(5).hands
        assert len(hands) == 2
        assert kernel.retry(*hands) == {}
        assert kernel.complete(*kernel.dequeue(5).hands) == {}
