"""A large group under chaos: workers are killed and backends terminated, and it is followed once, by exact counts."""

import json
import os
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

PROCESSES = 2
LARGE = int(os.environ.get("FAIRQUEUE_GROUP_MEMBERS", "100000"))
DAY = timedelta(days=1)
_TERMINATED = """
    select pg_terminate_backend(pid) from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
    order by md5(pid::text || :number) limit 2
"""


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("members", "faults"),
    [pytest.param(200, 3, marks=pytest.mark.whole), pytest.param(LARGE, 12, marks=pytest.mark.soak)],
)
def test_a_group_under_chaos(engine: Engine, database: Database, members: int, faults: int) -> None:
    """What follows it comes once, when all members have ended, and knows how each of them did."""
    # It is due when all is over, and stays to be counted.
    then = Enqueue(channel="reports", payload=0, kind="report", delay=DAY)
    with Session(engine) as session, session.begin(), queue.group(session, then=then) as group:
        receipts = group.enqueue_many(root(0) for _ in range(members))
    unlucky = sum(receipt.message_id is not None and receipt.message_id % 8 == 0 for receipt in receipts)
    engine.dispose()
    running: list[ForkServerProcess] = []

    def start() -> None:
        running.append(start_fork(main, database.url.render_as_string(hide_password=False)))

    def ended() -> int:
        return int(database.value("select done + failed from fq_group"))

    chance = random.Random(7)  # noqa: S311 - which one is killed
    try:
        for _ in range(PROCESSES):
            start()
        for number in range(1, faults + 1):
            part = members * number // (faults + 1)
            while ended() < part:
                before = ended()
                until(lambda: ended() > before, "some members have ended")  # noqa: B023
            if number % 2:
                end_fork(running.pop(chance.randrange(len(running))))
                start()
            else:
                database.rows(_TERMINATED, number=str(number))
        while database.value("select finished_at is null from fq_group"):
            before = ended()
            until(
                lambda: ended() > before or database.value("select finished_at is not null from fq_group"),  # noqa: B023
                "the group goes on",
            )
    finally:
        for program in running:
            end_fork(program)
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
