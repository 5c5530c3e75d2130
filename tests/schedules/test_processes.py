"""Many processes that run the same schedules and are killed: each slot once, and none missing."""

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise

import pytest
from sqlalchemy import Engine

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.times import instant_microseconds, microseconds
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database
from tests.fixtures.forks import Killed, killed
from tests.schedules.program import QUEUE, main
from tests.worker.helpers import until

STEPS = 6
SLOTS = 5 * STEPS
MINUTE = timedelta(minutes=1)


def due(database: Database) -> int:
    """How many schedules are due."""
    return int(database.value("select count(*) from fq_schedule where due_at <= fq_now()"))


def work_through(
    database: Database, clock: Clock, sizes: tuple[int, int, timedelta], meanwhile: Callable[[int, Killed], None]
) -> None:
    """So many processes run what becomes due in so many steps of this length, one of them is killed in each; something
    happens then, and every other time a process is started, and does all that is due.
    """
    processes, steps, length = sizes
    ran = "select count(*) from fq_schedule_slot"
    with killed(database.url, processes, 5, main) as running:
        for step in range(steps):
            begun = database.value(ran)
            clock.advance(length)
            until(lambda: database.value(ran) > begun, "slots are run")  # noqa: B023
            running.kill()
            meanwhile(step, running)
            if step % 2:
                running.start()
                until(lambda: due(database) == 0, "all that is due is run")
        until(lambda: due(database) == 0, "all that is due is run")


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("processes", "schedules"), [(4, 10), pytest.param(20, 200, marks=pytest.mark.whole)], ids=["few", "many"]
)
def test_each_slot_once(engine: Engine, database: Database, clock: Clock, processes: int, schedules: int) -> None:
    """Processes, a kill at each step of the clock, a clock that is set back in between: the slots of "all" run once
    each, in their schedule's order; of "last" and "skip" none runs twice, and the newest one on time.
    """
    queue = Queue(QUEUE)
    for number in range(schedules):
        queue.schedules.set(engine, "all", channel=f"c{number}", every=MINUTE, catch_up="all", payload=number)
        for rule in ("last", "skip"):
            if number % 2:
                queue.schedules.set(engine, rule, channel=f"c{number}", every=MINUTE, catch_up=rule)
    anchors = {(row.channel, row.name): row.anchor_at for row in database.rows("select * from fq_schedule")}

    def set_back(step: int, _: Killed) -> None:
        if step == 3:
            clock.advance(-7 * MINUTE)
            clock.advance(7 * MINUTE)

    work_through(database, clock, (processes, STEPS, 5 * MINUTE), set_back)
    ran = database.rows(
        "select s.channel, s.name, s.anchor_at, t.slot_at, t.message_id, t.schedule_id"
        " from fq_schedule_slot t join fq_schedule s on s.id = t.schedule_id order by s.id, t.slot_at"
    )
    messages = database.rows("select id from fq_message")
    assert Counter(row.message_id for row in ran) == Counter(row.id for row in messages)
    of_all = [row for row in ran if row.name == "all"]
    expected = {
        (f"c{number}", anchors[f"c{number}", "all"] + minute * microseconds(MINUTE))
        for number in range(schedules)
        for minute in range(1, SLOTS + 1)
    }
    assert len(of_all) >= schedules * SLOTS == len(expected)
    assert {(row.channel, row.slot_at) for row in of_all} >= expected
    assert max(Counter((row.channel, row.name, row.slot_at) for row in ran).values()) == 1
    for before, after in pairwise(of_all):
        assert before.schedule_id != after.schedule_id or before.message_id < after.message_id
    # Nothing was made up, either: each slot is a whole number of minutes after its schedule, and not in the future.
    now = instant_microseconds(clock.now())
    assert all((row.slot_at - row.anchor_at) % microseconds(MINUTE) == 0 and row.slot_at <= now for row in ran)
    for name in ("last", "skip"):
        assert len({row.channel for row in ran if row.name == name}) == schedules // 2
        assert len([row for row in ran if row.name == name]) < schedules // 2 * SLOTS
