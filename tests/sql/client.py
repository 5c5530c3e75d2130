"""The SQL functions called as SQL, over real connections: what the tests of tests/sql and tests/fairness speak
through.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields
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

_FIELDS = ("max_concurrency", "rate_interval", "rate_burst", "weight")
_TOKENS = "%(queue)s, %(ids)s::bigint[], %(rows)s::tid[], %(lease_ids)s::bigint[], %(deliveries)s::integer[]"


def policy_json(**fields: object) -> Jsonb:
    """Fields of a policy, as the functions take them."""
    return Jsonb(fields)


@dataclass(slots=True)
class Kernel:
    """The functions of one queue on one connection."""

    connection: psycopg.Connection[Any]
    queue: str = "q"
    name: str = "me"
    _stack: ExitStack = field(default_factory=ExitStack)

    def rows(self, sql: str, **parameters: object) -> list[dict[str, Any]]:
        """Run one statement; its rows, if it has any."""
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
        contents: Sequence[bytes | None] | None = None,
        kinds: Sequence[str | None] | None = None,
        headers: Sequence[str | None] | None = None,
        delays: Sequence[int | None] | None = None,
        ats: Sequence[int | None] | None = None,
        priorities: Sequence[int | None] | None = None,
        keys: Sequence[str | None] | None = None,
        max_attempts: Sequence[int | None] | None = None,
        policy: tuple[int | None, int | None, int | None, int | None] | None = None,
        costs: Sequence[int | None] | None = None,
        ordering_keys: Sequence[str | None] | None = None,
    ) -> list[Added]:
        """fq_enqueue: one message a channel named."""
        nothing = [None] * len(channels)
        sql = """
            select * from fq_enqueue(%(queue)s, %(channels)s::text[], %(kinds)s::text[], %(contents)s::bytea[],
              %(headers)s::jsonb[], %(delays)s::bigint[], %(ats)s::bigint[], %(priorities)s::integer[],
              %(keys)s::text[], %(max_attempts)s::integer[], %(policy)s::jsonb, p_costs => %(costs)s::integer[],
              p_ordering_keys => %(ordering_keys)s::text[])
        """
        with self.connection.cursor(row_factory=class_row(Added)) as cursor:
            cursor.execute(
                sql,
                {
                    "queue": self.queue,
                    "channels": list(channels),
                    "kinds": list(kinds or ["work"] * len(channels)),
                    "contents": list(contents or [b"{}"] * len(channels)),
                    "headers": list(headers or nothing),
                    "delays": list(delays or nothing),
                    "ats": list(ats or nothing),
                    "priorities": list(priorities or nothing),
                    "keys": list(keys or nothing),
                    "max_attempts": list(max_attempts or nothing),
                    "costs": None if costs is None else list(costs),
                    "ordering_keys": None if ordering_keys is None else list(ordering_keys),
                    "policy": None if policy is None else policy_json(**dict(zip(_FIELDS, policy, strict=True))),
                },
            )
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
            queue=self.queue,
            limit=limit,
            lease=lease,
            name=self.name,
            lease_id=lease_id,
        )
        hands = [
            Hand(
                id=row["message_id"],
                row=row["row_id"],
                channel=row["channel"],
                kind=row["kind"],
                content=row["content"],
                attempt=row["attempt"],
                deliveries=row["deliveries"],
                lease_id=call["lease_id"],
            )
            for row in taken
        ]
        return Call(
            hands,
            **{one.name: call[one.name] for one in fields(Call) if one.name != "hands"},
        )

    def hear(self) -> int:
        """fq_hear, until there are no more signals; how many were heard."""
        heard, more = 0, True
        while more:
            [row] = self.rows("select * from fq_hear(%(queue)s)", queue=self.queue)
            heard, more = heard + row["heard"], row["has_more"]
        return heard

    def ready(self) -> None:
        """Hear everything, and move what is due into the ready order, as the dequeue of a paused queue does."""
        self.rows("select fq_pause(%(queue)s)", queue=self.queue)
        due = "select from fq_channel_state where queue = %(queue)s and due_at <= fq_now()"
        while self.hear() or self.value(f"select exists ({due})", queue=self.queue):
            pass
        self.rows("select fq_pause(%(queue)s, p_paused => false)", queue=self.queue)

    def charge_running(self, charges: Sequence[tuple[Hand, int, int]]) -> None:
        """fq_correct_costs: up to what deliveries that run cost so far, and up to what they were charged before."""
        self.rows(
            "select fq_correct_costs(%(queue)s, %(ids)s::bigint[], %(leases)s::bigint[], %(deliveries)s::integer[],"
            " %(costs)s::bigint[], %(charged)s::bigint[], true)",
            queue=self.queue,
            ids=[hand.id for hand, _, _ in charges],
            leases=[hand.lease_id for hand, _, _ in charges],
            deliveries=[hand.deliveries for hand, _, _ in charges],
            costs=[cost for _, cost, _ in charges],
            charged=[before for _, _, before in charges],
        )

    def correct(self, hand: Hand, cost: int, *, charged: int | None = None) -> None:
        """fq_correct_costs: what a delivery cost in truth, and up to what it was charged while it ran."""
        self.rows(
            "select fq_correct_costs(%(queue)s, array[%(id)s::bigint], array[%(lease_id)s::bigint],"
            " array[%(deliveries)s::integer], array[%(cost)s::bigint], array[%(charged)s::bigint])",
            charged=charged,
            queue=self.queue,
            id=hand.id,
            lease_id=hand.lease_id,
            deliveries=hand.deliveries,
            cost=cost,
        )

    def complete(self, *hands: Hand) -> dict[int, str]:
        """fq_complete: what was not completed, and why."""
        return self._settle(f"fq_complete({_TOKENS})", hands)

    def release(self, *hands: Hand, delay: int | None = None) -> dict[int, str]:
        """fq_end_attempts: what was not released, and why."""
        call = f"fq_end_attempts({_TOKENS}, 'released', %(delays)s::bigint[], null)"
        return self._settle(call, hands, delays=[delay] * len(hands))

    def retry(self, *hands: Hand, delay: int | None = None, error: str | None = None) -> dict[int, str]:
        """fq_end_attempts: what is not tried again, and why."""
        return self._settle(
            f"fq_end_attempts({_TOKENS}, 'retried', %(delays)s::bigint[], %(errors)s::text[])",
            hands,
            delays=[delay] * len(hands),
            errors=[error] * len(hands),
        )

    def bury(self, *hands: Hand, reason: str | None = None, error: str | None = None) -> dict[int, str]:
        """fq_end_attempts: what was not buried, and why."""
        return self._settle(
            f"fq_end_attempts({_TOKENS}, 'buried', null, %(errors)s::text[], %(reasons)s::text[])",
            hands,
            reasons=[reason] * len(hands),
            errors=[error] * len(hands),
        )

    def extend(self, lease_id: int | None, lease: int | None = 30 * SECOND, *hands: Hand) -> int | None:
        """fq_heartbeat of one lease: its new end, or None."""
        end: int | None = self.value(
            "select expires_at from fq_heartbeat("
            "array[%(lease_id)s::bigint], %(lease)s, null, %(ids)s::bigint[], %(deliveries)s::integer[])",
            lease_id=lease_id,
            lease=lease,
            ids=[hand.id for hand in hands],
            deliveries=[hand.deliveries for hand in hands],
        )
        return end

    def cancel(self, *ids: int) -> dict[int, str]:
        """fq_cancel: what was not withdrawn, and why."""
        rows = self.rows(
            "select * from fq_cancel(%(queue)s, %(ids)s::bigint[]) where outcome <> 'cancelled'",
            queue=self.queue,
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
        self.rows(
            "select fq_configure_channel(%(queue)s, %(channel)s, %(policy)s)",
            queue=self.queue,
            channel=channel,
            policy=policy_json(
                max_concurrency=max_concurrency, rate_interval=interval, rate_burst=burst, weight=weight
            ),
        )

    def configure_queue(
        self, max_concurrency: int | None = None, *, interval: int = 0, burst: int = 1, weight: int = 1
    ) -> None:
        """fq_set_queue, the defaults."""
        self.rows(
            "select fq_set_queue(%(queue)s, jsonb_build_object('defaults', %(policy)s::jsonb))",
            queue=self.queue,
            policy=policy_json(
                max_concurrency=max_concurrency, rate_interval=interval, rate_burst=burst, weight=weight
            ),
        )

    def set_queue(self, **settings: object) -> None:
        """fq_set_queue."""
        self.rows("select fq_set_queue(%(queue)s, %(settings)s)", queue=self.queue, settings=Jsonb(settings))

    def state(self, channel: str) -> dict[str, Any]:
        """The state row of a channel."""
        (row,) = self.rows(
            "select s.* from fq_channel_state s join fq_channel c on c.id = s.channel_id"
            " where c.queue = %(queue)s and c.name = %(channel)s",
            queue=self.queue,
            channel=channel,
        )
        return row

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

    def _settle(self, call: str, hands: Sequence[Hand], **more: object) -> dict[int, str]:
        rows = self.rows(
            f"select * from {call}",
            queue=self.queue,
            ids=[hand.id for hand in hands],
            rows=[hand.row for hand in hands],
            lease_ids=[hand.lease_id for hand in hands],
            deliveries=[hand.deliveries for hand in hands],
            **more,
        )
        return {row["message_id"]: row["outcome"] for row in rows}

    @classmethod
    def open(cls, conninfo: str, *, isolation: str | None = None, autocommit: bool = False, name: str = "me") -> Self:
        """A kernel on a connection of its own."""
        connection = psycopg.connect(conninfo, autocommit=autocommit)
        if isolation:
            connection.isolation_level = IsolationLevel[isolation]
        return cls(connection, name=name)


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
