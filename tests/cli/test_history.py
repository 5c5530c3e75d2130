from datetime import UTC, datetime, timedelta

from sqlalchemy import Engine

from tests.cli.conftest import Cli
from tests.cli.messages import QUEUE
from tests.fixtures.database import Database


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
