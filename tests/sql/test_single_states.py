"""State rows: a channel, a queue and a shared limit have one each, whoever inserts a second one, and when."""

from collections.abc import Callable

import psycopg
import pytest
from psycopg.errors import ForeignKeyViolation, SerializationFailure, UniqueViolation
from sqlalchemy import Engine

from tests.fixtures.waits import Waits
from tests.sql.client import Kernel, OpenKernel, on

pytestmark = pytest.mark.installed

_CHANNEL = "insert into fq_channel_state (channel_id, queue, row_version) select id, 'q', {} from fq_channel"
_QUEUE = "insert into fq_queue_state (queue, row_version) values ('q', {})"
_LIMIT = """select fq_limit_queue('q', '{"max_concurrency": 3}')"""
_LEVELS = ["READ_COMMITTED", "REPEATABLE_READ", "SERIALIZABLE"]


def _inserted(sql: str) -> Callable[[Engine], str]:
    """A rival that inserts a row, and what became of it."""

    def insert(kernel: Kernel) -> str:
        try:
            kernel.rows(sql)
        except psycopg.Error as error:
            return error.sqlstate or ""
        return "inserted"

    return on(insert)


@pytest.mark.parametrize("version", [0, 1, 1000])
def test_a_second_state_row_is_refused(kernel: Kernel, version: int) -> None:
    """Whatever the versions of the two rows are: of a new channel, and of one that was served; and of a queue."""
    kernel.rows(_LIMIT)
    with pytest.raises(UniqueViolation, match="queue q has a state row"):
        kernel.rows(_QUEUE.format(version))
    kernel.enqueue("a")
    with pytest.raises(UniqueViolation, match=r"channel \d+ of queue q has a state row"):
        kernel.rows(_CHANNEL.format(version))
    assert len(kernel.dequeue().hands) == 1
    with pytest.raises(UniqueViolation):
        kernel.rows(_CHANNEL.format(version))
    assert kernel.value("select count(*) from fq_channel_state") == 1


def test_a_state_row_belongs_to_a_channel_of_its_queue(kernel: Kernel) -> None:
    """One without a channel, of another queue's channel, and of a queue that is not configured are refused."""
    kernel.enqueue("a")
    kernel.rows("delete from fq_channel_state")
    for insert in (
        "insert into fq_channel_state (channel_id, queue) values (17, 'q')",
        "insert into fq_channel_state (channel_id, queue) select id, 'other' from fq_channel",
        _QUEUE.format(0),
    ):
        with pytest.raises(ForeignKeyViolation):
            kernel.rows(insert)


def test_two_rows_of_one_statement(kernel: Kernel) -> None:
    """A statement that inserts two rows of one channel is refused as a whole."""
    with pytest.raises(UniqueViolation):
        kernel.rows(
            "with made as (insert into fq_channel (queue, name) values ('q', 'a') returning id)"
            " insert into fq_channel_state (channel_id, queue) select id, 'q' from made, generate_series(1, 2)"
        )


@pytest.mark.parametrize("isolation", _LEVELS)
def test_two_transactions_at_once(kernel: Kernel, open_kernel: OpenKernel, waits: Waits, isolation: str) -> None:
    """The second waits for the first and is refused when that commits; it inserts its row when that rolls back."""
    kernel.enqueue("a")
    for end, outcome in ((Kernel.rollback, "inserted"), (Kernel.commit, "23505")):
        kernel.rows("delete from fq_channel_state")
        first = open_kernel(isolation=isolation)
        first.rows(_CHANNEL.format(0))
        second = waits.start(_inserted(_CHANNEL.format(1))).blocked()
        end(first)
        assert second.result() == outcome


@pytest.mark.parametrize("isolation", _LEVELS[1:])
def test_a_snapshot_that_is_older(kernel: Kernel, open_kernel: OpenKernel, isolation: str) -> None:
    """A transaction that cannot see the row which another one has inserted meanwhile fails to serialize."""
    kernel.enqueue("a")
    kernel.rows("delete from fq_channel_state")
    older = open_kernel(isolation=isolation)
    assert older.value("select count(*) from fq_channel_state") == 0
    other = open_kernel(isolation=isolation)
    other.rows(_CHANNEL.format(0))
    other.commit()
    with pytest.raises(SerializationFailure):
        older.rows(_CHANNEL.format(0))


def test_two_transactions_at_one_queue(kernel: Kernel, open_kernel: OpenKernel, waits: Waits) -> None:
    """The second state row of a queue waits for the first, too; above READ COMMITTED there is none."""
    kernel.rows(_LIMIT)
    kernel.rows("delete from fq_queue_state")
    first = open_kernel()
    first.rows(_QUEUE.format(0))
    second = waits.start(_inserted(_QUEUE.format(1))).blocked()
    first.commit()
    assert second.result() == "23505"
    for isolation in _LEVELS[1:]:
        with pytest.raises(psycopg.Error) as refused:
            open_kernel(isolation=isolation).rows(_QUEUE.format(0))
        assert refused.value.sqlstate == "QF003"


