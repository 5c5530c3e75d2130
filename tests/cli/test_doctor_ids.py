"""Findings of doctor in a database whose rows were copied from another."""

from datetime import date, timedelta

import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import IntegrityError

from sqlalchemy_fairqueue import ChannelPolicy
from tests.cli.conftest import Cli
from tests.cli.messages import QUEUE, Findings, Repair, bury, enqueue, lease, levels
from tests.cli.test_installation import role
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database

EPOCH = date(1970, 1, 1)


def test_sequences_behind_their_tables(findings: Findings, repair: Repair, database: Database, engine: Engine) -> None:
    """Where rows were copied without their sequences, each that would give an id again is told, and repaired."""
    bury(engine, *["a"] * 5)
    QUEUE.configure_channel(engine, "b", ChannelPolicy(max_backlog=5))
    enqueue(engine, "b")
    lease(engine)
    # A column that somebody added to a table of ours is no concern.
    database.execute("alter table fq_message add column number serial")
    database.execute("alter sequence fq_message_number_seq restart")
    assert levels(findings("sequences")) == ["ok"]
    for table in ("fq_message", "fq_signal", "fq_channel"):
        database.execute(f"alter table {table} alter id restart")

    channel, message, signal = found = findings("sequences")

    assert levels(found) == ["problem"] * 3
    assert channel["values"] == {"sequence": "fq_channel_id_seq", "last": 0, "greatest": 2}
    assert message["values"] == {"sequence": "fq_message_id_seq", "last": 0, "greatest": 6}
    assert signal["values"]["greatest"] == database.value("select max(heard_id) from fq_channel_state")
    repair("sequences")
    assert enqueue(engine, "c") == [7]


def test_dead_letters_with_the_id_of_a_message(  # noqa: PLR0917 - fixtures
    cli: Cli, findings: Findings, repair: Repair, database: Database, engine: Engine, clock: Clock
) -> None:
    """A message with the id of a dead letter goes back when it is to be buried; the repair keeps both."""
    bury(engine, "a", "a")
    database.execute("alter table fq_message alter id restart")
    assert enqueue(engine, "a", max_attempts=1) == [1]
    lease(engine)
    clock.advance(timedelta(minutes=10))
    assert len(lease(engine)) == 1

    behind, twice = findings("sequences")

    assert levels([behind, twice]) == ["problem", "problem"]
    assert twice["message"].startswith("1 dead letter with the id of an existing message")
    repair("sequences")
    clock.advance(timedelta(minutes=10))
    assert lease(engine) == []
    assert sorted(dead_letter.message_id for dead_letter in QUEUE.dead_letters.list(engine)) == [1, 2, 3]
    assert cli("dead", "redrive", "1", "3", "--queue", "documents").status == 0


def test_sequences_that_may_not_be_looked_at(findings: Findings, database: Database, engine: Engine) -> None:
    """A sequence that the role may not read is a warning, with the grant to paste. It hears of the history's tables
    and sequences if it may read both.
    """
    QUEUE.configure(engine, history=True)
    enqueue(engine, "a")
    QUEUE.complete(engine, lease(engine))
    database.execute("alter sequence fq_history_id_seq restart")
    tables = "select on fq_message, fq_dead_letter, fq_channel, fq_signal, fq_channel_state"
    name = f"{database.name}_reader"
    with role(database, name, tables) as url:
        as_reader = ("sequences", "--database-url", url)
        unread = findings(*as_reader)
        assert levels(unread) == ["warning"] * 3
        for one in unread:
            database.execute(one["remedy"])
        assert levels(findings(*as_reader)) == ["ok"]
        database.execute(f'grant select on fq_history, fq_pruned_history to "{name}"')
        assert levels(findings(*as_reader)) == ["ok"]
        database.execute(f'grant select on sequence fq_history_id_seq to "{name}"')
        assert levels(findings(*as_reader)) == ["problem"]


