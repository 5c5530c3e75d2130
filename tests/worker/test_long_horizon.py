"""The adapter for the independent harness keeps what its guide asks of adapters."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.database import Database
from tests.fixtures.options import PATIENCE
from tests.worker.helpers import until

_FOLDER = Path(__file__).parents[1] / "bench" / "long_horizon"
_REQUIRED = {"claim_p50_ms", "claim_p95_ms", "claim_p99_ms", "enqueue_rate", "completion_rate", "queue_depth"}
_LEFT = "select count(*) from fq_message"


@pytest.mark.parametrize("pacing", ["harness", pytest.param("adapter", marks=pytest.mark.whole)])
def test_it_works_until_sigterm(database: Database, pacing: str) -> None:
    """It enqueues as it is told, completes all, reports each second, and ends cleanly."""
    manifest = json.loads((_FOLDER / "adapter.json").read_text())
    environment = {
        "DATABASE_URL": database.url.set(drivername="postgres").render_as_string(hide_password=False),
        "PRODUCER_PACING": pacing,
        "PRODUCER_RATE": "100",
        "PRODUCER_BATCH_MAX": "8",
        "WORKER_COUNT": "4",
        "SAMPLE_EVERY_S": "1",
    }
    with subprocess.Popen(
        [sys.executable, str(_FOLDER / "adapter.py")],
        env=os.environ | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write("ENQUEUE 20\nENQUEUE 1\n")
        process.stdin.flush()
        descriptor = json.loads(process.stdout.readline())
        assert descriptor["kind"] == "descriptor"
        assert set(descriptor["event_tables"]) >= set(manifest["event_tables"])
        sampled: dict[str, float] = {}
        while not (sampled.keys() >= _REQUIRED and sampled["completion_rate"] > 0):
            record = json.loads(process.stdout.readline())
            assert record["system"] == manifest["system"]
            sampled[record["metric"]] = record["value"]
        if pacing == "harness":
            until(lambda: database.value(_LEFT) == 0, "it has worked off what it was told to enqueue")
        until(lambda: database.value("select count(*) from fq_channel") == 16, "it has enqueued to each tenant")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE.total_seconds()) == 0
        # The end of the input would have ended this.
        rest = process.stderr.read()
    assert "Traceback" not in rest
    for name in manifest["event_tables"] + manifest["event_indexes"]:
        assert database.value("select to_regclass(:name)", name=name) is not None
