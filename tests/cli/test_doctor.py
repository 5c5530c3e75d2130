import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine

from sqlalchemy_fairqueue.embedded import Server
from tests.cli.conftest import Cli, install_into, say_version
from tests.cli.messages import Findings, bury, enqueue, levels
from tests.cli.test_installation import role
from tests.fixtures.connections import Connect
from tests.fixtures.database import Database
from tests.fixtures.planted import plant
from tests.worker.helpers import until


def test_a_healthy_installation(bare_cli: Cli, private_server: Callable[..., Server]) -> None:
    """Where nothing is wrong every finding is ok and the status 0, for people and for programs."""
    server = private_server(settings={"autovacuum": "on"})
    url = server.url("postgres").render_as_string(hide_password=False)
    install_into(Database(server.url("postgres")))

    found = bare_cli("doctor", "--json", "--database-url", url)

    assert found.status == 0, found.out
    assert {one["level"] for one in found.document["findings"]} == {"ok"}
    assert {one["check"] for one in found.document["findings"]} == {
        "server", "clock", "version", "drift", "privileges", "grants", "sequences", "connections", "sizes",
        "autovacuum", "snapshots", "queues", "kinds", "dispatchers", "leases", "waits", "times", "history", "states",
        "schedules",
    }  # fmt: skip
    assert (found.document["schema"], found.document["version"], found.document["level"]) == ("public", 1, "ok")
    lines = bare_cli("doctor", "--database-url", url).out.splitlines()
    assert all(re.match(r"ok +\w+ +\S", line) for line in lines), lines


def test_autovacuum_that_is_off(cli: Cli, findings: Findings, database: Database) -> None:
    """Autovacuum that is off, for the server or for a table, is a problem, with the statement to paste; status 1."""
    database.execute("alter table fq_message set (autovacuum_enabled = false)")

    found = cli("doctor")
    assert found.status == 1
    assert re.search(r"^problem +autovacuum +autovacuum is off on this server", found.out, re.MULTILINE)
    tables = {one["values"].get("table"): one for one in findings("autovacuum")}
    assert tables["fq_message"]["level"] == "problem"
    assert tables["fq_message"]["remedy"] == 'alter table "public".fq_message reset (autovacuum_enabled);'
    database.execute(tables["fq_message"]["remedy"])
    assert {one["values"].get("table"): one["level"] for one in findings("autovacuum")}["fq_message"] == "ok"


def test_tables_that_grow(findings: Findings, database: Database) -> None:
    """What a table grew by within a day is told from 100 MB on; by half and by a gigabyte it is a warning."""
    assert findings("growth") == []
    database.execute(
        "insert into fq_size (at, name, bytes) "
        "select h * 3600000000, t.name, greatest(0, t.mb + t.grown * (h - 24) / 24) * 2^20 "
        "from generate_series(0, 48, 24) h "
        "cross join (values ('fq_message', 1024, 1228.8), ('fq_history', 9000, 1500), ('fq_key_period', 9000, 50)) "
        "t(name, mb, grown)"
    )
    found = findings("growth")
    assert [(one["level"], one["message"]) for one in found] == [
        ("ok", "fq_history grew by 1,500.0 MB within 1d 00h, to 10,500.0 MB"),
        ("warning", "fq_message grew by 1,228.8 MB within 1d 00h, to 2,252.8 MB"),
    ]


def test_dead_rows(findings: Findings, database: Database) -> None:
    """A table with far more dead rows than vacuum should have left is a warning; after a vacuum it is none."""
    database.execute(
        "with made as (insert into fq_channel (queue, name) select 'q', n::text from generate_series(1, 60000) n "
        "returning id) insert into fq_channel_state (channel_id, queue) select id, 'q' from made"
    )
    database.execute("delete from fq_channel_state")
    database.execute("select pg_stat_force_next_flush()")

    def state() -> dict[str, Any]:
        return {one["values"].get("table"): one for one in findings("autovacuum")}["fq_channel_state"]

    assert state()["level"] == "warning"
    assert state()["values"]["dead_rows"] == 60000
    assert "vacuum does not keep up" in state()["message"]
    database.execute("vacuum fq_channel_state")
    assert state()["level"] == "ok"
    assert "vacuumed 0ms ago" in state()["message"] or "s ago" in state()["message"]


