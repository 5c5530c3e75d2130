"""The database under the machine: connections, consumers, an observer, and a clock that only calls and tests move."""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg
from alembic.migration import MigrationContext
from alembic.operations import Operations
from psycopg.rows import namedtuple_row
from sqlalchemy import Connection, NullPool, create_engine, event, text

from sqlalchemy_fairqueue import ChannelPolicy, Delivery
from sqlalchemy_fairqueue.queue.consumer import Consumer
from sqlalchemy_fairqueue.reports import Deliveries
from tests.fixtures.clock import install_clock
from tests.fixtures.database import Database
from tests.model import invariants
from tests.model.faces import AsyncFace, SyncFace, consumer, libpq_options, sync_engine
from tests.model.observer import HIDDEN, SIGHT, Sight
from tests.model.work import QUEUE, Effects

Observer = psycopg.Connection[Any]
TICK = 1_000
CONSUMERS = 3
BESIDE = CONSUMERS
"""The consumer whose dequeues are open transactions, beside which others call."""
_SETTINGS = {"lock_timeout": "200ms", "synchronous_commit": "off"}
_START = 1_700_000_000_000_000
_TABLES = (
    "fq_queue, fq_queue_state, fq_channel, fq_channel_state, fq_message, fq_promotion, fq_signal, fq_lease,"
    "fq_dead_letter, fq_history, fq_group, fq_group_followup, fq_group_note, fq_result, fq_result_wait"
)
_ROWS = """
select
  (select coalesce(jsonb_object_agg(id, name), '{{}}') from fq_channel) as names,
  array(select id from fq_message {message}) as messages,
  array(select id from fq_lease {message}) as leases,
  array(select channel_id from fq_channel_state {state}) as states,
  array(select queue from fq_queue_state {state}) as queues
"""
_ALL = _ROWS.format(message="", state="")
_UNLOCKED = _ROWS.format(message="for update skip locked", state="for no key update skip locked")
_TICKING = """
create or replace function public.fq_now() returns bigint language sql volatile as $$
  select nextval('public.test_clock')
$$
"""


@dataclass(frozen=True, slots=True)
class Grant:
    """The work that a role was granted: kinds, in one queue, in these channels of it or (None) in all."""

    kinds: frozenset[str]
    queue: str = QUEUE
    channels: frozenset[str] | None = None

    def covers(self, queue: str, channels: Collection[str]) -> bool:
        """Whether a call for the channels of the queue is within it."""
        return self.queue == queue and (self.channels is None or self.channels >= set(channels))


GRANTS = {
    "producer": [Grant(frozenset({"producer"}), channels=frozenset({"a", "b"}))],
    # What it may do elsewhere bounds nothing that it may do here.
    "consumer": [Grant(frozenset({"consumer"})), Grant(frozenset({"operator"}), queue="elsewhere")],
    "operator": [Grant(frozenset({"operator"}))],
    "stranger": [Grant(frozenset({"producer", "consumer", "operator"}), queue="elsewhere")],
}
"""Roles, and what each was granted."""


