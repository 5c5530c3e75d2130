"""Databases to measure in: filled once, then cloned for each round, so that all rounds start from the same bytes."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.sql import install_statements, latest_version
from tests.bench.sides import hear
from tests.bench.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import URL

_BASELINES = Path(__file__).parent / "baselines"
_CONTENT = "convert_to('{\"upload\": \"' || repeat('x', 80) || i || '\"}', 'UTF8')"
_CHUNK = 500_000
_BIG = 100_000


@dataclass(frozen=True, slots=True)
class Filled:
    """A filled database that rounds are cloned from.

    Attributes:
        name: the database.
        messages: how many it holds.
        signals: signals heard after filling it.
        seconds: how long hearing them took.
    """

    name: str
    messages: int
    signals: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Stage:
    """One server, and the databases of one run on it.

    Attributes:
        server: its URL, with the right to create databases.
        run: what the names of the databases begin with.
    """

    server: URL
    run: str

    def conninfo(self, database: str | None = None) -> str:
        """The libpq URL of a database of the server; default: the one that the server's URL names."""
        url = self.server.set(drivername="postgresql")
        return (url.set(database=database) if database else url).render_as_string(hide_password=False)

    def fill(self, side: str, *, channels: int, messages: int, weight: int = 1) -> Filled:
        """Make a database with *messages* on *channels* of one *weight* chosen by chance, all heard, tidied up.

        On the fair side every message comes with a signal of its own, as if each had had its own transaction: rows
        and signals are inserted in bulk, which is what so many enqueues leave behind, and then heard by fq_hear.
        """
        name = f"{self.run}_{side}_{channels}_{messages}_{weight}"
        with self._connected() as wire:
            wire.run(f"drop database if exists {name} with (force)")
            wire.run(f"create database {name}")
        with self._connected(name) as wire:
            wire.run("create schema fairqueue")
            for statement in (*install_statements(latest_version(), "fairqueue"), *_baselines()):
                wire.run(statement)
            wire.run("select setseed(0.5)")
            values = {"channels": channels, "counted": side != "lean", "content": _CONTENT, "weight": weight}
            tables = {"lean": "head", "found": "plain"}.get(side, side)
            wire.run(_CHANNELS[tables].format(**values))
            for start in range(0, messages, _CHUNK):
                greatest = min(start + _CHUNK, messages)
                wire.run(_MESSAGES[tables].format(**values, least=start + 1, greatest=greatest))
            wire.run(_AFTERWARDS[side])
            started = time.monotonic()
            heard = hear(wire) if side == "fair" else 0
            seconds = time.monotonic() - started
            wire.run("vacuum (analyze, freeze)")
        return Filled(name, messages, heard, seconds)

    @contextlib.contextmanager
    def clone(self, filled: Filled) -> Iterator[str]:
        """A copy of a filled database, as conninfo, gone at the end of the block; everything is on disk before."""
        name = f"{self.run}_round"
        # Copying files flushes the whole server twice: for small databases going by the log is quicker.
        strategy = "file_copy" if filled.messages > _BIG else "wal_log"
        with self._connected() as wire:
            wire.run(f"drop database if exists {name} with (force)")
            wire.run(f"create database {name} template {filled.name} strategy {strategy}")
            wire.run("checkpoint")
        try:
            yield self.conninfo(name)
        finally:
            with self._connected() as wire:
                wire.run(f"drop database if exists {name} with (force)")

    def drop(self, filled: Filled) -> None:
        """Drop a filled database."""
        with self._connected() as wire:
            wire.run(f"drop database if exists {filled.name} with (force)")

    @contextlib.contextmanager
    def _connected(self, database: str | None = None) -> Iterator[Wire]:
        wire = Wire(self.conninfo(database))
        try:
            yield wire
        finally:
            wire.close()


def _baselines() -> list[str]:
    return [path.read_text(encoding="utf-8") for path in sorted(_BASELINES.glob("*.sql"))]


_CHANNELS = {
    "fair": (
        "select fairqueue.fq_configure_queue('bench', jsonb_build_object('weight', {weight})),"
        " fairqueue.fq_make_channels('bench', array_agg('channel-' || i)) from generate_series(1, {channels}) i"
    ),
    "plain": "select",
    "head": (
        "insert into head.channel (queue, name, counted)"
        " select 'bench', 'channel-' || i, {counted} from generate_series(1, {channels}) i"
    ),
}
_MESSAGES = {
    "fair": (
        "insert into fairqueue.fq_message (channel_id, kind, content, dequeue_at, enqueued_at, max_attempts)"
        " select c.id, 'default', {content}, n.now, n.now, 20"
        " from (select fairqueue.fq_now() as now) n,"
        " (select i, 'channel-' || (1 + floor(random() * {channels}))::bigint as name"
        " from generate_series({least}, {greatest}) i) g"
        " join fairqueue.fq_channel c on c.queue = 'bench' and c.name = g.name order by g.i"
    ),
    "plain": (
        "insert into plain.message (channel_id, kind, content, dequeue_at, enqueued_at, max_attempts)"
        " select 1 + floor(random() * {channels}), 'default', {content}, n.now, n.now, 20"
        " from (select fairqueue.fq_now() as now) n, generate_series({least}, {greatest}) i"
    ),
    "head": (
        "insert into head.message (channel_id, kind, content, dequeue_at, enqueued_at, max_attempts)"
        " select c.id, 'default', {content}, n.now / 1000, n.now, 20"
        " from (select fairqueue.fq_now() as now) n,"
        " (select i, 'channel-' || (1 + floor(random() * {channels}))::bigint as name"
        " from generate_series({least}, {greatest}) i) g"
        " join head.channel c on c.queue = 'bench' and c.name = g.name order by g.i"
    ),
}
_AFTERWARDS = {
    "fair": (
        "insert into fairqueue.fq_signal (queue, channel_id, dequeue_at, message_id, added)"
        " select 'bench', m.channel_id, m.dequeue_at, m.id, 1 from fairqueue.fq_message m order by m.id;"
        " analyze fairqueue.fq_channel, fairqueue.fq_channel_state, fairqueue.fq_message, fairqueue.fq_signal"
    ),
    "plain": "select",
    "found": "create index message_lease_ix on plain.message (lease_id) where lease_id is not null",
    "head": (
        "update head.channel c set head_message_id = m.id, head_dequeue_at = m.dequeue_at,"
        " next_dequeue_at = m.dequeue_at from (select distinct on (channel_id) channel_id, id, dequeue_at"
        " from head.message order by channel_id, dequeue_at, id) m where m.channel_id = c.id"
    ),
}
_AFTERWARDS["lean"] = _AFTERWARDS["head"]
