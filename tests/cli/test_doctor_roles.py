"""Findings of doctor where several roles use the database."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Connection, NullPool, create_engine
from sqlalchemy.exc import ProgrammingError

from tests.cli.conftest import Cli
from tests.cli.messages import Findings, levels
from tests.cli.test_installation import role
from tests.fixtures.connections import Connect
from tests.fixtures.database import Database

_SNAPSHOTS = "sqlalchemy_fairqueue.doctor.server"


@contextmanager
def between_samples(do: Callable[[], object]) -> Iterator[None]:
    """Call ``do`` while doctor waits for its next sample."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sqlalchemy_fairqueue.doctor.findings.sleep", lambda _seconds: do())
        yield


def holding(connect: Connect) -> Connection:
    """A session with an open snapshot."""
    holder = connect("REPEATABLE READ")
    holder.exec_driver_sql("select 1")
    return holder


def test_snapshots_of_other_roles(findings: Findings, database: Database, connect: Connect) -> None:
    """Sessions whose age this role may not see are one warning with the grant to paste; with it they are judged."""
    reading, writing = holding(connect), holding(connect)
    writing.exec_driver_sql("select pg_current_xact_id()")
    pids = sorted(each.exec_driver_sql("select pg_backend_pid()").scalar_one() for each in (reading, writing))
    name = f"{database.name}_Watcher"
    with role(database, name) as url, between_samples(lambda: None):
        [hidden] = findings("snapshots", "--database-url", url)

        assert hidden["level"] == "warning"
        assert hidden["message"] == f"the age of 2 sessions' snapshots (postgres) is not visible to role '{name}'"
        assert hidden["values"] == {"role": name, "hidden": 2, "users": ["postgres"], "pids": pids}
        database.execute(hidden["remedy"])
        [judged] = findings("snapshots", "--database-url", url)
        assert judged["message"] == "no open snapshot holds vacuum back"


def test_hidden_snapshots_that_many_transactions_came_after(
    findings: Findings, database: Database, connect: Connect
) -> None:
    """How many transactions came after a snapshot is visible to every role, and decides by itself."""
    pid = holding(connect).exec_driver_sql("select pg_backend_pid()").scalar_one()
    with (
        role(database, f"{database.name}_watcher") as url,
        between_samples(lambda: None),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(f"{_SNAPSHOTS}._WARNING_TRANSACTIONS", 0)
        [found] = findings("snapshots", "--database-url", url)

    assert (found["level"], found["values"]["pid"], found["values"]["open_seconds"]) == ("warning", pid, None)
    assert re.match(rf"backend {pid} \(postgres, [^)]*\) holds a snapshot \d+ transactions old$", found["message"])


@pytest.mark.parametrize("again", [False, True], ids=["ends", "is followed by another"])
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside an old one"])
def test_short_transactions_of_other_roles(
    findings: Findings, database: Database, connect: Connect, *, again: bool, beside: bool
) -> None:
    """A transaction of another role that is over at the next sample is no reason to complain. Every snapshot looks back
    to the oldest transaction that runs: that one alone is told.
    """
    old, short = connect(), connect("REPEATABLE READ")
    pid = old.exec_driver_sql("select pg_backend_pid()").scalar_one()
    old.rollback()
    if beside:
        old.exec_driver_sql("select pg_current_xact_id()")
    short.exec_driver_sql("select pg_current_xact_id()")

    def go_on() -> None:
        short.rollback()
        if again:
            short.exec_driver_sql("select pg_current_xact_id()")

    with role(database, f"{database.name}_watcher") as url, between_samples(go_on):
        [found] = findings("snapshots", "--database-url", url)

    assert (found["level"] == "ok", found["values"].get("pids")) == (not beside, [pid] if beside else None)


def test_snapshots_of_the_same_role(findings: Findings, database: Database) -> None:
    """Where every session has the same role nothing is hidden, whatever the role may do: doctor reads once."""
    name = f"{database.name}_worker"

    def never() -> None:
        raise AssertionError("read again")

    with role(database, name):
        database.execute(f'alter role "{name}" login')
        url = database.url.set(username=name)
        engine = create_engine(url, poolclass=NullPool, isolation_level="REPEATABLE READ")
        with engine.connect() as holder, between_samples(never):
            holder.exec_driver_sql("select 1")
            [found] = findings("snapshots", "--database-url", url.render_as_string(hide_password=False))

    assert found["message"] == "no open snapshot holds vacuum back"


def test_partitions_of_another_owner(cli: Cli, findings: Findings, database: Database) -> None:
    """Partitions that the owner of the history does not own are told, to superusers too; the remedy gives them over."""
    assert cli("history", "prune", "--ahead", "1").status == 0
    database.execute('create schema "Old"')
    database.execute('create table "Old"."a ""day""" partition of fq_history for values from (0) to (1)')
    assert levels(findings("privileges")) == ["ok"]
    name = f"{database.name}_Owner"
    with role(database, name, 'usage on schema "Old"') as url:
        database.execute(f'alter table fq_history owner to "{name}"')
        owner = create_engine(url, poolclass=NullPool)
        with pytest.raises(ProgrammingError, match="permission denied"), owner.connect() as dumping:
            dumping.exec_driver_sql("select from fq_history_default")

        _, told = findings("privileges")

        assert told["level"] == "warning"
        assert told["message"].startswith(
            f"4 partitions of the history belong to 'postgres', and the history to '{name}'"
        )
        assert told["values"]["partitions"][:2] == ['a "day"', "fq_history_default"]
        assert told["remedy"].splitlines()[0] == f'alter table "Old"."a ""day""" owner to "{name}";'
        for line in told["remedy"].splitlines():
            database.execute(line)
        assert levels(findings("privileges")) == ["ok"]
        with owner.begin() as owning:
            owning.exec_driver_sql("select from fq_history_default")
            owning.exec_driver_sql('drop table "Old"."a ""day"""')
