"""``fairqueue usage``, what channels used in a month, from the history; and ``fairqueue history prune``."""

import csv
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine

from sqlalchemy_fairqueue import Queue
from tests.cli.conftest import Cli
from tests.cli.messages import QUEUE, enqueue, lease
from tests.fixtures.database import Database

MAILS = Queue("mails")


@pytest.fixture
def month(engine: Engine, database: Database) -> str:
    """A month in which an attempt failed, two messages of channel a and one of b in another queue were completed."""
    for queue in (QUEUE, MAILS):
        queue.configure(engine, history=True)
    enqueue(engine, "a, inc.", cost=3)
    QUEUE.retry(engine, lease(engine), delay=timedelta(0), error="no")
    enqueue(engine, "a, inc.", cost=4)
    QUEUE.complete(engine, lease(engine))
    enqueue(engine, "b", queue=MAILS, cost=5)
    MAILS.complete(engine, lease(engine, queue=MAILS))
    database.execute(
        "update fq_history set finished_at = extract(epoch from timestamptz '2024-02-29 23:59:59.999999Z') * 1000000"
    )
    database.execute("update fq_history set started_at = finished_at - 1500000")
    return "2024-02"


A = {"queue": "documents", "channel": "a, inc.", "messages": 2, "attempts": 3, "seconds": 4.5, "cost": 10}
B = {"queue": "mails", "channel": "b", "messages": 1, "attempts": 1, "seconds": 1.5, "cost": 5}


def test_a_month(cli: Cli, month: str) -> None:
    """Each channel has its messages, and the attempts, time and cost of all its attempts; others have none of them."""
    found = cli("usage", "--month", month, "--json").document
    assert found == {"month": month, "pruned_until": None, "channels": [A, B]}
    assert cli("usage", "--month", month, "--queue", "mails", "--json").document["channels"] == [B]
    for other in ("2024-01", "2024-03"):
        assert cli("usage", "--month", other, "--json").document["channels"] == []
    assert cli("usage").out == f"the history has no attempts of {datetime.now(UTC):%Y-%m}\n"


def test_csv(cli: Cli, month: str) -> None:
    """The same as comma-separated values, with a line of names."""
    lines = cli("usage", "--month", month, "--csv").out.splitlines()
    assert list(csv.DictReader(lines)) == [{name: str(value) for name, value in one.items()} for one in (A, B)]
    assert cli("usage", "--csv", "--json").status == 2


def test_what_is_pruned(cli: Cli, database: Database, month: str) -> None:
    """A month of which attempts were pruned says until when, so that nobody takes its numbers for all."""
    day = int(datetime(2024, 2, 9, tzinfo=UTC).timestamp()) * 1_000_000
    database.execute(
        "insert into fq_pruned_history (finished_from, finished_until, recorded_xid, history_id, pruned_at) "
        f"values ({day - 86_400_000_000}, {day}, '1', 1, {day})"
    )
    found = cli("usage", "--month", month, "--json")
    assert found.document["pruned_until"] == "2024-02-09T00:00:00+00:00"
    assert "attempts of 2024-02 before 2024-02-09 00:00:00 UTC are pruned" in found.err
    assert cli("usage", "--month", "2024-03", "--json").document["pruned_until"] is None


def test_what_there_is_not(cli: Cli) -> None:
    """A month or a queue that there is not is refused."""
    for words in (("--month", "2024-13"), ("--month", "last"), ("--queue", "nowhere")):
        assert cli("usage", *words).status in {1, 2}


def test_prune(cli: Cli, engine: Engine, database: Database) -> None:
    """Partitions are made for the days ahead, once, and those beyond the retention are dropped."""
    QUEUE.configure(engine, history=True, history_retention=timedelta(days=1))

    made = cli("history", "prune", "--ahead", "2", "--json").document["partitions"]
    assert [one["action"] for one in made] == ["made"] * 3
    assert cli("history", "prune", "--ahead", "2").out == "no partition of the history was to be made or dropped\n"

    day = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=9)
    old = f"fq_history_p{day:%Y%m%d}"
    start = int(day.timestamp()) * 1_000_000
    database.execute(
        f"create table {old} partition of fq_history for values from ({start}) to ({start + 86_400_000_000})"
    )
    dropped = cli("history", "prune", "--ahead", "2")
    assert [old, "dropped"] in dropped.rows()
    assert database.value("select to_regclass(:name)::text", name=old) is None
