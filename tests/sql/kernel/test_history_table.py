"""fq_history as a table: it takes whatever is inserted, and numbers it."""

from tests.sql.client import Kernel

_ATTEMPT = """
insert into fq_history (queue, channel_id, channel, message_id, kind, attempt, enqueued_at, ready_at, started_at,
  finished_at, outcome)
values ('q', 1, 'a', 1, 'work', 1, 1, 1, 1, %(at)s, 'completed')
returning id, recorded_xid::text, pg_current_xact_id()::text as xid, tableoid::regclass::text as day
"""


def test_the_history_takes_any_time(kernel: Kernel) -> None:
    """An attempt is recorded whether its day was made or not, with the next id and the transaction that wrote it."""
    kernel.rows("create table day partition of fq_history for values from (1000) to (2000)")
    rows = [kernel.rows(_ATTEMPT, at=at)[0] for at in (0, 1500, 2**62)]
    assert [row["day"] for row in rows] == ["fq_history_default", "day", "fq_history_default"]
    assert [row["id"] for row in rows] == [1, 2, 3]
    assert all(row["recorded_xid"] == row["xid"] for row in rows)
    assert kernel.value("select count(distinct recorded_xid) from fq_history") == 3


def test_a_day_is_taken_out_of_the_default_partition_under_a_publication(kernel: Kernel) -> None:
    """Where all tables are published, rows can still be moved from the default partition to their day's."""
    kernel.rows(_ATTEMPT, at=1500)
    kernel.rows("create publication everything for all tables")
    kernel.rows("delete from fq_history_default")
    kernel.rows("create table day partition of fq_history for values from (1000) to (2000)")
    kernel.rows(_ATTEMPT, at=1500)
    assert kernel.value("select count(*) from day") == 1


def test_an_attempt_costs_few_index_entries(kernel: Kernel) -> None:
    """An attempt maintains two trees, by record and by message, and one block range index, no unique one."""
    rows = kernel.rows("select indexdef from pg_indexes where tablename = 'fq_history_default' order by 1")
    indexes = sorted(row["indexdef"].split(" USING ")[1] for row in rows)
    assert indexes == ["brin (id)", "btree (message_id)", "btree (recorded_xid, id)"]
    assert all("UNIQUE" not in row["indexdef"] for row in rows)
