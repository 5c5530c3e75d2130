"""Workers that are killed while they work on groups: what follows each comes once, after its last member, counted."""

import json
import os
from datetime import timedelta

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Enqueue
from tests.fixtures.database import Database
from tests.fixtures.forks import killed
from tests.groups.program import main, queue, work
from tests.worker.helpers import until

GROUPS, DEPTH = 6, 3
MEMBERS = 2 ** (DEPTH + 1) - 1
LARGE = int(os.environ.get("FAIRQUEUE_GROUP_MEMBERS", "100000"))
# It is due when all is over, and stays to be counted.
THEN = Enqueue(channel="reports", payload=0, kind="report", delay=timedelta(days=1))
_FINISHED = "select count(*) from fq_group where finished_at is not null"
_TERMINATED = """
    select pg_terminate_backend(pid) from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
    order by md5(pid::text || :number) limit 2
"""


@pytest.mark.timeout(180)
def test_killed_workers(engine: Engine, database: Database) -> None:
    """Two workers, one killed and replaced again and again: each group has all of its members and one follow-up."""
    ids = []
    for _ in range(GROUPS):
        with Session(engine) as session, session.begin(), queue.group(session, then=THEN) as group:
            group.enqueue_many([work.prepare("a", depth=DEPTH)])
        ids.append(group.id)
    with killed(database.url, 2, 7, main) as workers:
        for _ in range(3):
            notes = "select sum(added) from fq_group"
            before = database.value(notes)
            until(lambda: database.value(notes) > before or database.value(_FINISHED) == GROUPS, "some were added")  # noqa: B023
            workers.kill()
            workers.start()
        until(lambda: database.value(_FINISHED) == GROUPS, "all groups are finished")
    reports = database.rows(
        "select id, headers::jsonb->'after_group'->>'id' as group_id from fq_message where kind = 'report'"
    )
    states = [queue.groups.status(engine, group_id) for group_id in ids]
    assert sorted(row.group_id for row in reports) == sorted(map(str, ids))
    assert {(one.total, one.done + one.failed, one.pending) for one in states} == {(MEMBERS, MEMBERS, 0)}
    assert sum(one.failed for one in states) == database.value("select count(*) from fq_dead_letter")


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("members", "faults"),
    [pytest.param(200, 3, marks=pytest.mark.whole), pytest.param(LARGE, 12, marks=pytest.mark.soak)],
)
def test_a_group_under_chaos(engine: Engine, database: Database, members: int, faults: int) -> None:
    """Workers are killed and backends terminated: what follows comes once, when all members have ended, and knows how
    each of them did.
    """
    with Session(engine) as session, session.begin(), queue.group(session, then=THEN) as group:
        receipts = group.enqueue_many(work.prepare("a", depth=0) for _ in range(members))
    unlucky = sum(receipt.message_id is not None and receipt.message_id % 8 == 0 for receipt in receipts)
    engine.dispose()

    def ended() -> int:
        return int(database.value("select done + failed from fq_group"))

    with killed(database.url, 2, 7, main) as workers:
        for number in range(1, faults + 1):
            while (before := ended()) < members * number // (faults + 1):
                until(lambda: ended() > before, "some members have ended")
            if number % 2:
                workers.kill()
                workers.start()
            else:
                database.rows(_TERMINATED, number=str(number))
        while not database.value(_FINISHED):
            before = ended()
            until(lambda: ended() > before or database.value(_FINISHED), "the group goes on")  # noqa: B023
    status = queue.groups.status(engine, group.id)
    assert (status.total, status.done, status.failed) == (members, members - unlucky, unlucky)
    assert (status.cancelled, status.pending) == (0, 0)
    [report] = database.rows("select id, headers::text as headers from fq_message")
    assert report.id == status.message_id
    assert json.loads(report.headers)["after_group"] == {
        "id": str(group.id), "total": members, "done": members - unlucky, "failed": unlucky, "cancelled": 0,
    }  # fmt: skip
    assert database.value("select count(*) from fq_dead_letter") == unlucky
    assert database.value("select count(*) from fq_group_note") == 0
