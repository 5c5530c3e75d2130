"""Random calls by roles: whatever a role passes to its functions, no queue stops, and refusals are ours and short.

FAIRQUEUE_FUZZ_CALLS is the number of calls, FAIRQUEUE_FUZZ_SEED the seed.
"""

import os

import psycopg
import pytest

from sqlalchemy_fairqueue import BytesCodec, Queue
from sqlalchemy_fairqueue.sql.files import latest_version
from sqlalchemy_fairqueue.sql.grants import function_roles
from tests.fixtures.database import Database
from tests.roles.conftest import SCHEMA, Installation
from tests.roles.random_calls import Function, Known, RandomCalls

_CALLS = int(os.environ.get("FAIRQUEUE_FUZZ_CALLS", "60"))
_SEED = int(os.environ.get("FAIRQUEUE_FUZZ_SEED", "1"))
_ROUND = 10
_LONGEST = 5000
# An operator may stop a queue: that is the work. These are refusals of a value by the server's own parser.
_KINDS = ("producer", "consumer", "monitor", "loader")
_REFUSED = {"22P02", "22007", "22021", "22P05", "22003", "54001"}
_NO_STAGE = "42P01"

_FUNCTIONS = f"""
select p.oid::regproc::text as name,
  array(select format_type(t, null) from unnest(p.proargtypes) with ordinality u(t, i) order by i) as types,
  coalesce(p.proargnames[1:p.pronargs], '{{}}') as names
from pg_proc p
where p.pronamespace = '{SCHEMA}'::regnamespace
order by 1
"""
_KNOWN = f"""
select array(select m.id from {SCHEMA}.fq_message m order by m.id desc limit 20) as message_ids,
  array(select m.ctid::text from {SCHEMA}.fq_message m order by m.id desc limit 20) as rows,
  array(select e.id from {SCHEMA}.fq_lease e order by e.expires_at desc limit 20) as lease_ids
"""


def _known(database: Database) -> Known:
    [row] = database.rows(_KNOWN)
    return Known(row.message_ids or (1,), row.lease_ids or (1,), row.rows or ("(0,1)",))


def _call(connection: psycopg.Connection[object], function: Function, arguments: list[object]) -> None:
    """One call, committed or refused in words that are ours, or the server's about one value."""
    try:
        connection.execute(function.call, arguments)
    except UnicodeEncodeError:
        return
    except psycopg.Error as error:
        state = error.sqlstate or ""
        told = f"{function.name}{arguments!r:.600}: {state} {error!s:.600}"
        ours = state.startswith("QF") or state in _REFUSED or (state == _NO_STAGE and "staging table" in str(error))
        if not ours or len(str(error)) > _LONGEST:
            raise AssertionError(told) from error


@pytest.mark.parametrize("kind", _KINDS)
def test_no_call_stops_a_queue(jobs: Installation, kind: str) -> None:
    """After each few calls the next dequeue delivers a message of somebody else, and all reads work."""
    actor, queue = jobs.role("actor", kind), Queue("documents", schema=SCHEMA, codec=BytesCodec())
    mine = {name for name, kinds in function_roles(latest_version()).items() if kind in kinds}
    functions = [
        Function(row.name, row.types, row.names)
        for row in jobs.database.rows(_FUNCTIONS)
        if row.name.rpartition(".")[2] in mine
    ]
    calls = RandomCalls(_SEED)
    url = actor.url.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("set statement_timeout = '20s'")
        for number in range(0, _CALLS, _ROUND):
            for channel in ("a", "c1"):
                queue.enqueue(jobs.owner, channel=channel, kind="work", payload=b"1", max_attempts=1 + number % 2)
            if kind == "consumer":
                lease = 1000 if number % 3 else 10**9
                connection.execute(f"select from {SCHEMA}.fq_dequeue('documents', 2, {lease}, 'me')")
            known = _known(jobs.database)
            for _ in range(_ROUND):
                function = calls.random.choice(functions)
                _call(connection, function, calls.arguments(function, known))
            bystander = queue.enqueue(jobs.owner, channel="bystander", kind="work", payload=b"?").message_id
            batch = queue.dequeue(jobs.owner, limit=1000)
            assert bystander in {one.message_id for one in batch}, f"seed {_SEED}, calls up to {number + _ROUND}"
            queue.stats(jobs.owner)
            queue.channels(jobs.owner)
            queue.admin.consumers(jobs.owner)
            assert all(one.message_id > 0 for one in queue.dead_letters.list(jobs.owner, limit=1000))
    assert all(one.problem is None for one in queue.channels(jobs.owner))