@pytest.mark.parametrize("keys", [None, ["k"]], ids=["plain", "key"])
def test_a_channel_without_a_state_row(kernel: Kernel, keys: list[str] | None) -> None:
    """The next enqueue makes it anew: all messages of the channel are delivered."""
    kernel.enqueue("a", "a")
    kernel.rows("delete from fq_channel_state")
    kernel.rows("set statement_timeout = '10s'")
    assert kernel.enqueue("a", keys=keys)[0].created
    assert len(kernel.drain()) == 3
    assert kernel.value("select backlog from fq_channel_state") == 0


@pytest.mark.parametrize("isolation", _LEVELS)
def test_nobody_waits_for_a_new_channel_who_did_not_before(
    kernel: Kernel, open_kernel: OpenKernel, waits: Waits, isolation: str
) -> None:
    """While a transaction that made a channel is open, others enqueue to, dequeue from and configure other channels."""
    kernel.enqueue("a")
    business = open_kernel(isolation=isolation)
    assert business.enqueue("new")[0].created
    assert waits.unhindered(on(lambda free: free.enqueue("a", "b")))[0].created
    assert len(waits.unhindered(on(lambda free: free.dequeue(10))).hands) == 3
    waits.unhindered(on(lambda free: free.configure("a", max_concurrency=2)))
    business.commit()
    assert len(kernel.dequeue().hands) == 1


_LIMIT_STATE = "insert into fq_limit_state (limit_name, row_version) values ('shared', {})"
_SHARE = "insert into fq_limit_share (limit_name, queue, row_version) values ('shared', 'q', {})"


def _shared(kernel: Kernel) -> None:
    """A shared limit from which the queue draws."""
    kernel.rows("""select fq_configure_limit('shared', '{"max_concurrency": 1}')""")
    kernel.rows("""select fq_limit_queue('q', '{"limits": ["shared"]}')""")


@pytest.mark.parametrize("version", [0, 1, 1000])
def test_a_second_row_of_a_shared_limit_is_refused(kernel: Kernel, version: int) -> None:
    """A second state of the limit and a second share of a queue, before and after somebody has drawn from it."""
    _shared(kernel)
    for delivered in (0, 1):
        with pytest.raises(UniqueViolation, match="the limit shared has a state row"):
            kernel.rows(_LIMIT_STATE.format(version))
        with pytest.raises(UniqueViolation, match="queue q has a share of the limit shared"):
            kernel.rows(_SHARE.format(version))
        kernel.enqueue("a")
        assert len(kernel.dequeue(5).hands) == 1 - delivered
    assert kernel.value("select count(*) from fq_limit_state") == 1


def test_rows_of_a_shared_limit_belong_to_it(kernel: Kernel) -> None:
    """A state and a share of no limit are refused."""
    _shared(kernel)
    for insert in (
        "insert into fq_limit_state (limit_name) values ('other')",
        "insert into fq_limit_share (limit_name, queue) values ('other', 'q')",
    ):
        with pytest.raises(ForeignKeyViolation):
            kernel.rows(insert)


@pytest.mark.parametrize("isolation", _LEVELS)
def test_two_transactions_at_one_shared_limit(
    kernel: Kernel, open_kernel: OpenKernel, waits: Waits, isolation: str
) -> None:
    """The second state of a limit waits for the first one, and so does the second share under READ COMMITTED."""
    _shared(kernel)
    kernel.rows("delete from fq_limit_state; delete from fq_limit_share")
    first = open_kernel(isolation=isolation)
    first.rows(_LIMIT_STATE.format(0))
    second = waits.start(_inserted(_LIMIT_STATE.format(1))).blocked()
    first.commit()
    assert second.result() == "23505"
    if isolation != "READ_COMMITTED":
        with pytest.raises(psycopg.Error) as refused:
            open_kernel(isolation=isolation).rows(_SHARE.format(0))
        assert refused.value.sqlstate == "QF003"
        return
    first.rows(_SHARE.format(0))
    second = waits.start(_inserted(_SHARE.format(1))).blocked()
    first.commit()
    assert second.result() == "23505"


def test_rows_of_one_statement_are_checked_each(kernel: Kernel) -> None:
    """One bad row among those of new channels fails the statement, and the channels are not made."""
    insert = (
        "with made as (insert into fq_channel (queue, name) select 'q', i::text from generate_series(1, 3) i"
        " returning id) insert into fq_channel_state (channel_id, queue, weight)"
        " select id, 'q', case row_number() over () when 2 then {} else 1 end from made"
    )
    with pytest.raises(psycopg.errors.CheckViolation, match="bad value"):
        kernel.rows(insert.format(0))
    assert kernel.value("select count(*) from fq_channel") == 0
    kernel.rows(insert.format(7))
    assert kernel.value("select sum(weight) from fq_channel_state") == 9
