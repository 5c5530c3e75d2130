"""Random calls by roles: whatever a role passes to its functions, no queue stops, and refusals are ours and short.

FAIRQUEUE_FUZZ_CALLS is the number of calls, FAIRQUEUE_FUZZ_SEED the seed.
"""

import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from sqlalchemy_fairqueue import BytesCodec, Queue
from sqlalchemy_fairqueue.sql.files import latest_version
from sqlalchemy_fairqueue.sql.grants import function_roles
from tests.queue.row_grammar import Grammar
from tests.roles.conftest import SCHEMA, Installation

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
# Ids and tokens that exist now.
_KNOWN = f"""
select array(select id from {SCHEMA}.fq_message order by id desc limit 20) as message_ids,
  array(select ctid::text from {SCHEMA}.fq_message order by id desc limit 20) as rows,
  array(select id from {SCHEMA}.fq_lease order by expires_at desc limit 20) as lease_ids
"""
_BITS = {"bigint": 63, "integer": 31, "smallint": 15}
_ODD = {
    "tid": ("(4294967295,65535)",),
    "interval": ("-1 us", "178000000 years", "-178000000 years", "infinity", "-infinity"),
    "timestamp with time zone": ("4713-01-01 BC", "294276-12-31", "10000-01-01Z", "infinity", "-infinity"),
}
_GROUP = "00000000-0000-0000-0000-000000000001"


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the installation, with the types and the names of its parameters."""

    name: str
    types: Sequence[str]
    names: Sequence[str]

    @property
    def call(self) -> str:
        """The statement that calls it."""
        return f"select * from {self.name}({', '.join('%s::' + one for one in self.types)})"


class RandomCalls:
    """Arguments from a seed: the same seed makes the same ones.

    Args:
        seed: The seed.
    """

    def __init__(self, seed: int) -> None:
        self.random, self.grammar = random.Random(seed), Grammar(seed)  # noqa: S311 - arguments of tests

    def arguments(self, function: Function, known: Any) -> list[Any]:
        """Arguments of one call. Arrays of one call have one length."""
        count, length = len(function.types), self.random.randrange(4)
        odd = {self.random.randrange(count) for _ in range(self.random.choice((0, 1, 1, 2))) if count}
        return [
            self._array(self._odd if number in odd else self._ordinary, of, name, known, length)
            for number, (of, name) in enumerate(zip(function.types, function.names, strict=True))
        ]

    def _array(self, make: Callable[[str, str, Any], Any], of: str, name: str, known: Any, length: int) -> Any:
        if not of.endswith("[]"):
            return make(of, name, known)
        return [make(of.removesuffix("[]"), name, known) for _ in range(length)]

    def _ordinary(self, of: str, name: str, known: Any) -> Any:
        pick = self.random.choice
        if of in _BITS:
            if "lease_id" in name:
                return pick(known.lease_ids or [1])
            if "message_id" in name or name in {"p_id", "p_ids"}:
                return pick(known.message_ids or [1])
            return pick((1000, 30_000_000)) if name == "p_lease" else pick((1, 2, 10))
        return {
            "text": "documents" if name == "p_queue" else pick(("me", "a", "c1", "skip")),
            "bytea": b"1",
            "jsonb": pick((None, "{}", '{"weight": 2}')),
            "boolean": pick((True, False)),
            "tid": pick(known.rows or ["(0,1)"]),
            "uuid": _GROUP,
            "interval": pick((None, "0", "1 s")),
            "timestamp with time zone": pick((None, "2026-01-01Z")),
        }[of]

    def _odd(self, of: str, name: str, known: Any) -> Any:
        pick = self.random.random()
        if pick < 0.1:
            return None
        if of == "text":
            return "x" * self.random.choice((513, 2_000_000)) if pick < 0.4 else self.grammar.text()
        if of in _BITS:
            while (found := self.grammar.number()) is not None:
                if -(2 ** _BITS[of]) <= found < 2 ** _BITS[of]:
                    return found
            return None
        if of in {"bytea", "jsonb"}:
            return self.grammar.content() if of == "bytea" else self.grammar.headers()
        return self.random.choice(_ODD[of]) if of in _ODD else self._ordinary(of, name, known)


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
            [known] = jobs.database.rows(_KNOWN)
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