def _old_days(database: Database, *days: int) -> None:
    """Partitions of days long ago, with an attempt in each."""
    for day in days:
        start = day * 86_400_000_000
        name = f"fq_history_p{EPOCH + timedelta(days=day):%Y%m%d}"
        database.execute(f"create table {name} partition of fq_history for values from ({start}) to ({start}+1)")
        database.execute(
            "insert into fq_history (queue, channel_id, channel, message_id, kind, attempt, enqueued_at, ready_at, "
            f"started_at, finished_at, outcome) values ('q', 1, 'c', 1, 'k', 1, 0, 0, 0, {start}, 'completed')"
        )


def test_sequences_of_the_history_behind_their_tables(
    cli: Cli, findings: Findings, repair: Repair, database: Database, engine: Engine
) -> None:
    """Where the history's sequences were left behind prune fails; repaired, it works again."""
    QUEUE.configure(engine, history=True)
    _old_days(database, 1, 2)
    assert cli("history", "prune", "--ahead", "1").status == 0
    enqueue(engine, *["a"] * 3)
    QUEUE.complete(engine, lease(engine))
    assert levels(findings("sequences")) == ["ok"]
    database.execute("alter sequence fq_history_id_seq restart")
    database.execute("alter table fq_pruned_history alter id restart")
    _old_days(database, 3)
    failed = cli("history", "prune", "--ahead", "1")
    assert failed.status == 5
    assert "fq_pruned_history_pkey" in failed.err

    history, pruned = found = findings("sequences")

    assert levels(found) == ["problem"] * 2
    assert history["values"] == {"sequence": "fq_history_id_seq", "last": 1, "greatest": 5}
    assert pruned["values"] == {"sequence": "fq_pruned_history_id_seq", "last": 1, "greatest": 2}
    assert '(select max(id) from "public".fq_history)' in history["repair"][0]
    repair("sequences")
    assert cli("history", "prune", "--ahead", "1").status == 0
    enqueue(engine, "a")
    QUEUE.complete(engine, lease(engine))
    assert database.value("select max(id) from fq_history") > 5


def test_sequences_of_schedules(findings: Findings, repair: Repair, database: Database, engine: Engine) -> None:
    """Where they were left behind, new ones fail; repaired, they are made."""
    for name in ("hourly", "nightly"):
        QUEUE.schedules.set(engine, name, channel="a", payload=1, every=timedelta(days=1))
    assert levels(findings("sequences")) == ["ok"]
    database.execute("alter table fq_schedule alter id restart")
    with pytest.raises(IntegrityError, match="fq_schedule_pkey"):
        QUEUE.schedules.set(engine, "weekly", channel="a", payload=1, every=timedelta(days=7))

    [found] = findings("sequences")

    assert found["level"] == "problem"
    assert found["values"] == {"sequence": "fq_schedule_id_seq", "last": 1, "greatest": 2}
    repair("sequences")
    QUEUE.schedules.set(engine, "weekly", channel="a", payload=1, every=timedelta(days=7))


def test_history_of_another_server(
    cli: Cli, findings: Findings, repair: Repair, database: Database, engine: Engine
) -> None:
    """History with transaction ids that this server has not come to cannot be read; the repair lets it be read."""
    QUEUE.configure(engine, history=True)
    cli("history", "prune")
    enqueue(engine, *["a"] * 3)
    QUEUE.complete(engine, lease(engine))
    visible = "select count(*) from fq_history where pg_visible_in_snapshot(recorded_xid, pg_current_snapshot())"
    assert levels(findings("history")) == ["ok"]
    database.execute("update fq_history set recorded_xid = '1000000000000' where id > 1")
    assert database.value(visible) == 1

    fine, foreign = findings("history")

    assert (fine["level"], foreign["level"], foreign["values"]) == ("ok", "problem", {"foreign": 2})
    assert "2 rows of the history with transaction ids that this server has not come to" in foreign["message"]
    repair("history")
    assert database.value(visible) == 3
