"""The SQL functions called as SQL, over real connections: what the tests of tests/sql and tests/fairness speak
through.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from typing import Any, Self, TypeVar

import psycopg
import pytest
from psycopg import IsolationLevel
from psycopg.rows import class_row, dict_row
from psycopg.types.json import Jsonb
from sqlalchemy import Engine

from tests.fixtures.database import Database
from tests.sql.answers import Added, Call, Hand

T = TypeVar("T")
OpenKernel = Callable[..., "Kernel"]

MILLISECOND = 1_000
SECOND = 1_000_000
HOUR = 3_600 * SECOND

_COLUMNS = {
    "kinds": "text[]", "contents": "bytea[]", "headers": "jsonb[]", "delays": "bigint[]", "ats": "bigint[]",
    "priorities": "integer[]", "keys": "text[]", "max_attempts": "integer[]", "costs": "integer[]",
    "ordering_keys": "text[]",
}  # fmt: skip
_TYPES = _COLUMNS | {
    "channels": "text[]", "on_duplicates": "text[]", "policy": "jsonb", "notify": "boolean", "hold": "bigint[]",
}  # fmt: skip
_TOKENS = "%(queue)s, %(ids)s::bigint[], %(rows)s::tid[], %(lease_ids)s::bigint[], %(deliveries)s::integer[]"

_COSTS = "%(queue)s, %(ids)s::bigint[], %(lease_ids)s::bigint[], %(deliveries)s::integer[], %(costs)s::bigint[]"


def policy_json(**fields: object) -> Jsonb:
    """Fields of a policy, as the functions take them."""
    return Jsonb(fields)


def tokens(hands: Sequence[Hand]) -> dict[str, list[Any]]:
    """The parameters that say which deliveries are meant."""
    return {
        "ids": [hand.id for hand in hands],
        "rows": [hand.row for hand in hands],
        "lease_ids": [hand.lease_id for hand in hands],
        "deliveries": [hand.deliveries for hand in hands],
    }


@contextmanager
def refused(code: str = "QF001", match: str | None = None) -> Iterator[pytest.ExceptionInfo[psycopg.Error]]:
    """Fail unless the block ends with an error of this code."""
    __tracebackhide__ = True
    with pytest.raises(psycopg.Error, match=match) as error:
        yield error
    assert error.value.sqlstate == code


@dataclass(slots=True)
class Kernel:
    """The functions of one queue on one connection."""

    connection: psycopg.Connection[Any]
    queue: str = "q"
    name: str = "me"

    def rows(self, sql: str, **parameters: object) -> list[dict[str, Any]]:
        """Run one statement; its rows, if it has any. It may name the queue, as %(queue)s."""
        if "%(queue)s" in sql:
            parameters.setdefault("queue", self.queue)
        with self.connection.cursor(row_factory=dict_row) as cursor:
            cursor.execute(sql.encode(), parameters or None)
            return cursor.fetchall() if cursor.description else []

    def value(self, sql: str, **parameters: object) -> Any:
        """The single value of the first row, or None where there is no row."""
        rows = self.rows(sql, **parameters)
        return next(iter(rows[0].values())) if rows else None

    def commit(self) -> None:
        """Commit the open transaction."""
        self.connection.commit()

    def rollback(self) -> None:
        """Roll the open transaction back."""
        self.connection.rollback()

    @property
    def pid(self) -> int:
        """The process of the server that serves this connection."""
        return self.connection.info.backend_pid

    def enqueue(
        self,
        *channels: str | None,
        on: Sequence[str | None] | str | None = None,
        policy: dict[str, object] | None = None,
        notify: bool = False,
        hold: Sequence[int] | None = None,
        **columns: Sequence[Any] | None,
    ) -> list[Added]:
        """fq_enqueue: one message a channel named, in their order; further columns as lists, ``keys=["k", None]``."""
        count = len(channels)
        given: dict[str, Any] = dict.fromkeys(_COLUMNS, [None] * count)
        given |= {"kinds": ["work"] * count, "contents": [b"{}"] * count, "costs": None, "ordering_keys": None}
        given |= {name: list(column) for name, column in columns.items() if column is not None}
        given |= {
            "channels": list(channels),
            "on_duplicates": [on] * count if isinstance(on, str) else on and list(on),
            "policy": policy and policy_json(**policy),
            "notify": notify,
            "hold": hold and list(hold),
        }
        arguments = ", ".join(f"p_{name} => %({name})s::{_TYPES[name]}" for name in given)
        with self.connection.cursor(row_factory=class_row(Added)) as cursor:
            cursor.execute(f"select * from fq_enqueue(%(queue)s, {arguments})".encode(), {"queue": self.queue} | given)
            return sorted(cursor.fetchall(), key=lambda added: added.ordinal)

    def dequeue(
        self,
        limit: int | None = 1,
        *,
        lease: int | None = 5 * 60 * SECOND,
        lease_id: int | None = None,
    ) -> Call:
        """fq_dequeue: the rows of its messages and the row about the call."""
        *taken, call = self.rows(
            "select *, fq_now() as taken_at"
            " from fq_dequeue(%(queue)s, %(limit)s, %(lease)s, %(name)s, %(lease_id)s::bigint)",
            limit=limit,
            lease=lease,
            name=self.name,
            lease_id=lease_id,
        )
        same = ("channel", "kind", "content", "attempt", "deliveries")
        hands = [
            Hand(
                id=row["message_id"], row=row["row_id"], lease_id=call["lease_id"], **{name: row[name] for name in same}
            )
            for row in taken
        ]
        return Call(hands, **{one.name: call[one.name] for one in fields(Call) if one.name != "hands"})

    def hear(self) -> int:
        """fq_hear, until there are no more signals; how many were heard."""
        heard, more = 0, True
        while more:
            [row] = self.rows("select * from fq_hear(%(queue)s)")
            heard, more = heard + row["heard"], row["has_more"]
        return heard

    def ready(self) -> None:
        """Hear everything, and move what is due into the ready order, as the dequeue of a paused queue does."""
        self.rows("select fq_pause(%(queue)s)")
        due = "select from fq_channel_state where queue = %(queue)s and due_at <= fq_now()"
        while self.hear() or self.value(f"select exists ({due})"):
            pass
        self.rows("select fq_pause(%(queue)s, p_paused => false)")

    def charge_running(self, charges: Sequence[tuple[Hand, int, int]]) -> None:
        """fq_correct_costs: up to what deliveries that run cost so far, and up to what they were charged before."""
        hands, costs, charged = zip(*charges, strict=True) if charges else ((), (), ())
        self.rows(
            f"select fq_correct_costs({_COSTS}, %(charged)s::bigint[], true)",
            costs=list(costs),
            charged=list(charged),
            **tokens(hands),
        )

    def correct(self, hand: Hand, cost: int, *, charged: int | None = None) -> None:
        """fq_correct_costs: what a delivery cost in truth, and up to what it was charged while it ran."""
        self.correct_all([hand], [cost], charged=[charged])

    def correct_all(self, hands: Sequence[Hand], costs: list[int], *, charged: list[int | None] | None = None) -> None:
        """The same of several."""
        self.rows(
            f"select fq_correct_costs({_COSTS}, %(charged)s::bigint[])", costs=costs, charged=charged, **tokens(hands)
        )

    def complete(self, *hands: Hand) -> dict[int, str]:
        """fq_complete: what was not completed, and why."""
        return self._settle(f"fq_complete({_TOKENS})", hands)

    def release(self, *hands: Hand, delay: int | None = None, notify: bool = False) -> dict[int, str]:
        """fq_end_attempts: what was not released, and why."""
        return self._end("released", hands, delay=delay, notify=notify)

    def retry(
        self, *hands: Hand, delay: int | None = None, error: str | None = None, notify: bool = False
    ) -> dict[int, str]:
        """fq_end_attempts: what is not tried again, and why."""
        return self._end("retried", hands, delay=delay, error=error, notify=notify)

    def bury(self, *hands: Hand, reason: str | None = None, error: str | None = None) -> dict[int, str]:
        """fq_end_attempts: what was not buried, and why."""
        return self._end("buried", hands, error=error, reason=reason)

    def extend(self, lease_id: int | None, lease: int | None = 30 * SECOND, *hands: Hand) -> int | None:
        """fq_heartbeat of one lease: its new end, or None."""
        end: int | None = self.value(
            "select expires_at from fq_heartbeat("
            "array[%(lease_id)s::bigint], %(lease)s, null, %(ids)s::bigint[], %(deliveries)s::integer[])",
            lease_id=lease_id,
            lease=lease,
            **tokens(hands),
        )
        return end

    def cancel(self, *ids: int) -> dict[int, str]:
        """fq_cancel: what was not withdrawn, and why."""
        rows = self.rows(
            "select * from fq_cancel(%(queue)s, %(ids)s::bigint[]) where outcome <> 'cancelled'",
            ids=list(ids),
        )
        return {row["message_id"]: row["outcome"] for row in rows}

    def configure(
        self,
        channel: str | None,
        max_concurrency: int | None = None,
        *,
        interval: int | None = 0,
        burst: int | None = 1,
        weight: int | None = 1,
    ) -> None:
        """fq_configure_channel."""
        policy = policy_json(max_concurrency=max_concurrency, rate_interval=interval, rate_burst=burst, weight=weight)
        self.rows("select fq_configure_channel(%(queue)s, %(channel)s, %(policy)s)", channel=channel, policy=policy)

    def configure_queue(self, max_concurrency: int | None = None) -> None:
        """fq_set_queue, the defaults."""
        self.set_queue(defaults={"max_concurrency": max_concurrency, "weight": 1})

    def set_queue(self, **settings: object) -> None:
        """fq_set_queue."""
        self.rows("select fq_set_queue(%(queue)s, %(settings)s)", settings=Jsonb(settings))

    def state(self, channel: str) -> dict[str, Any]:
        """The state row of a channel."""
        (row,) = self.rows(
            "select s.* from fq_channel_state s join fq_channel c on c.id = s.channel_id"
            " where c.queue = %(queue)s and c.name = %(channel)s",
            channel=channel,
        )
        return row

    def out(self) -> dict[int, Hand]:
        """All messages that are out, by their ids, from the table."""
        rows = self.rows(
            "select m.id, m.ctid::text as row, c.name as channel, m.kind, m.content, m.attempts as attempt,"
            " m.deliveries, m.lease_id from fq_message m join fq_channel c on c.id = m.channel_id"
            " where m.lease_id is not null"
        )
        return {row["id"]: Hand(**row) for row in rows}

    def drain(self, limit: int = 100, calls: int = 10_000) -> list[Hand]:
        """Dequeue and complete until nothing is ready."""
        drained: list[Hand] = []
        for _ in range(calls):
            call = self.dequeue(limit)
            if not call.hands and call.due_in != 0:
                return drained
            assert self.complete(*call.hands) == {}
            drained += call.hands
        pytest.fail(f"not drained after {calls} calls")

    def _end(
        self,
        outcome: str,
        hands: Sequence[Hand],
        *,
        delay: int | None = None,
        notify: bool = False,
        **texts: str | None,
    ) -> dict[int, str]:
        return self._settle(
            f"fq_end_attempts({_TOKENS}, %(outcome)s, %(delays)s::bigint[], %(error)s::text[], %(reason)s::text[],"
            " p_notify => %(notify)s)",
            hands,
            outcome=outcome,
            delays=[delay] * len(hands),
            notify=notify,
            **{name: [texts.get(name)] * len(hands) for name in ("error", "reason")},
        )

    def _settle(self, call: str, hands: Sequence[Hand], **more: object) -> dict[int, str]:
        rows = self.rows(f"select * from {call}", **tokens(hands), **more)
        return {row["message_id"]: row["outcome"] for row in rows}

    @classmethod
    def open(cls, conninfo: str, *, isolation: str | None = None, autocommit: bool = False, name: str = "me") -> Self:
        """A kernel on a connection of its own."""
        connection = psycopg.connect(conninfo, autocommit=autocommit)
        if isolation:
            connection.isolation_level = IsolationLevel[isolation]
        return cls(connection, name=name)


class Follower:
    """A consumer that keeps its lease."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.lease_id: int | None = None

    def take(self, limit: int = 100) -> list[Hand]:
        """Take what there is."""
        call = self.kernel.dequeue(limit, lease=HOUR, lease_id=self.lease_id)
        self.lease_id = call.lease_id
        return call.hands

    def serve(self) -> list[int]:
        """Take and complete what there is, once; the ids."""
        hands = self.take()
        assert self.kernel.complete(*hands) == {}
        return [hand.id for hand in hands]

    def drain(self) -> None:
        """Take and complete until there is nothing."""
        while self.serve():
            pass


