"""``fairqueue roles``, and what doctor says about grants and about the privileges of the connected role."""

import json
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from sqlalchemy import Connection

from sqlalchemy_fairqueue.doctor.findings import CheckContext, Finding, Level, Role
from sqlalchemy_fairqueue.doctor.rights import ALL_TABLES, check_grants, check_privileges
from sqlalchemy_fairqueue.sql.files import NEEDED_VERSION
from sqlalchemy_fairqueue.sql.grants import role_functions
from tests.cli.conftest import Cli
from tests.roles.conftest import SCHEMA, Actor, Installation


def owner(jobs: Installation) -> list[str]:
    """Options that connect as the owner."""
    url = jobs.database.url.render_as_string(hide_password=False)
    return ["--schema", SCHEMA, "--database-url", url]


def context(connection: Connection, **options: Any) -> CheckContext:
    """What a check is given that is made alone."""
    return CheckContext(connection, SCHEMA, NEEDED_VERSION, None, timedelta(0), **options)


def found(cli: Cli, words: list[str], check: str, *more: str) -> list[dict[str, Any]]:
    """What a check of doctor finds."""
    document = json.loads(cli("doctor", "--json", *words, *more).out)
    return [one for one in document["findings"] if one["check"] == check]


def test_roles(jobs: Installation, bare_cli: Cli) -> None:
    """Every role with a right is shown with its grants and bounds, what it lacks, and what it has by hand."""
    web, ops, hand = jobs.role("web"), jobs.role("ops", "operator"), jobs.role("hand")
    jobs.grant(web.name, "producer", queues=["documents"], channels=["b", "a"])
    jobs.grant(web.name, "consumer")
    jobs.database.execute(f'grant select on {SCHEMA}.fq_history to "{hand.name}"')
    jobs.database.execute(f'grant execute on function {SCHEMA}.fq_pause to "{hand.name}"')
    jobs.database.execute(f'revoke execute on function {SCHEMA}.fq_pause from "{ops.name}"')

    document = bare_cli("roles", "--json", *owner(jobs)).document
    assert [one["role"] for one in document["roles"]] == [hand.name, ops.name, web.name]
    by_hand, operator, producer = document["roles"]
    assert (by_hand["grants"], by_hand["beyond"], by_hand["others"]) == ([], ["fq_pause"], ["select on fq_history"])
    assert operator["lacking"] == ["fq_pause"]
    assert [(one["kind"], one["queues"], one["channels"]) for one in producer["grants"]] == [
        ("consumer", None, None),
        ("producer", ["documents"], ["a", "b"]),
    ]
    assert producer["grants"][0]["functions"] == list(role_functions(1, "consumer"))
    assert (producer["lacking"], producer["beyond"], producer["others"], producer["exists"]) == ([], [], [], True)

    shown = bare_cli("roles", *owner(jobs)).out
    assert "lacks execute on fq_pause" in shown
    assert "by hand: select on fq_history" in shown


def test_no_roles(jobs: Installation, bare_cli: Cli) -> None:
    """Where nobody was granted anything, that is said."""
    assert "nobody but the owner may use it" in bare_cli("roles", *owner(jobs)).out
    assert bare_cli("roles", "--json", *owner(jobs)).document == {"roles": []}


def test_who_may_see_roles(jobs: Installation, bare_cli: Cli) -> None:
    """Monitors and operators see the roles; others are told which grant they lack. Rights that are as granted are one
    finding of doctor's.
    """
    for kind, status in (("monitor", 0), ("operator", 0), ("producer", 5), ("consumer", 5)):
        actor = jobs.role(kind, kind)
        outcome = bare_cli("roles", "--json", *actor.words)
        assert outcome.status == status, kind
        if status:
            assert outcome.error["remedy"] == f"op.grant_fairqueue({actor.name!r}, 'monitor', schema='{SCHEMA}')"
    [one] = found(bare_cli, owner(jobs), "grants")
    assert one["level"] == "ok"


_RIGHTS = (
    ("select on {schema}.fq_message", Level.WARNING, "select on table fq_message"),
    ("select (content) on {schema}.fq_message", Level.WARNING, "select on table fq_message"),
    ("insert, select on {schema}.fq_message", Level.PROBLEM, "insert, select on table fq_message"),
    ("usage on sequence {schema}.fq_message_id_seq", Level.PROBLEM, "usage on sequence fq_message_id_seq"),
    ("create on schema {schema}", Level.PROBLEM, "create on schema jobs"),
    ("execute on function {schema}.fq_dequeue", Level.WARNING, "what no grant of its stands for: fq_dequeue"),
)


