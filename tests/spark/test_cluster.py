"""A load goes on when the executors of a cluster are killed: their tasks are tried again on others."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.conftest import Target
from tests.spark.staged_loads import stages


@pytest.mark.long
@pytest.mark.timeout(500)
def test_every_executor_is_killed(target: Target, tmp_path: Path) -> None:
    """One had staged its rows and one was copying: each row is enqueued once by each job, and the stages are gone."""
    rows = 2_000
    command = [sys.executable, "-m", "tests.spark.cluster", target.queue, str(rows), str(tmp_path)]
    environment = os.environ | {"QUEUE_DSN": target.database.conninfo}
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
    assert json.loads(said.splitlines()[-1]) == [rows, rows]
    assert len((tmp_path / "killed").read_text(encoding="utf-8").split()) == 4
    documents = target.database.rows(
        "select (convert_from(content, 'UTF8')::jsonb -> 'document')::bigint as document, count(*) as times"
        " from fq_message group by 1 order by 1"
    )
    assert [(row.document, row.times) for row in documents] == [(number, 2) for number in range(rows)]
    assert stages(target.database) == 0
    loads = target.database.rows("select job_id, messages, created from fq_load order by job_id")
    assert [tuple(row) for row in loads] == [("format", rows, rows), ("function", rows, rows)]