def on(work: Callable[[Kernel], T]) -> Callable[[Engine], T]:
    """Work of a kernel as a rival of the ``waits`` fixture: each statement is a transaction of its own."""

    def run(engine: Engine) -> T:
        with engine.connect() as connection:
            driver = connection.connection.driver_connection
            assert isinstance(driver, psycopg.Connection)
            driver.autocommit = True
            try:
                return work(Kernel(driver))
            finally:
                if not driver.closed:
                    driver.rollback()
                    driver.autocommit = False

    return run


@contextmanager
def opener(database: Database) -> Iterator[OpenKernel]:
    """Open connections to a database until the end of the block."""
    with ExitStack() as stack:

        def open_one(*, isolation: str | None = None, autocommit: bool = False, name: str = "me") -> Kernel:
            kernel = Kernel.open(database.conninfo, isolation=isolation, autocommit=autocommit, name=name)
            stack.callback(kernel.connection.close)
            return kernel

        yield open_one


@pytest.fixture
def open_kernel(database: Database) -> Iterator[OpenKernel]:
    """Open one more connection to the test's database: ``open_kernel(isolation="SERIALIZABLE")``, in a transaction."""
    with opener(database) as open_one:
        yield open_one


@pytest.fixture
def kernel(open_kernel: OpenKernel) -> Kernel:
    """The functions on a connection where each statement is a transaction of its own."""
    return open_kernel(autocommit=True)
