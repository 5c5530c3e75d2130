"""From version 1 to 2 and back, under messages of every kind and with others at work."""

from collections.abc import Iterable

import psycopg
import pytest
from sqlalchemy import NullPool, create_engine

from sqlalchemy_fairqueue.sql import downgrade_statements, upgrade_statements
from tests.fixtures.database import Database, MakeDatabase, install
from tests.fixtures.waits import Waits
from tests.sql.answers import Hand
from tests.sql.kernel import HOUR, Kernel, OpenKernel, on
from tests.sql.v2_kernel.verbs import bound, channel_stats, limit, pause, record, unbalanced


@pytest.fixture
def database(make_database: MakeDatabase) -> Database:
    """The test's own database with version 1 installed."""
    made = make_database(installed=False)
    with create_engine(made.url, poolclass=NullPool).begin() as connection:
        install(connection, version=1)
    return made


def run(kernel: Kernel, statements: Iterable[str]) -> None:
    """All statements in the kernel's transaction, or each in its own."""
    for statement in statements:
        kernel.rows(statement)


def upgrade(kernel: Kernel) -> None:
    """Version 1 to 2 in one transaction."""
    with kernel.connection.transaction():
        run(kernel, upgrade_statements(1, 2, None))


def downgrade(kernel: Kernel) -> None:
    """Version 2 to 1 in one transaction."""
    with kernel.connection.transaction():
        run(kernel, downgrade_statements(2, 1, None))


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
    """Messages, hands and signals of version 1 go on in version 2, and the backlogs are right from the first moment."""
    hands = _at_work(kernel)
    before = {row["id"] for row in kernel.rows("select id from fq_message")}
    upgrade(kernel)
    assert kernel.value("select fq_version()") == 2
    assert {row["id"] for row in kernel.rows("select id from fq_message")} == before
    assert unbalanced(kernel) == []
    assert [row["backlog"] for row in channel_stats(kernel).values()] == [2, 2, 1]
    assert kernel.complete(*hands[1:]) == {}
    assert kernel.release(hands[0]) == {}
    kernel.rows("update fq_message set dequeue_at = 1")
    kernel.rows("update fq_channel_state set head_dequeue_at = 0, next_dequeue_at = 0")
    assert len(kernel.drain()) == 6
    assert unbalanced(kernel) == []


def test_a_downgrade_leaves_what_version_1_can_go_on_with(kernel: Kernel) -> None:
    """Slots of the queue are forgotten, those of channels kept; what was paused runs; who had no policy has none."""
    upgrade(kernel)
    limit(kernel, 9)
    record(kernel, history=True)
    hands = _at_work(kernel)
    (cancelled,) = kernel.rows("select * from fq_cancel('q', %(ids)s)", ids=[hands[0].id])
    assert cancelled["outcome"] == "leased"
    kernel.enqueue("unheard")
    pause(kernel, "a")
    pause(kernel, "b")
    pause(kernel)
    other = Kernel(kernel.connection, queue="configured")
    other.configure_queue(5)
    limit(other, 2)
    downgrade(kernel)
    assert kernel.value("select fq_version()") == 1
    assert kernel.rows("select name, max_concurrency from fq_queue") == [{"name": "configured", "max_concurrency": 5}]
    assert kernel.value("select max(slots) from fq_message") == 1
    held = kernel.value("select sum(slots) from fq_message")
    freed = kernel.value("select coalesce(sum(freed), 0) from fq_signal")
    assert kernel.value("select sum(current_concurrency) from fq_channel_state") == held + freed
    assert kernel.retry(hands[0]) == {hands[0].id: "buried"}
    assert kernel.complete(*hands[1:]) == {}
    assert sorted({hand.channel for hand in kernel.drain()}) == ["a", "b", "c", "unheard"]


def test_a_second_upgrade_counts_again(kernel: Kernel) -> None:
    """Down and up again with work done in between, the backlogs are right."""
    _at_work(kernel)
    upgrade(kernel)
    bound(kernel, "a", 5)
    downgrade(kernel)
    kernel.dequeue(2)
    kernel.enqueue("a", "new")
    upgrade(kernel)
    assert unbalanced(kernel) == []
    assert kernel.state("a")["max_backlog"] is None
    kernel.enqueue("a")
    assert unbalanced(kernel) == []


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
    assert kernel.value("select fq_version()") == 2
    assert unbalanced(kernel) == []


def test_an_upgrade_leaves_the_settings_of_its_transaction(open_kernel: OpenKernel) -> None:
    """The migration's own lock_timeout stands again behind the upgrade, and behind the downgrade."""
    migration = open_kernel()
    migration.rows("set lock_timeout = '7s'")
    for statements in (upgrade_statements(1, 2, None), downgrade_statements(2, 1, None)):
        run(migration, statements)
        assert migration.value("show lock_timeout") == "7s"


def test_an_upgrade_wants_a_new_snapshot_a_statement(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """Under REPEATABLE READ it could miss messages that were added just before; it says so and changes nothing."""
    migration = open_kernel(isolation="REPEATABLE_READ")
    with pytest.raises(psycopg.Error) as refusal:
        run(migration, upgrade_statements(1, 2, None))
    assert refusal.value.sqlstate == "QF003"
    migration.rollback()
    assert kernel.value("select fq_version()") == 1
