"""Row level security on our tables: doctor names who sees a part, and what such a role left behind comes back."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import Engine, NullPool, create_engine

import sqlalchemy_fairqueue
from sqlalchemy_fairqueue import ChannelPolicy, Queue, Worker
from tests.cli.conftest import install_into
from tests.cli.messages import Findings, enqueue, lease
from tests.cli.test_installation import role
from tests.fixtures.database import Database
from tests.worker.helpers import until

_PAGE = Path(sqlalchemy_fairqueue.__file__).parents[1] / "docs" / "operations.md"


@dataclass(frozen=True, slots=True)
class Tenant:
    """A role that owns our tables and functions, and what doctor tells it."""

    name: str
    engine: Engine
    url: str
    findings: Findings

    def told(self, kind: str = "consumer") -> list[tuple[str, str, str | None]]:
        """Level, message and remedy of what is found about row security."""
        found = self.findings("privileges", "--role", kind, "--database-url", self.url)
        told = [(one["level"], one["message"], one["remedy"]) for one in found]
        return [one for one in told if "row level security" in one[1]]


@pytest.fixture
def tenant(findings: Findings, database: Database) -> Iterator[Tenant]:
    """A role with whose rights the functions run, but for what policies keep from it."""
    name = f"{database.name}_Tenant"
    with role(database, name) as url:
        give(database, "public", name)
        engine = create_engine(url, poolclass=NullPool)
        yield Tenant(name, engine, url, findings)
        engine.dispose()
        give(database, "public", "postgres")


def give(database: Database, schema: str, owner: str, *, tables: bool = True) -> None:
    """Let a role own the functions and the tables of an installation."""
    database.execute(
        "do $$ declare v_named text; begin for v_named in "
        f"select 'function ' || oid::regprocedure from pg_proc where pronamespace = '{schema}'::regnamespace "
        f"union all select 'table ' || oid::regclass from pg_class where relnamespace = '{schema}'::regnamespace "
        f"and relkind in ('r', 'p') and relname ~ '^fq_' and {tables} "
        f"""loop execute 'alter ' || v_named || ' owner to "{owner}"'; end loop; end $$"""
    )


def protect(database: Database, table: str, *policies: str) -> None:
    """Turn row level security on, for the owner too, with these policies."""
    database.execute(f"alter table {table} enable row level security")
    database.execute(f"alter table {table} force row level security")
    for policy in policies:
        database.execute(f"create policy {policy}")


@pytest.mark.parametrize("kind", ["consumer", "producer"])
def test_a_role_that_sees_a_part(tenant: Tenant, database: Database, engine: Engine, kind: str) -> None:
    """It is a problem for whoever adds or takes messages, with the policy to paste, if the owner sees a part."""
    assert tenant.told(kind) == []
    protect(database, "fq_message", f"mine on fq_message to \"{tenant.name}\" using (kind = 'mine')")
    protect(database, "fq_signal")

    [(level, message, remedy)] = tenant.told(kind)

    assert level == "problem"
    assert message == (
        f"row level security may hide rows of fq_message, fq_signal from role '{tenant.name}', with whose rights the "
        "functions run: messages that they do not see are left behind"
    )
    assert remedy is not None
    for line in remedy.splitlines():
        database.execute(line)
    assert tenant.told(kind) == []
    enqueue(engine, "a")
    enqueue(tenant.engine, "a")
    assert len(lease(tenant.engine)) == 2


def test_monitors(tenant: Tenant, database: Database) -> None:
    """A reader is warned that figures are of a part."""
    protect(database, "fq_history", f"mine on fq_history to \"{tenant.name}\" using (queue = 'mine')")

    [(level, message, _)] = tenant.told("monitor")

    assert level == "warning"
    assert message.endswith("what it counts may be a part")


def test_policies(tenant: Tenant, database: Database) -> None:
    """A role sees everything by policies that say true for each of its deeds, if no restrictive one says less."""
    for policies, sees_all in (
        (["p on fq_message using (true)"], True),
        (["p on fq_message to public using (true) with check (true)"], True),
        (["p on fq_message to {role} using (true)", "q on fq_message to {role} using (id > 3)"], True),
        (["p on fq_message to {role} using (true)", "q on fq_message as restrictive to {role} using (true)"], True),
        (["p on fq_message using (true)", "q on fq_message as restrictive to pg_monitor using (id > 3)"], True),
        (
            [
                "r on fq_message for select using (true)", "a on fq_message for insert with check (true)",
                "w on fq_message for update using (true)", "d on fq_message for delete using (true)",
            ],
            True,
        ),
        (["r on fq_message for select using (true)"], False),
        (["p on fq_message to pg_monitor using (true)"], False),
        (["p on fq_message using (true) with check (id > 3)"], False),
        (["p on fq_message to {role} using (true)", "q on fq_message as restrictive using (id > 3)"], False),
        (["p on fq_message as restrictive using (true)"], False),
    ):  # fmt: skip
        protect(database, "fq_message", *(policy.format(role=f'"{tenant.name}"') for policy in policies))
        assert (tenant.told() == []) is sees_all, policies
        for name in {policy[0] for policy in policies}:
            database.execute(f"drop policy {name} on fq_message")


def test_a_restrictive_policy(tenant: Tenant, database: Database) -> None:
    """It is named: no other policy takes back what it says."""
    protect(database, "fq_message", "mine on fq_message as restrictive using (kind = 'mine')")

    [(_, _, remedy)] = tenant.told()

    note, statement = str(remedy).split("; or: ")
    assert note == f"take '{tenant.name}' out of restrictive 'mine' on fq_message"
    database.execute(statement)
    assert tenant.told() == []


def test_owners(tenant: Tenant, database: Database) -> None:
    """Owners are subject to policies if row level security is forced, and superusers never."""
    database.execute("alter table fq_message enable row level security")
    assert tenant.told() == []
    database.execute("alter table fq_message force row level security")
    assert len(tenant.told()) == 1
    database.execute(f'alter role "{tenant.name}" bypassrls')
    assert tenant.told() == []


def _repair() -> str:
    """The statement of the page that brings messages back."""
    [found] = re.findall(r"```sql\n(insert into .*?)```", _PAGE.read_text(), re.DOTALL)
    return str(found)


@pytest.mark.skipif(not _PAGE.is_file(), reason="the installed wheel is tested without the docs")
def test_what_was_left_behind(tenant: Tenant, named: Database, engine: Engine) -> None:
    """A dequeue that sees a part leaves the rest where nobody finds it; the statement of the page brings it back."""
    named.execute("create schema queue")
    install_into(named, "queue")
    queue = Queue("documents", schema="queue")
    give(named, "queue", tenant.name, tables=False)
    named.execute(f'grant usage on schema queue to "{tenant.name}"')
    named.execute(f'grant select, insert, update, delete on all tables in schema queue to "{tenant.name}"')
    named.execute(f'grant usage on all sequences in schema queue to "{tenant.name}"')
    enqueue(engine, "a", "a", "b", "b", "b", queue=queue)
    protect(named, "queue.fq_message")
    assert lease(tenant.engine, queue=queue) == []
    give(named, "queue", "postgres")
    assert lease(engine, queue=queue) == []
    later = enqueue(engine, "a", queue=queue)
    assert [each.message_id for each in lease(engine, queue=queue)] == later
    enqueue(engine, "c", queue=queue)
    named.execute("alter table queue.fq_message disable row level security")

    for _ in range(2):
        named.execute(_repair())
        stats = queue.stats(engine)
        assert (stats.ready, stats.channels) == (6, 3)
    found = lease(engine, 4, queue=queue)
    assert queue.stats(engine).ready == 2
    found += lease(engine, queue=queue)
    assert sorted(each.channel for each in found) == ["a", "a", "b", "b", "b", "c"]
    assert lease(engine, queue=queue) == []
    assert named.rows("select from queue.fq_channel_state where backlog <> 0") == []


@pytest.mark.skipif(not _PAGE.is_file(), reason="the installed wheel is tested without the docs")
def test_the_statement_beside_workers(named: Database, engine: Engine) -> None:
    """Workers may run meanwhile: each message is handled once, and the counts of channels are right."""
    named.execute("create schema queue")
    install_into(named, "queue")
    queue = Queue("documents", schema="queue")
    channels = [f"customer-{number}" for number in range(10)]
    for channel in channels:
        queue.configure_channel(engine, channel, ChannelPolicy(max_backlog=10_000))
    seen: list[int] = []
    queue.handler("parse")(lambda delivery: seen.append(delivery.message_id))
    sent = enqueue(engine, *(channels * 40), queue=queue, kind="parse")

    with Worker(engine, queue, housekeeping=False), Worker(engine, queue, housekeeping=False):
        for channel in channels:
            named.execute(_repair())
            sent += enqueue(engine, channel, channel, queue=queue, kind="parse")
        until(lambda: named.value("select count(*) from queue.fq_message") == 0, "all are done")

    assert sorted(seen) == sorted(sent)
    until(lambda: not lease(engine, queue=queue) and not named.rows("select from queue.fq_signal"), "all is heard")
    assert named.rows("select from queue.fq_channel_state where backlog <> 0 or head_dequeue_at is not null") == []
