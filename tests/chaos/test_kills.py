"""The kill matrix: a worker process is killed at each stage of its work."""

import signal

import pytest

from tests.chaos.books import Books
from tests.chaos.children import Child, StartChild
from tests.chaos.conftest import Rescue
from tests.fixtures.database import Database
from tests.fixtures.drivers import DRIVER
from tests.fixtures.waits import Waits
from tests.worker.helpers import until

STAGES = {
    "taken": "the dequeue is committed, the worker does not know yet",
    "begun": "in the handler, nothing is written",
    "written": "in the handler, its session has written",
    "committing": "the handler's transaction has settled the message and is not committed",
    "committed": "the handler's transaction is committed, the worker does not know yet",
    "working": "in a handler without session, its transaction is open",
    "returned": "a handler without session has returned, nothing is sent",
    "completed": "the database has completed the message, the worker does not know yet",
    "extending": "a lease is about to be extended",
    "extended": "a lease has just been extended",
    "extended in the database": "the database extends a lease, which it does after its worker has died",
    "stopping": "the worker was asked to stop and takes no more",
    "leaving": "the worker stops, what was not begun or not finished is about to be given back",
}
"""Stages of its work at which a worker is killed."""


_SHORT, _LONG = 1.0, 4.0
_CONNECTIONS = "select from pg_stat_activity where datname = current_database()"


def _end(one: Child, database: Database) -> dict[int, int]:
    """Kill a worker process; the messages that it still holds when its transactions are gone, and until when."""
    one.kill()
    until(
        lambda: not database.rows(f"{_CONNECTIONS} and application_name = :name", name=one.name),
        "its connections are gone",
    )
    rows = database.rows(
        "select (convert_from(m.content, 'UTF8')::jsonb ->> 'number')::bigint as number, l.expires_at"
        " from fq_message m join fq_lease l on l.id = m.lease_id"
    )
    return {row.number: row.expires_at for row in rows}


def _check_takeover(database: Database, held: dict[int, int]) -> None:
    """What the dead one held was not begun anew before its lease ended."""
    began = {
        row.number: row.began
        for row in database.rows(
            "select number, (extract(epoch from max(started)) * 1000000)::bigint as began from effect group by number"
        )
    }
    assert [number for number, expires_at in held.items() if began[number] < expires_at] == []


# Several die in one test, one after the other: each is killed at its stage, and what it held waits for its lease.
_EXTENSIONS = "extending", "extended", "extended in the database"
_STAGES = [
    ("taken", "begun", "written"),
    ("committing", "committed", "working"),
    ("returned", "completed", "written"),
    _EXTENSIONS,
]
_IN_THE_LOOP = [("written", "committing")]
_MORE_IN_THE_LOOP = [("begun", "committed", "returned")]


@pytest.mark.parametrize(
    ("stages", "asynchronous"),
    [
        # On a driver of asyncio every stage is one of a worker in a loop.
        *((stages, DRIVER == "asyncpg") for stages in _STAGES),
        *((stages, True) for stages in _IN_THE_LOOP),
        *(pytest.param(stages, True, marks=pytest.mark.whole) for stages in _MORE_IN_THE_LOOP),
    ],
)
def test_killed_workers(  # noqa: PLR0917 - fixtures
    books: Books,
    database: Database,
    child: StartChild,
    rescue: Rescue,
    waits: Waits,
    stages: tuple[str, ...],
    *,
    asynchronous: bool,
) -> None:
    """Killed at any stage, workers lose nothing: another one does the rest when the leases have ended, effects in a
    handler's session are counted once, and no slot is left.
    """
    books.send(3 * len(stages), "wide", "narrow")
    held: dict[int, int] = {}
    for stage in stages:
        doomed = child(
            stops=[stage, "working"] if stage in _EXTENSIONS else [stage],
            asynchronous=asynchronous,
            # A lease that a slow machine lets end is not extended.
            lease=_LONG if stage in _EXTENSIONS else _SHORT,
        )
        if stage == "extended in the database":
            doomed.reaches("working")
            with books.engine.connect() as holder:
                holder.exec_driver_sql("select from fq_lease for update")
                blocked = f"{_CONNECTIONS} and application_name = :name and wait_event_type = 'Lock'"
                waits.until(blocked, name=doomed.name)
                doomed.kill()
        else:
            doomed.reaches(stage)
        still = _end(doomed, database)
        assert still or stage in {"committed", "completed"}, stage
        held |= still
    rescue()
    books.until_done()
    _check_takeover(database, held)
    books.check()


@pytest.mark.parametrize("stage", ["stopping", "leaving"])
def test_killed_while_it_stops(books: Books, database: Database, child: StartChild, rescue: Rescue, stage: str) -> None:
    """A worker that is killed while it gives back what it holds loses none of it."""
    books.send(3)
    doomed = child(stops=["working", "written", stage], concurrency=3, grace=0.1)
    doomed.reaches("written", "written", "working")
    doomed.send(signal.SIGTERM)
    doomed.reaches(stage)
    held = _end(doomed, database)
    rescue()
    books.until_done()
    _check_takeover(database, held)
    books.check()
