from datetime import timedelta

import pytest
from sqlalchemy import Engine

from sqlalchemy_fairqueue import Queue
from tests.cli.conftest import Cli
from tests.cli.stages import QUEUE, enqueue, lease


def test_pause_and_resume_a_queue(cli: Cli, engine: Engine) -> None:
    """A paused queue delivers nothing until it is resumed; doing either twice changes nothing and says so."""
    enqueue(engine, "a")

    first, again = cli("pause", "--json"), cli("pause", "--json")
    assert first.document == {"queue": "documents", "channel": None, "paused": True, "changed": True}
    assert again.document["changed"] is False
    assert lease(engine) == []

    assert cli("resume").out == "queue 'documents' is running now\n"
    assert cli("resume").out == "queue 'documents' was running already\n"
    assert len(lease(engine)) == 1


def test_pause_and_resume_a_channel(cli: Cli, engine: Engine) -> None:
    """A paused channel is passed by, and the others are served."""
    enqueue(engine, "a", "b")

    assert cli("pause", "a").out == "channel 'a' of queue 'documents' is paused now\n"
    assert [delivery.channel for delivery in lease(engine)] == ["b"]
    assert cli("resume", "a", "--json").document == {
        "queue": "documents", "channel": "a", "paused": False, "changed": True,
    }  # fmt: skip
    assert [delivery.channel for delivery in QUEUE.dequeue(engine, lease=timedelta(minutes=1))] == ["a"]


@pytest.mark.parametrize("command", ["pause", "resume"])
def test_what_is_not_there(cli: Cli, engine: Engine, command: str) -> None:
    """A channel or queue that is not there is not made: it may be a slip of the pen."""
    assert "has no queue yet" in cli(command).err
    enqueue(engine, "a")

    for words in (["b"], ["--queue", "documets"], ["a", "--queue", "documets"]):
        found = cli(command, *words, "--json")
        assert (found.status, found.error["kind"]) == (1, "not_found")
    assert cli("stats", "--json").document["queues"][0]["channels"] == 1


def test_which_queue(cli: Cli, engine: Engine) -> None:
    """With several queues one must be named: nothing is paused by luck."""
    enqueue(engine, "a")
    enqueue(engine, "a", queue=Queue("other"))

    found = cli("pause")

    assert found.status == 2
    assert "which queue? name one with --queue: 'documents', 'other'" in found.err
    assert cli("pause", "--queue", "other", "--json").document["queue"] == "other"