def test_drift(findings: Findings, database: Database) -> None:
    """Every object that was changed besides the migrations is named."""
    before = {one["values"].get("object") for one in findings("drift")}
    database.execute("drop index fq_message_lease_ix")
    database.execute("alter function fq_wake(text) rename to fq_woke")

    after = {one["values"]["object"]: one for one in findings("drift")}

    assert {"fq_message_lease_ix", "fq_wake"} <= set(after) - before
    assert after["fq_message_lease_ix"]["level"] == "problem"
    assert "fq_message_lease_ix is missing" in after["fq_message_lease_ix"]["message"]
    assert "op.repair_fairqueue(1, schema='public')" in after["fq_wake"]["remedy"]


def test_drift_that_is_allowed(findings: Findings, database: Database) -> None:
    """What was added on purpose is no problem, and what is allowed without need is said."""
    database.execute("create index message_kind on fq_message (kind)")
    words = ["--allow", "index message_kind", "--allow", "column fq_message.tenant"]

    assert [(one["level"], one["message"]) for one in findings("drift", *words)] == [
        ("ok", "every table, index and function is as the migrations left it, but for 1 that may differ"),
        ("warning", "'column fq_message.tenant' is allowed and does not differ"),
    ]
    [told] = findings("drift")
    assert told["level"] == "problem"
    assert "--allow 'index message_kind' where that was on purpose" in told["remedy"]


def test_triggers_and_rules(findings: Findings, database: Database) -> None:
    """A trigger or a rule on a table of ours is told, and may be there on purpose."""
    database.execute(
        "create trigger audit before update on fq_message for each row "
        "execute function suppress_redundant_updates_trigger()"
    )
    database.execute("create rule keep as on delete to fq_dead_letter do instead nothing")

    found = findings("drift")

    assert [(one["level"], one["message"]) for one in found] == [
        ("problem", "rule fq_dead_letter.keep is unexpected"),
        ("problem", "trigger fq_message.audit is unexpected"),
    ]
    assert "--allow 'trigger fq_message.audit' where that was on purpose" in found[1]["remedy"]
    words = ["--allow", "trigger fq_message.audit", "--allow", "rule fq_dead_letter.keep"]
    assert levels(findings("drift", *words)) == ["ok"]


def test_other_versions(cli: Cli, database: Database) -> None:
    """Of an outdated installation only the server and the version are looked at, and the migration is given. A newer
    one is looked at like any other, but is not compared with migrations that nobody knows here.
    """
    say_version(database, 0)
    outdated = cli("doctor", "--json")
    say_version(database, 99)
    newer = cli("doctor", "--json")

    by_check = {one["check"]: one for one in outdated.document["findings"]}
    assert (outdated.status, set(by_check)) == (1, {"server", "clock", "version"})
    assert by_check["version"]["level"] == "problem"
    assert by_check["version"]["remedy"] == "op.upgrade_fairqueue(0, 1, schema='public')"
    by_check = {one["check"]: one for one in newer.document["findings"]}
    assert "version 99 in schema 'public', which this library does not know" in by_check["version"]["message"]
    assert (by_check["version"]["level"], by_check["queues"]["level"], "drift" in by_check) == ("ok", "ok", False)


def test_what_may_not_be_looked_at(bare_cli: Cli, database: Database) -> None:
    """Checks that the role may not make are left out and named, and the others are made."""
    with role(database, f"{database.name}_guest") as url:
        document = bare_cli("doctor", "--json", "--database-url", url).document

    assert "could not be checked" not in str(document)
    assert {"leases", "history"} <= set(document["findings"][-1]["values"]["unchecked"])
    assert {one["check"] for one in document["findings"]} >= {"version", "drift", "privileges", "autovacuum"}


def test_who_looks_and_how(cli: Cli, database: Database) -> None:
    """Settings that change how a session writes values and names change no finding. Functions that somebody has planted
    in the search_path are not called, since a superuser often runs the doctor.
    """
    database.execute("vacuum fq_message")
    settings = "-c datestyle=SQL,DMY -c intervalstyle=iso_8601 -c quote_all_identifiers=on"
    url = database.url.update_query_dict({"options": settings}).render_as_string(hide_password=False)
    found = [cli("doctor", "--json", *words).document["findings"] for words in ((), ("--database-url", url))]
    plant(database)
    found.append(cli("doctor", "--json").document["findings"])
    before, *others = ([(one["check"], one["level"]) for one in findings] for findings in found)
    assert others == [before, before]
    assert "planted" not in str(found)


