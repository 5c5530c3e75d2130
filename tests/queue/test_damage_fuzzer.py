"""Fuzzer of damage: in any state of a queue one value of a table is written over, and the queue goes on.

FAIRQUEUE_FUZZ_DAMAGES is the number of values, FAIRQUEUE_FUZZ_SEED the first seed.
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Literal

from sqlalchemy import Engine
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import ChannelPolicy, Enqueue, Queue, Rate
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database

_DAMAGES = int(os.environ.get("FAIRQUEUE_FUZZ_DAMAGES", "8"))
_SEED = int(os.environ.get("FAIRQUEUE_FUZZ_SEED", "1"))
_SECOND = timedelta(seconds=1)
_LOOKS = 15
_VALUES = {
    "bigint": ("0", "-1", "1", "2147483648", "9223372036854775807", "-9223372036854775808", "253402300800000000"),
    "integer": ("0", "-1", "1", "2147483647", "-2147483648"),
    "smallint": ("0", "1", "2", "3", "-1", "32767", "-32768"),
    "text": ("''", "repeat('x', 600)", "repeat('y', 2000)", "chr(1)"),
    "bytea": ("''", r"'\x00ff'", "cast(repeat('x', 2000000) as bytea)"),
    "jsonb": ("'[]'", "'1'", "'null'", """'{"a": {"b": 1}}'"""),
    "boolean": ("true", "false"),
    "xid8": ("'0'", "'18446744073709551615'"),
    "xid8[]": ("'{}'", "'{0,18446744073709551615}'"),
}
_OF_QUEUES = "queue in ('{queue}', '{other}')"
_TABLES = {
    "fq_message": "channel_id in (select id from fq_channel where queue in ('{queue}', '{other}'))",
    "fq_limit_share": "limit_name = '{queue}'",
} | dict.fromkeys(
    ("fq_signal", "fq_lease", "fq_promotion", "fq_channel_state", "fq_queue_state", "fq_key_period"), _OF_QUEUES
)
# Names, identities, and what only withholds messages or counts them: doctor finds a limit of 0, a count or an hour that
# is wrong.
_KEPT = {
    *("backlog", "dropped", "freed", "queue_freed"),
    *("id", "queue", "channel_id", "limit_name", "group_id", "paused_at"),
    *("max_concurrency", "current_concurrency", "contends_until", "tag", "rate_interval", "rate_burst", "rate_at"),
}


@dataclass(slots=True)
class _Damaged:
    """A queue in a random state, with another one that shares its limit."""

    random: Random
    engine: Engine
    database: Database
    clock: Clock
    queue: Queue
    other: Queue

    def configure(self) -> None:
        """Limits, plans and policies, or none."""
        random, engine = self.random, self.engine
        fair_by: Literal["messages", "cost"] = random.choice(["messages", "cost"])
        limits: list[str] | None = None
        if random.random() < 0.5:
            limits = [self.queue.name]
            rate = random.choice([None, Rate(100, burst=50)])
            self.queue.limits.configure(engine, self.queue.name, max_concurrency=random.choice([3, 5]), rate=rate)
        for one in (self.queue, self.other):
            one.configure(engine, fair_by=fair_by, history=random.random() < 0.5, limits=limits)
        if random.random() < 0.3:
            self.queue.configure(engine, max_concurrency=4)
        if random.random() < 0.5:
            self.queue.plans.configure(engine, "p", ChannelPolicy(max_concurrency=random.choice([None, 1])))
            self.queue.configure(engine, default_plan="p")
        for name in "abc":
            if random.random() < 0.5:
                policy = ChannelPolicy(
                    max_concurrency=random.choice([None, 1, 2]),
                    rate=random.choice([None, Rate(5, burst=3)]),
                    weight=random.choice([1, 2]),
                    max_backlog=random.choice([None, 50]),
                    priority_aging=random.choice([None, _SECOND]),
                )
                self.queue.configure_channel(engine, name, policy)

    def live(self) -> None:
        """Messages come, go out, come back, are withdrawn; leases expire; a plan changes."""
        random = self.random
        self.queue.enqueue_many(self.engine, [self.message()])
        for _ in range(random.randrange(3, 9)):
            queue = random.choice([self.queue, self.queue, self.other])
            match random.randrange(6):
                case 0 | 1 | 2:
                    queue.enqueue_many(self.engine, [self.message() for _ in range(random.randrange(1, 6))])
                case 3:
                    batch = queue.dequeue(self.engine, limit=random.choice([1, 5, 20]), lease=30 * _SECOND)
                    for delivery in batch:
                        if random.random() < 0.4:
                            getattr(queue, random.choice(["complete", "retry", "release"]))(self.engine, delivery)
                        elif random.random() < 0.2:
                            queue.cancel(self.engine, delivery.message_id)
                case 4:
                    self.clock.advance(random.choice([_SECOND / 2, 40 * _SECOND]))
                case 5:
                    with Session(self.engine) as session:
                        self.queue.plans.configure(session, "p", max_concurrency=3)
                        session.commit()
        if random.random() < 0.6:
            self.clock.advance(40 * _SECOND)

    def message(self) -> Enqueue:
        """A message of a random kind of waiting."""
        random = self.random
        key = random.choice([None, None, "k", "l"])
        return Enqueue(
            channel=random.choice("abc"),
            payload=0,
            priority=random.choice([None, None, 3]),
            delay=random.choice([timedelta(), timedelta(), 2 * _SECOND]),
            max_attempts=random.choice([1, 2, 5]),
            cost=random.choice([1, 7]),
            key=key,
            on_duplicate="skip" if key is None else "replace",
        )

    def damage(self) -> str:
        """Write over one value, unless a check refuses it; say which."""
        random = self.random
        names = {"queue": self.queue.name, "other": self.other.name}
        rows = [
            (table, row.ctid)
            for table, of_queues in _TABLES.items()
            for row in self.database.rows(f"select ctid::text from {table} where {of_queues.format(**names)}")
        ]
        table = random.choice(sorted({table for table, _ in rows}))
        ctid = random.choice([ctid for one, ctid in rows if one == table])
        columns = [
            row
            for row in self.database.rows(
                "select attname as name, format_type(atttypid, null) as type, attnotnull from pg_attribute"
                f" where attrelid = '{table}'::regclass and attnum > 0 and not attisdropped order by attnum"
            )
            if row.name not in _KEPT
        ]
        column = random.choice(columns)
        value = random.choice([*_VALUES[column.type], *([] if column.attnotnull else ["null"])])
        with suppress(IntegrityError):
            self.database.execute(f"update {table} set {column.name} = {value} where ctid = '{ctid}'")
        return f"{table}.{column.name} = {value}"

    def goes_on(self) -> bool:
        """Whether messages of somebody else are soon delivered; no call may fail."""
        receipts = self.queue.enqueue_many(self.engine, [Enqueue(channel="bystander", payload=1)] * 2)
        missing = {receipt.message_id for receipt in receipts}
        fresh = Queue(self.queue.name)
        for _ in range(_LOOKS):
            batch = fresh.dequeue(self.engine, limit=50, lease=30 * _SECOND)
            fresh.complete(self.engine, batch)
            missing -= {delivery.message_id for delivery in batch}
            if not missing:
                break
            self.clock.advance(61 * _SECOND)
        fresh.stats(self.engine)
        fresh.dead_letters.list(self.engine)
        return not missing and len(fresh.channels(self.engine)) > 0


def test_no_damage_stops_a_queue(engine: Engine, database: Database, clock: Clock) -> None:
    """Whatever value of whatever row is damaged: no dequeue fails for good, and messages of others are delivered."""
    for seed in range(_SEED, _SEED + _DAMAGES):
        one = _Damaged(Random(seed), engine, database, clock, Queue(f"q{seed}"), Queue(f"o{seed}"))  # noqa: S311
        one.configure()
        one.live()
        what = one.damage()
        assert one.goes_on(), f"seed {seed}: {what}"