class World:
    """One database for all examples of a test; ``reset`` empties it between them.

    Each call of ``fq_now`` puts the clock forward by one tick, so that a program always meets the same instants. A
    statement that would wait for a lock fails. Its engines, sessions and queues are those of a driver.
    """

    def __init__(self, database: Database, driver: str) -> None:
        install_clock(database)
        database.execute(f"alter sequence public.test_clock increment by {TICK}")
        database.execute(_TICKING)
        self.failures = 0
        self._face: SyncFace | AsyncFace = AsyncFace() if driver == "asyncpg" else SyncFace(driver)
        self._database = database
        self._owner = self.engine = self._engine(self._face)
        self._roles = {role: self._grant(role) for role in GRANTS}
        self._meanwhile: Callable[[], None] | None = None
        self._beside = self._engine(SyncFace("psycopg"))
        event.listen(self._beside, "begin", _begin)
        event.listen(self._beside, "commit", self._before_commit)
        self._observer: Observer = psycopg.connect(
            database.conninfo, autocommit=True, row_factory=namedtuple_row, options=libpq_options(_SETTINGS)
        )
        self.reset()

    def reset(self) -> None:
        """Empty tables, new consumers, the clock at its start."""
        self.rows(f"truncate {_TABLES} restart identity")
        self.rows("select setval('public.test_clock', %(start)s)", start=_START)
        self.queues = [*(self.queue(QUEUE) for _ in range(CONSUMERS)), SyncFace("psycopg").queue(QUEUE, None)]

    def queue(self, name: str, defaults: ChannelPolicy | None = None) -> Any:
        """A queue of the driver."""
        return self._face.queue(name, defaults)

    def session(self) -> Any:
        """A session of whoever acts."""
        return self._face.session(self.engine)

    def _engine(self, face: SyncFace | AsyncFace, **settings: str) -> Any:
        engine = face.engine(self._database.url, _SETTINGS | settings)

        @event.listens_for(sync_engine(engine), "handle_error")
        def count(_: object) -> None:
            self.failures += 1

        return engine

    def _grant(self, role: str) -> Any:
        """Make a role with its grants; an engine that acts as it."""
        name = self._name(role)
        self._database.execute(f'create role "{name}"')
        with create_engine(self._database.url, poolclass=NullPool).begin() as connection:
            op: Any = Operations(MigrationContext.configure(connection))
            for grant in GRANTS[role]:
                channels = None if grant.channels is None else sorted(grant.channels)
                for kind in sorted(grant.kinds):
                    op.grant_fairqueue(name, kind, queues=[grant.queue], channels=channels)
        return self._engine(self._face, role=name)

    def _name(self, role: str) -> str:
        return f"{self._database.name}_{role}"

    @contextmanager
    def acting(self, role: str) -> Iterator[None]:
        """All calls inside are a role's, not the owner's."""
        self.engine = self._roles[role]
        try:
            yield
        finally:
            self.engine = self._owner

    def dequeue(self, consumer: int, **how: Any) -> Deliveries:
        """A dequeue of a consumer."""
        batch: Deliveries = self.queues[consumer].dequeue(self._beside if consumer == BESIDE else self.engine, **how)
        return batch

    def take_more(self, first: Delivery, **how: Any) -> list[Delivery]:
        """What follows a delivery, taken under its lease."""
        with self._beside.connect() as connection:
            return self._consumer(BESIDE).take_more(connection, first, **how)

    @contextmanager
    def before_commit(self, call: Callable[[], None] | None) -> Iterator[None]:
        """The next dequeue of the consumer beside others makes the call when all is done but its COMMIT."""
        self._meanwhile = call
        try:
            yield
        finally:
            self._meanwhile = None

    def _before_commit(self, connection: Connection) -> None:
        call, self._meanwhile = self._meanwhile, None
        if call is None:
            return
        try:
            call()
        except BaseException:
            # SQLAlchemy takes a COMMIT that fails for one that has ended the transaction.
            connection.connection.rollback()
            raise

    def locked(self) -> Effects:
        """The rows that open transactions have locked, as effects of one."""
        [all_], [free] = self.rows(_ALL), self.rows(_UNLOCKED)
        return Effects(
            messages={*all_.messages} - {*free.messages},
            leases={*all_.leases} - {*free.leases},
            states={all_.names[str(one)] for one in {*all_.states} - {*free.states}},
            queue_state=QUEUE in {*all_.queues} - {*free.queues},
        )

    def close(self) -> None:
        """Give the connections back."""
        self._observer.close()
        for engine in (self._owner, self._beside, *self._roles.values()):
            engine.dispose()
        self._face.close()
        for role in self._roles:
            self._database.execute(f'drop owned by "{self._name(role)}"')
            self._database.execute(f'drop role "{self._name(role)}"')

    def rows(self, sql: str, **parameters: object) -> list[Any]:
        """What an observer's statement returns; parameters are written %(name)s."""
        cursor = self._observer.execute(sql, parameters or None)
        return cursor.fetchall() if cursor.description else []

    def now(self) -> int:
        """The clock, without moving it."""
        return int(self.rows("select last_value from public.test_clock")[0][0])

    def advance(self, by: timedelta) -> None:
        """Put the clock forward."""
        self.rows(
            "select setval('public.test_clock', last_value + %(by)s) from public.test_clock",
            by=by // timedelta(microseconds=1),
        )

    def pass_by(self, moments: Iterable[int], within: int, step: int = TICK) -> int:
        """Put the clock forward until none of the moments comes so soon; return the time."""
        ahead, now = sorted(moments), self.now()
        while any(0 < one - now <= within for one in ahead):
            self.advance(timedelta(microseconds=step))
            now += step
        return now

    def inspect(self) -> Sight:
        """All that is committed, in one snapshot, and the invariants that do not hold in it."""
        [[seen]] = self.rows(SIGHT)
        return Sight(seen)

    def left(self) -> list[str]:
        """What is left in a queue that should be empty and at rest."""
        return [row[0] for row in self.rows(invariants.LEFT)]

    def set_aside(self) -> set[str]:
        """The channels that a dequeue has paused."""
        found = self.rows(
            "select c.name from fq_channel_state s join fq_channel c on c.id = s.channel_id where s.problem is not null"
        )
        return {row[0] for row in found}

    def deaths(self) -> dict[int, int]:
        """The dead letters, and when they died."""
        return dict(self.rows("select message_id, died_at from fq_dead_letter"))

    def hidden(self, connection: Any) -> dict[str, int]:
        """How many messages of each bounded channel an enqueue on the connection cannot know of."""
        if connection is None:
            return dict(self.rows(HIDDEN))
        return {row.name: row.messages for row in connection.execute(text(HIDDEN))}

    def state(self, channel: str) -> Any:
        """The state of a channel."""
        return self.rows(
            "select s.* from fq_channel_state s join fq_channel c on c.id = s.channel_id where c.name = %(name)s",
            name=channel,
        )[0]

    def lease_of(self, consumer: int, asked: timedelta) -> int | None:
        """The lease that a consumer would use again for as long as is asked."""
        return dict(self._consumer(consumer)._leases).get(asked)

    def forget(self, consumer: int) -> None:
        """Let a consumer's next call be as its first one."""
        self._consumer(consumer)._forget()

    def _consumer(self, number: int) -> Consumer:
        return consumer(self.queues[number], self._beside if number == BESIDE else self.engine)


def _begin(_: Connection) -> None:
    """A listener that could set transactions up: a call is one then, instead of a statement that is one by itself."""