def test_a_check_that_fails(findings: Findings, database: Database, engine: Engine) -> None:
    """Whatever a check fails with is a warning of its own, and the others are made."""
    enqueue(engine, "a")
    database.execute("create or replace function fq_now() returns bigint language sql as 'select 9000000000000000000'")

    [failed] = findings("queues")

    assert (failed["level"], failed["message"]) == (
        "warning",
        "could not be checked: OverflowError: date value out of range",
    )
    assert levels(findings("autovacuum"))
    assert findings("drift")[0]["values"]["object"] == "fq_now"


def test_open_snapshots(findings: Findings, database: Database, connect: Connect) -> None:
    """What holds vacuum back is a warning or a problem by its age, or by how many transactions came after: a session,
    which the statement ends, or a prepared transaction. A slot that holds back the catalog alone does no harm.
    """
    database.execute("select pg_create_logical_replication_slot(current_database()::text, 'pgoutput')")
    try:
        assert levels(findings("snapshots")) == ["ok"]
    finally:
        database.execute("select pg_drop_replication_slot(current_database()::text)")
    holder = connect("REPEATABLE READ")
    pid = holder.exec_driver_sql("select pg_backend_pid()").scalar_one()
    module = "sqlalchemy_fairqueue.doctor.server"
    for warning, problem, level in ((0, 3600, "warning"), (0, 0, "problem")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(f"{module}._WARNING_AGE", timedelta(seconds=warning))
            patch.setattr(f"{module}._PROBLEM_AGE", timedelta(seconds=problem))
            assert levels(findings("snapshots")) == [level]
    database.execute("create table other (id integer)")
    prepared = connect()
    prepared.exec_driver_sql("insert into other values (1)")
    prepared.exec_driver_sql("prepare transaction 'it''s open'")
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(f"{module}._WARNING_TRANSACTIONS", 0)
            found = {one["values"].get("pid") or one["values"].get("gid"): one for one in findings("snapshots")}
    finally:
        database.rows("rollback prepared 'it''s open'")
    assert "rollback prepared 'it''s open';" in found["it's open"]["remedy"]
    assert (found[pid]["level"], "idle in transaction" in found[pid]["message"]) == ("warning", True)
    database.execute(found[pid]["remedy"].partition("if nobody can: ")[2])
    holder.invalidate()
    until(lambda: not database.rows("select from pg_stat_activity where pid = :pid", pid=pid), "it is gone")


def test_the_clock(findings: Findings) -> None:
    """The difference of the clocks is told in figures; one that the round trip does not explain is a warning."""
    [agreed] = findings("clock")
    assert (agreed["level"], agreed["values"]["server_ahead_seconds"]) == ("ok", 0.0)

    class Slow(datetime):
        """A clock that is a minute behind."""

        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) - timedelta(minutes=1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sqlalchemy_fairqueue.doctor.server.datetime", Slow)
        [found] = findings("clock")
    assert found["level"] == "warning"
    assert "ahead of this machine's" in found["message"]
    assert found["values"]["server_ahead_seconds"] == pytest.approx(60, abs=50)


def test_a_server_that_cannot_be_written_to(bare_cli: Cli, database: Database) -> None:
    """A role whose transactions are read-only by default is a problem."""
    url = database.url.update_query_dict({"options": "-c default_transaction_read_only=on"})

    found = bare_cli("doctor", "--json", "--database-url", url.render_as_string(hide_password=False))

    servers = [one for one in found.document["findings"] if one["check"] == "server"]
    assert levels(servers) == ["ok", "problem"]
    assert "read-only by default" in servers[1]["message"]


def test_doctor_changes_nothing(cli: Cli, database: Database, engine: Engine) -> None:
    """An examination leaves every table as it was."""
    enqueue(engine, "a")
    bury(engine, "b")
    query = "select (select count(*) from fq_message) + (select sum(row_version) from fq_channel_state)"
    before = database.value(query)

    cli("doctor")
    assert database.value(query) == before
