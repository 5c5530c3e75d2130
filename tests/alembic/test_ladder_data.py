"""The steps between versions under messages of every kind."""

from collections.abc import Iterable

import psycopg
import pytest

from sqlalchemy_fairqueue.sql import downgrade_statements, upgrade_statements
from tests.fixtures.waits import Waits
from tests.sql.answers import Hand
from tests.sql.client import HOUR, Kernel, OpenKernel, on
from tests.sql.kernel.verbs import limit, pause, record, resume, unbalanced

pytestmark = pytest.mark.installed


def run(kernel: Kernel, statements: Iterable[str]) -> None:
    """All statements in the kernel's transaction, or each in its own."""
    for statement in statements:
        kernel.rows(statement)


def upgrade(kernel: Kernel) -> None:
    """Version 2 to 3 in one transaction."""
    with kernel.connection.transaction():
        run(kernel, upgrade_statements(2, 3, None))


def downgrade(kernel: Kernel) -> None:
    """Version 3 to 2 in one transaction."""
    with kernel.connection.transaction():
        run(kernel, downgrade_statements(3, 2, None))


def _at_work(kernel: Kernel) -> list[Hand]:
    """Messages of every kind: ready, scheduled, out with slots and without, dead, with signals heard and not heard."""
    kernel.configure("a", 3)
    kernel.enqueue(*"aaaaabbbb", delays=[None] * 8 + [HOUR])
    *hands, dead, done = kernel.dequeue(6).hands
    kernel.bury(dead)
    kernel.complete(done)
    kernel.enqueue("b", "c")
    return hands


def test_an_upgrade_keeps_everything(kernel: Kernel) -> None:
    """Messages, hands and signals of version 2 go on in version 3, and the sums are right from the first moment."""
    hands = _at_work(kernel)
    before = {row["id"] for row in kernel.rows("select id from fq_message")}
    upgrade(kernel)
    assert kernel.value("select fq_version()") == 3
    assert {row["id"] for row in kernel.rows("select id from fq_message")} == before
    assert {row["id"] for row in kernel.rows("select id from fq_message where note = 'out'")} == {
        hand.id for hand in hands
    }
    assert unbalanced(kernel) == []
    assert kernel.complete(*hands[1:]) == {}
    assert kernel.release(hands[0]) == {}
    kernel.rows("update fq_message set dequeue_at = 1")
    kernel.rows("update fq_channel_state set head_dequeue_at = 0, next_dequeue_at = 0")
    assert len(kernel.drain()) == 6
    assert unbalanced(kernel) == []


def test_a_downgrade_leaves_what_version_2_can_go_on_with(kernel: Kernel) -> None:
    """What version 2 has is as it was: slots, limits, pauses, policies, what was withdrawn. What version 3 added is
    gone.
    """
    upgrade(kernel)
    limit(kernel, 9)
    record(kernel, history=True)
    hands = _at_work(kernel)
    (cancelled,) = kernel.rows("select * from fq_cancel('q', %(ids)s)", ids=[hands[0].id])
    assert cancelled["outcome"] == "leased"
    kernel.rows("select fq_add_note(%(ids)s, 'mine')", ids=[hand.id for hand in hands])
    kernel.enqueue("unheard")
    pause(kernel, "a")
    settings = ("select * from fq_queue", "select * from fq_queue_state", "select * from fq_channel_state order by 1")
    before = [kernel.rows(rows) for rows in settings]
    downgrade(kernel)
    assert kernel.value("select fq_version()") == 2
    assert [kernel.rows(rows) for rows in settings] == before
    assert "note" not in kernel.rows("select * from fq_message")[0]
    assert unbalanced(kernel) == []
    assert kernel.retry(hands[0]) == {}
    assert kernel.complete(*hands[1:]) == {}
    assert sorted({hand.channel for hand in kernel.drain()}) == ["b", "c", "unheard"]
    resume(kernel, "a")
    assert {hand.channel for hand in kernel.drain()} == {"a"}


def test_nobody_waits_behind_an_upgrade_that_waits(kernel: Kernel, open_kernel: OpenKernel, waits: Waits) -> None:
    """While a transaction that used the queue stays open, the upgrade tries again and again, and others go on between
    its tries; when that transaction ends the upgrade is made.
    """
    business = open_kernel()
    business.enqueue("a")
    rival = waits.start(on(upgrade)).blocked()
    for _ in range(3):
        waits.until(
            "select from pg_stat_activity where application_name = 'rival 1' and wait_event = 'PgSleep'"
            " and datname = current_database()"
        )
        rival.blocked()
        kernel.rows("set lock_timeout = '60s'")
        assert kernel.enqueue("b")
        kernel.dequeue()
    business.commit()
    rival.result()
    assert kernel.value("select fq_version()") == 3
    assert unbalanced(kernel) == []


def test_a_step_leaves_the_settings_of_its_transaction(open_kernel: OpenKernel) -> None:
    """The migration's own lock_timeout stands again behind the upgrade, and behind the downgrade."""
    migration = open_kernel()
    migration.rows("set lock_timeout = '7s'")
    for statements in (upgrade_statements(2, 3, None), downgrade_statements(3, 2, None)):
        run(migration, statements)
        assert migration.value("show lock_timeout") == "7s"


def test_a_step_may_want_a_new_snapshot_a_statement(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """Under REPEATABLE READ a step that reads messages would miss some; it says so and changes nothing."""
    migration = open_kernel(isolation="REPEATABLE_READ")
    with pytest.raises(psycopg.Error) as refusal:
        run(migration, upgrade_statements(2, 3, None))
    assert refusal.value.sqlstate == "QF003"
    migration.rollback()
    assert kernel.value("select fq_version()") == 2
