import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import Engine

from tests.cli.conftest import Cli
from tests.cli.messages import QUEUE, lease

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.mark.long
def test_from_a_file_to_a_report(cli: Cli, engine: Engine, spark: "SparkSession", tmp_path: Path) -> None:
    """A file is enqueued, once; what became of it is archived; a report is made of the archive, and of the history."""
    assert spark.version
    QUEUE.configure(engine, history=True)
    rows = [{"channel": f"customer-{number % 3}", "payload": {"page": number}} for number in range(9)]
    # Spark's current folder is that of the process, whatever folder a test is in.
    source, folder = str(tmp_path / "messages.json"), str(tmp_path / "archive")
    Path(source).write_text("\n".join(map(json.dumps, rows)))
    load = ("spark", "enqueue", source, "--format", "json", "--job-id", "march", "--queue", QUEUE.name, "--json")

    done = cli(*load)
    assert done.status == 0, done.err
    assert (done.document["queue"], done.document["created"], done.document["merged"]) == (QUEUE.name, 9, True)
    assert cli(*load).document["merged"] is False

    deliveries = lease(engine)
    assert sorted(delivery.payload["page"] for delivery in deliveries) == list(range(9))
    QUEUE.complete(engine, deliveries)

    archived = cli("spark", "archive", folder, "--today", "--json")
    assert archived.status == 0, archived.err
    assert archived.document["rows"] == 9
    assert cli("spark", "archive", folder, "--today").out.startswith("nothing new was to be archived")
    assert cli("spark", "compact", folder).out.startswith("no day has 2 files or more")
    QUEUE.enqueue(engine, channel="customer-0", payload={"page": 9})
    QUEUE.complete(engine, lease(engine))
    assert cli("spark", "archive", folder, "--today", "--json").document["rows"] == 1
    (day,) = cli("spark", "compact", folder, "--json").document["days"]
    assert (day["rows"], day["files"]) == (10, 2)

    for history in ([], ["--archive", folder]):
        report = ("report", "--engine", "spark", *history, "--out", "page.html", "--json")
        assert cli(*report, "--until", "1h").status == 1
        made = cli(*report, "--since", "1h", "--title", "All <of> it")
        assert made.status == 0, made.err
        (queue,) = made.document["queues"]
        assert (queue["queue"], queue["attempts"], queue["channels"]) == (QUEUE.name, 10, 3)
        assert {one["channel"] for one in made.document["channels"]} == {f"customer-{number}" for number in range(3)}
        assert all(one["policy"] for one in made.document["channels"])
        assert "All &lt;of&gt; it" in (tmp_path / "page.html").read_text()
    told = cli("report", "--engine", "spark", "--archive", folder, "--out", "page.html").out
    assert "the report is in page.html" in told


def test_csv_is_enqueued_as_it_was_written(cli: Cli, engine: Engine, spark: "SparkSession", tmp_path: Path) -> None:
    """As Python's csv module writes it; a file that cannot be read and rows with bad values enqueue nothing."""
    assert spark.version
    texts = ['he said "hi", then left', "line one\nline two, and more", '{"a": 1, "b": "x,y"}', "back\\slash"]
    source = tmp_path / "messages.csv"
    with source.open("w", newline="") as file:
        csv.writer(file).writerows([("channel", "payload"), *(("customer-1", text) for text in texts)])
    load = ("spark", "enqueue", str(source), "--format", "csv", "--queue", QUEUE.name, "--json")
    done = cli(*load)
    assert (done.status, done.document["created"]) == (0, 4), done.err
    deliveries = lease(engine)
    assert sorted(delivery.payload for delivery in deliveries) == sorted(texts)
    QUEUE.complete(engine, deliveries)

    source.write_text('channel,payload\na,1\na,"2\n')
    broken = cli(*load)
    assert (broken.status, "messages.csv cannot be read: line 3: unexpected end of data" in broken.err) == (5, True)
    source.write_text("channel,payload\na,1\na,\n")
    bad = cli(*load)
    assert (bad.status, "payload is null" in bad.err, "reject them with --rejects PATH" in bad.err) == (5, True, True)
    assert lease(engine) == []


def test_what_cannot_be_reported(cli: Cli, spark: "SparkSession", tmp_path: Path) -> None:
    """An empty history, a missing archive, a missing file and a bad setting are told in words."""
    assert spark.version
    report = ("report", "--engine", "spark", "--out", "page.html")
    empty = cli(*report)
    assert (empty.status, "the history has no attempts" in empty.err) == (1, True), empty.err
    missing = cli(*report, "--archive", str(tmp_path / "none"))
    assert (missing.status, "there is no archive at" in missing.err) == (1, True), missing.err
    lost = cli("spark", "enqueue", str(tmp_path / "none"), "--queue", QUEUE.name)
    assert (lost.status, "does not exist" in lost.err) == (1, True), lost.err
    setting = cli(*report, "--conf", "spark.master")
    assert (setting.status, "give NAME=VALUE" in setting.err) == (2, True), setting.err
    assert not (tmp_path / "page.html").exists()