def test_too_much(jobs: Installation) -> None:
    """A right that no grant stands for is named with the statement that takes it back, and can be allowed."""
    actor = jobs.role("actor", "producer")

    def check(*allowed: str) -> Finding:
        with jobs.owner.connect() as connection:
            [one] = check_grants(context(connection, allowed=allowed))
        return one

    for (right, level, said), to in product(_RIGHTS, (actor.name, "public")):
        name = "public" if to == "public" else f'"{to}"'
        jobs.database.execute(f"grant {right.format(schema=SCHEMA)} to {name}")
        one = check()
        assert (one.level, said in one.message) == (level, True), one
        assert check(f"grant {to}").level is Level.OK
        for line in (one.remedy or "").splitlines():
            jobs.database.execute(line)
        assert check().level is Level.OK


def test_too_little(jobs: Installation, bare_cli: Cli) -> None:
    """A grant whose privileges were taken away is a problem, with the operation that renews it."""
    actor = jobs.role("actor")
    jobs.grant(actor.name, "producer", channels=["a"])
    jobs.database.execute(f'revoke execute on function {SCHEMA}.fq_enqueue from "{actor.name}"')
    [one] = found(bare_cli, owner(jobs), "grants")
    assert (one["level"], one["message"]) == (
        "problem", f"role '{actor.name}' lacks what it was granted: execute on fq_enqueue",
    )  # fmt: skip
    assert one["remedy"] == f"op.grant_fairqueue('{actor.name}', 'producer', channels=['a'], schema='{SCHEMA}')"
    jobs.grant(actor.name, "producer", channels=["a"])
    assert found(bare_cli, owner(jobs), "grants")[0]["level"] == "ok"


def test_a_dropped_role(jobs: Installation, bare_cli: Cli) -> None:
    """A grantee that no longer exists is named by its number, with the operation that removes its rows."""
    number = jobs.database.value("select max(oid::bigint) + 100000 from pg_roles")
    jobs.database.execute(f"insert into {SCHEMA}.fq_grant (role, kind) values ({number}::oid, 'producer')")
    [one] = found(bare_cli, owner(jobs), "grants")
    assert (one["level"], one["message"]) == ("warning", f"a role with grants was dropped; its number was {number}")
    assert one["remedy"] == f"op.revoke_fairqueue('{number}', schema='{SCHEMA}') in a migration removes its rows"
    assert "the role was dropped" in bare_cli("roles", *owner(jobs)).out
    jobs.revoke(str(number))
    assert found(bare_cli, owner(jobs), "grants")[0]["level"] == "ok"


@pytest.mark.many
@pytest.mark.parametrize("kind", list(Role))
def test_privileges_of_the_connected_role(jobs: Installation, bare_cli: Cli, kind: Role) -> None:
    """The check of privileges names the grant that is missing, and each function that was taken away."""
    actor = jobs.role("actor")
    remedy = f"op.grant_fairqueue('{actor.name}', '{kind}', schema='{SCHEMA}') in a migration"
    outcome = bare_cli("doctor", "--json", "--role", kind.value, *actor.words)
    assert (outcome.status, outcome.error["remedy"]) == (5, remedy)

    jobs.grant(actor.name, kind.value)
    first, *others = privileges(bare_cli, actor, kind)
    assert first["level"] == "ok"
    assert first["message"].endswith(f"may do what {'an' if kind is Role.OPERATOR else 'a'} {kind} needs")
    assert "could not be checked" not in bare_cli("doctor", "--role", kind.value, *actor.words).out
    assert {"sequences", "history"} <= {name for one in others for name in one["values"].get("unchecked", ())}
    names = [name for name in role_functions(1, kind.value) if name != "fq_version"]
    them = ", ".join(f"{SCHEMA}.{name}" for name in names)
    jobs.database.execute(f'revoke execute on function {them} from "{actor.name}"')
    with actor.engine.connect() as connection:
        # The check alone: doctor itself needs its functions.
        [lacking] = check_privileges(context(connection, role=kind))
    assert (lacking.level, lacking.remedy) == (Level.PROBLEM, remedy)
    assert all(f"execute on function {SCHEMA}.{name}(" in lacking.message for name in names)
    jobs.grant(actor.name, kind.value)
    jobs.database.execute(f'revoke execute on function {SCHEMA}.{names[0]} from "{actor.name}"')
    assert privileges(bare_cli, actor, kind)[0]["remedy"] == remedy
    jobs.grant(actor.name, kind.value)
    assert privileges(bare_cli, actor, kind)[0]["level"] == "ok"


def privileges(cli: Cli, actor: Actor, kind: Role) -> list[dict[str, Any]]:
    """What doctor finds about the privileges of a role."""
    return found(cli, actor.words, "privileges", "--role", kind.value)


def test_every_table_is_known(jobs: Installation) -> None:
    """Doctor knows every table of the newest version."""
    tables = jobs.database.rows(
        "select c.relname from pg_class c where c.relnamespace = cast(:schema as regnamespace) "
        "and c.relkind in ('r', 'p') and c.relname !~ '_p[0-9]{8}'",
        schema=SCHEMA,
    )
    assert {row.relname for row in tables} == set(ALL_TABLES)
