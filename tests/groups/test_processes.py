"""Workers that are killed while they work on groups: what follows each comes once, and after its last member."""

import random
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Enqueue
from tests.fixtures.database import Database
from tests.fixtures.forks import end_fork, start_fork
from tests.groups.program import main, queue, root
from tests.worker.helpers import until

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerProcess

GROUPS, DEPTH, PROCESSES = 6, 3, 2
DAY = timedelta(days=1)
MEMBERS = 2 ** (DEPTH + 1) - 1


@pytest.mark.timeout(180)
def test_killed_workers(engine: Engine, database: Database) -> None:
    """Two workers, one killed and replaced again and again: each group has all of its members and one follow-up."""
    running: list[ForkServerProcess] = []

    def start() -> None:
        running.append(start_fork(main, database.url.render_as_string(hide_password=False)))

    def finished() -> int:
        return int(database.value("select count(*) from fq_group where finished_at is not null"))

    ids = []
    for number in range(GROUPS):
        # It is due when all is over, and stays to be counted.
        then = Enqueue(channel="reports", payload=number, kind="report", delay=DAY)
        with Session(engine) as session, session.begin(), queue.group(session, then=then) as group:
            group.enqueue_many([root(DEPTH)])
        ids.append(group.id)
    chance = random.Random(7)  # noqa: S311 - which one is killed
    try:
        for _ in range(PROCESSES):
            start()
        for _ in range(3):
            notes = "select sum(added) from fq_group"
            before = database.value(notes)
            until(lambda: database.value(notes) > before or finished() == GROUPS, "some members were added")  # noqa: B023
            end_fork(running.pop(chance.randrange(len(running))))
            start()
        until(lambda: finished() == GROUPS, "all groups are finished")
    finally:
        for program in running:
            end_fork(program)
    reports = database.rows("select convert_from(content, 'UTF8')::int as number from fq_message where kind = 'report'")
    assert sorted(row.number for row in reports) == list(range(GROUPS))
    for group_id in ids:
        status = queue.groups.status(engine, group_id)
        assert (status.total, status.done + status.failed, status.pending) == (MEMBERS, MEMBERS, 0)
    failed = sum(queue.groups.status(engine, group_id).failed for group_id in ids)
    assert failed == database.value("select count(*) from fq_dead_letter")
