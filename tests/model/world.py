"""The database under the machine: connections, consumers, an observer, and a clock that only calls and tests move."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import Row, create_engine, text

from sqlalchemy_fairqueue import Queue
from tests.fixtures.clock import install_clock
from tests.fixtures.database import Database
from tests.model import invariants
from tests.model.work import QUEUE

TICK = 1_000
CONSUMERS = 3
_START = 1_700_000_000_000_000
_TABLES = ("fq_queue", "fq_channel", "fq_channel_state", "fq_message", "fq_signal", "fq_lease", "fq_dead_letter")
_TABLES_OF_VERSION_2 = ("fq_queue_state", "fq_history")
_TICKING = """
create or replace function public.fq_now() returns bigint language sql volatile as $$
  select nextval('public.test_clock')
$$
"""


class World:
    """One database for all examples of a test; ``reset`` empties it between them.

    Each call of ``fq_now`` puts the clock forward by one tick, so that a program always meets the same instants. A
    statement that would wait for a lock fails.
    """

    def __init__(self, database: Database) -> None:
        install_clock(database)
        database.execute(f"alter sequence public.test_clock increment by {TICK}")
        database.execute(_TICKING)
        self.engine = create_engine(
            database.url, pool_size=12, connect_args={"options": "-c lock_timeout=200ms -c synchronous_commit=off"}
        )
        self._observer = self.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        self.version = int(self.rows("select fq_version()")[0][0])
        self.reset()

    def reset(self) -> None:
        """Empty tables, new consumers, the clock at its start."""
        tables = (*_TABLES, *(_TABLES_OF_VERSION_2 if self.version > 1 else ()))
        self.rows(f"truncate {', '.join(tables)} restart identity")
        self.rows("select setval('public.test_clock', :start)", start=_START)
        self.queues = [Queue(QUEUE) for _ in range(CONSUMERS)]

    def install(self, function: str) -> None:
        """Put another text of a function in, verbatim."""
        self._observer.exec_driver_sql(function, execution_options={"no_parameters": True})

    def close(self) -> None:
        """Give the connections back."""
        self._observer.close()
        self.engine.dispose()

    def rows(self, sql: str, **parameters: object) -> Sequence[Row[Any]]:
        """What an observer's statement returns."""
        result = self._observer.execute(text(sql), parameters)
        return result.all() if result.returns_rows else []

    def now(self) -> int:
        """The clock, without moving it."""
        return int(self.rows("select last_value from public.test_clock")[0][0])

    def advance(self, by: timedelta) -> None:
        """Put the clock forward."""
        self.rows(
            "select setval('public.test_clock', last_value + :by) from public.test_clock",
            by=by // timedelta(microseconds=1),
        )

    def broken(self) -> list[str]:
        """The invariants that do not hold just now."""
        return [row[0] for row in self.rows(invariants.held_at_any_time(self.version), now=self.now())]

    def left(self) -> list[str]:
        """What is left in a queue that should be empty and at rest."""
        return [row[0] for row in self.rows(invariants.left_when_empty(self.version))]

    def messages(self) -> dict[int, Row[Any]]:
        """All messages that are committed, by id."""
        return {row.id: row for row in self.rows(invariants.messages(self.version))}

    def dead(self) -> dict[int, int]:
        """The dead letters, and when they died."""
        return {row.message_id: row.died_at for row in self.rows("select message_id, died_at from fq_dead_letter")}

    def history(self) -> list[tuple[int, int, str]]:
        """The attempts that are recorded: message, attempt, outcome."""
        if self.version == 1:
            return []
        found = self.rows("select message_id, attempt, outcome from fq_history")
        return sorted((row.message_id, row.attempt, row.outcome) for row in found)

    def state(self, channel: str) -> Row[Any]:
        """The state of a channel."""
        return self.rows(
            "select s.* from fq_channel_state s join fq_channel c on c.id = s.channel_id where c.name = :name",
            name=channel,
        )[0]

    def hidden_from(self, consumer: int) -> set[str]:
        """The channels whose place in line is below what the consumer's hint lets it see."""
        hints = self.queues[consumer]._consumer(self.engine)._hints
        if hints is None or hints[0] is None:
            return set()
        found = self.rows(
            "select c.name from fq_channel_state s join fq_channel c on c.id = s.channel_id "
            "where s.next_dequeue_at < :floor",
            floor=hints[0],
        )
        return {row[0] for row in found}

    def lease_of(self, consumer: int) -> int | None:
        """The lease that a consumer would use again."""
        return self.queues[consumer]._consumer(self.engine)._lease_id

    def set_hints(self, consumer: int, hints: str) -> None:
        """Make a consumer's next call a full scan, one that keeps to its hints, or one that has forgotten all."""
        found = self.queues[consumer]._consumer(self.engine)
        if hints == "forgotten":
            found._forget()
        elif found._hints is not None:
            found._hints[4] = self.now() + 50_000_000 if hints == "kept" else 0
