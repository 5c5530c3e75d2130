"""Spark Connect: what a remote session can do, and what it says of the rest."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sqlalchemy_fairqueue.spark import archive
from tests.fixtures.database import Database
from tests.spark.recorded import DAY, NOON, add

pytest.importorskip(
    "grpc", reason="Spark Connect is tested where its client is installed: pip install pyspark[connect]"
)


@pytest.mark.long
def test_a_connect_session_reads_loads_and_replays(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    """The data source and the plain functions work over Connect as on a classic session; an archive can be read there,
    and made only on a classic one.
    """
    add(database, 50, finished=NOON - DAY)
    assert archive(spark, str(tmp_path / "archive"), dsn=database.conninfo).rows == 50
    command = [sys.executable, "-m", "tests.spark.over_connect", database.conninfo, str(tmp_path)]
    answer = subprocess.run(command, check=False, capture_output=True, text=True, timeout=110)
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout.splitlines()[-1])
    assert found.pop("archive").startswith("archives need a classic Spark session: Spark Connect gives no access")
    assert found == {
        "session": "pyspark.sql.connect.session",
        "history": 50,
        "loaded": [True, False],
        "messages": 60,
        "archived": 50,
        "ended": True,
        "followed": 50,
        "replayed": 100,
    }
