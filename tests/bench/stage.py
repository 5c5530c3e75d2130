"""Databases to measure in: filled once, then cloned for each round, so that all rounds start from the same bytes."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import URL, make_url

from sqlalchemy_fairqueue.sql import install_statements
from sqlalchemy_fairqueue.sql.files import latest_version
from tests.bench.sides import hear
from tests.bench.wire import Wire

_BASELINES = Path(__file__).parent / "baselines"
_CHUNK = 500_000
_BIG = 100_000


@contextlib.contextmanager
def connected(conninfo: str) -> Iterator[Wire]:
    """A connection for the block."""
    wire = Wire(conninfo)
    try:
        yield wire
    finally:
        wire.close()


def driver_url(conninfo: str, driver: str = "psycopg") -> URL:
    """Return SQLAlchemy's URL of a database."""
    return make_url(conninfo).set(drivername=f"postgresql+{driver}")


@dataclass(frozen=True, slots=True)
class Stage:
    """One server, and the databases of one run on it.

    Attributes:
        server: Its URL, with the right to create databases.
        run: What the names of the databases begin with.
    """

    server: URL
    run: str
    _filled: dict[str, int] = field(default_factory=dict, repr=False)

    def conninfo(self, database: str | None = None) -> str:
        """Return the libpq URL of a database of the server; default: the one that the server's URL names."""
        url = self.server.set(drivername="postgresql")
        return (url.set(database=database) if database else url).render_as_string(hide_password=False)

    def create(self, name: str, template: str = "") -> str:
        """Make a database anew, of a template that is on disk then, and return its name."""
        with connected(self.conninfo()) as wire:
            wire.run(f"drop database if exists {name} with (force)")
            wire.run(f"create database {name} {template}")
            wire.run("checkpoint")
        return name

    def drop(self, name: str) -> None:
        """Drop a database."""
        with connected(self.conninfo()) as wire:
            wire.run(f"drop database if exists {name} with (force)")

    def tidy(self) -> None:
        """Drop all that was filled."""
        while self._filled:
            self.drop(self._filled.popitem()[0])

    def fill(
        self, side: str = "fair", *, channels: int = 1, messages: int = 0, weight: int = 1, fair_by: str = "messages"
    ) -> str:
        """Fill a database with *messages* on *channels* of one *weight* chosen by chance, all heard; return its name.

        On the fair side every message comes with a signal of its own, as if each had had its own transaction: rows
        and signals are inserted in bulk, which is what so many enqueues leave behind, and then heard by fq_hear.
        """
        name = self.create(f"{self.run}_{side}_{channels}_{messages}_{weight}_{fair_by}")
        self._filled[name] = messages
        with connected(self.conninfo(name)) as wire:
            wire.run("create schema fairqueue")
            baselines = (path.read_text(encoding="utf-8") for path in sorted(_BASELINES.glob("*.sql")))
            for statement in (*install_statements(latest_version(), "fairqueue"), *baselines):
                wire.run(statement)
            wire.run("select setseed(0.5)")
            values = {"channels": channels, "weight": weight, "fair_by": fair_by}
            wire.run(_CHANNELS[side].format(**values))
            for start in range(0, messages, _CHUNK):
                wire.run(_MESSAGES[side].format(**values, least=start + 1, greatest=min(start + _CHUNK, messages)))
            wire.run(_AFTERWARDS[side])
            if side == "fair":
                hear(wire)
            wire.run("vacuum (analyze, freeze)")
        return name

    @contextlib.contextmanager
    def clone(self, filled: str) -> Iterator[str]:
        """A copy of a filled database, as conninfo, gone at the end of the block."""
        # Copying files flushes the whole server twice: for small databases going by the log is quicker.
        strategy = "file_copy" if self._filled[filled] > _BIG else "wal_log"
        name = self.create(f"{self.run}_round", f"template {filled} strategy {strategy}")
        try:
            yield self.conninfo(name)
        finally:
            self.drop(name)


_CONTENT = "convert_to('{{\"upload\": \"' || repeat('x', 80) || i || '\"}}', 'UTF8')"
_NAMED = (
    "(select i, 'channel-' || (1 + floor(random() * {channels}))::bigint as name"
    " from generate_series({least}, {greatest}) i) g"
)
_CHANNELS = {
    "fair": (
        "select fairqueue.fq_set_queue('bench', jsonb_build_object("
        "'fair_by', '{fair_by}', 'defaults', jsonb_build_object('weight', {weight}))),"
        " fairqueue.fq_make_channels('bench', array_agg('channel-' || i)) from generate_series(1, {channels}) i"
    ),
    "plain": "select",
}
_MESSAGES = {
    "fair": (
        "insert into fairqueue.fq_message (channel_id, kind, content, dequeue_at, enqueued_at, max_attempts)"
        f" select c.id, 'default', {_CONTENT}, n.now, n.now, 20"
        f" from (select fairqueue.fq_now() as now) n, {_NAMED}"
        " join fairqueue.fq_channel c on c.queue = 'bench' and c.name = g.name order by g.i"
    ),
    "plain": (
        "insert into plain.message (channel_id, kind, content, dequeue_at, enqueued_at, max_attempts)"
        f" select 1 + floor(random() * {{channels}}), 'default', {_CONTENT}, n.now, n.now, 20"
        " from (select fairqueue.fq_now() as now) n, generate_series({least}, {greatest}) i"
    ),
}
_AFTERWARDS = {
    "fair": (
        "insert into fairqueue.fq_signal (queue, channel_id, dequeue_at, message_id, added)"
        " select 'bench', m.channel_id, m.dequeue_at, m.id, 1 from fairqueue.fq_message m order by m.id;"
        " analyze fairqueue.fq_channel, fairqueue.fq_channel_state, fairqueue.fq_message, fairqueue.fq_signal"
    ),
    "plain": "select",
}
