"""Schedules over a change of daylight saving, while processes are killed, the server restarts and the clock steps."""

from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import Engine, NullPool, create_engine

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.embedded import Server
from sqlalchemy_fairqueue.times import instant_microseconds
from tests.fixtures.clock import Clock, install_clock
from tests.fixtures.database import Database, install
from tests.fixtures.forks import Killed
from tests.schedules import reference
from tests.schedules.program import QUEUE
from tests.schedules.test_processes import work_through

pytestmark = pytest.mark.soak

ZONE = "Europe/Berlin"
QUARTERS = "*/15 * * * *"
# In the hour that is skipped in spring and repeated in autumn.
NIGHTLY = "30 2 * * *"
SCHEDULES = 200
STEPS = 10
STEP = timedelta(minutes=75)


@pytest.fixture
def server(private_server: Callable[..., Server]) -> Server:
    """A durable server of the test's own: what was committed before a crash is there afterwards."""
    return private_server(durable=True)


@pytest.fixture
def own_database(server: Server) -> Database:
    """The database of that server, with the library."""
    found = Database(server.url())
    with create_engine(found.url, poolclass=NullPool).begin() as connection:
        install(connection)
    return found


def _schedule(queue: Queue, engine: Engine) -> None:
    for number in range(SCHEDULES):
        channel = f"c{number}"
        queue.schedules.set(engine, "all", channel=channel, cron=QUARTERS, timezone=ZONE, catch_up="all")
    for number in range(20):
        channel = f"c{number}"
        for rule in ("all", "last", "skip"):
            queue.schedules.set(engine, f"nightly {rule}", channel=channel, cron=NIGHTLY, timezone=ZONE, catch_up=rule)
        for rule in ("last", "skip"):
            queue.schedules.set(engine, rule, channel=channel, cron=QUARTERS, timezone=ZONE, catch_up=rule)  # type: ignore[call-overload]


def _expected(database: Database, now: datetime) -> dict[str, dict[int, list[int]]]:
    """The slots that the reference has from the making of each schedule until now: by name and schedule."""
    found: dict[str, dict[int, list[int]]] = defaultdict(dict)
    known: dict[tuple[str, int], list[int]] = {}
    for row in database.rows("select id, name, cron, anchor_at from fq_schedule"):
        # Schedules of one minute have the same slots.
        key = row.cron, row.anchor_at // 60_000_000
        if key not in known:
            after = datetime.fromtimestamp(key[1] * 60, UTC)
            known[key] = reference.slots(row.cron, ZoneInfo(ZONE), after, now)
        found[row.name][row.id] = [slot for slot in known[key] if slot > row.anchor_at]
    return found


@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    "begin", [datetime(2027, 3, 27, 20, 7, tzinfo=UTC), datetime(2027, 10, 30, 20, 7, tzinfo=UTC)], ids=str
)
def test_a_change_of_daylight_saving(own_database: Database, server: Server, begin: datetime) -> None:
    """20 processes, a kill at each step, two crashes and two restarts of the server, steps of the clock both ways:
    10,000 slots of "all" run once each, in order; a time of day that is skipped or repeated once; of "last" and "skip"
    none twice, none that the reference does not have, and the last one.
    """
    database, queue = own_database, Queue(QUEUE)
    engine = create_engine(database.url, poolclass=NullPool)
    clock = install_clock(database)
    clock.advance(begin - clock.now())
    _schedule(queue, engine)

    def go_wrong(step: int, running: Killed) -> None:
        if step in {1, 3, 6, 8}:
            _restart(server, database, clock, crashes=step in {1, 6})
        if step in {4, 7}:
            clock.advance(-2 * STEP)
            # A process that has begun, and polls, at the time that was before.
            running.start()
            clock.advance(2 * STEP)

    work_through(database, clock, (20, STEPS, STEP), go_wrong)
    _check(database, clock)


def _restart(server: Server, database: Database, clock: Clock, *, crashes: bool) -> None:
    before = clock.now()
    server.restart("immediate" if crashes else "fast")
    database.own.dispose()
    assert timedelta(0) <= clock.now() - before < STEP


def _check(database: Database, clock: Clock) -> None:
    now = clock.now()
    ran = database.rows(
        "select t.schedule_id, s.name, t.slot_at, t.message_id"
        " from fq_schedule_slot t join fq_schedule s on s.id = t.schedule_id order by s.id, t.slot_at"
    )
    messages = database.rows("select id from fq_message")
    assert Counter(row.message_id for row in ran) == Counter(row.id for row in messages)
    slots: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    made: dict[int, list[int]] = defaultdict(list)
    for row in ran:
        slots[row.name][row.schedule_id].append(row.slot_at)
        made[row.schedule_id].append(row.message_id)
    expected = _expected(database, now)
    assert slots["all"] == expected["all"]
    assert sum(map(len, slots["all"].values())) >= 10_000
    assert slots["nightly all"] == expected["nightly all"]
    assert {len(found) for found in slots["nightly all"].values()} == {1}
    for name in ("last", "skip", "nightly last", "nightly skip"):
        for schedule, found in slots[name].items():
            assert len(set(found)) == len(found), name
            assert set(found) <= set(expected[name][schedule]), name
    for schedule, wanted in expected["last"].items():
        assert slots["last"][schedule][-1] == wanted[-1]
    assert slots["nightly last"] == expected["nightly last"]
    assert all(ids == sorted(ids) for ids in made.values())
    assert all(row.slot_at <= instant_microseconds(now) for row in ran)
