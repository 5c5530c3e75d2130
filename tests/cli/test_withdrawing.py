from datetime import timedelta

from sqlalchemy import Engine

from tests.cli.conftest import Cli
from tests.cli.stages import QUEUE, enqueue, lease


def test_cancel(cli: Cli, engine: Engine) -> None:
    """Each message is told apart: withdrawn, in a consumer's hands, or not there, which is status 1."""
    out, waiting = enqueue(engine, "a", "b")
    lease(engine, 1)

    found = cli("cancel", str(waiting), str(out), "999", "--json")

    assert found.status == 1
    assert found.document == {
        "queue": "documents",
        "messages": [
            {"message_id": waiting, "outcome": "cancelled"},
            {"message_id": out, "outcome": "leased"},
            {"message_id": 999, "outcome": "missing"},
        ],
    }
    assert lease(engine) == []


def test_cancel_in_words(cli: Cli, engine: Engine) -> None:
    """Withdrawing what is there is status 0, and says what became of it."""
    [message_id] = enqueue(engine, "a")

    found = cli("cancel", str(message_id))

    assert (found.status, found.rows()) == (0, [["id", "outcome"], [str(message_id), "withdrawn"]])
    assert cli("cancel", "0").status == 2
    assert cli("cancel").status == 2


def test_purge(cli: Cli, engine: Engine) -> None:
    """A channel is emptied of what is not delivered after a question that tells how much that is."""
    enqueue(engine, "a", "a", "a", "b")
    enqueue(engine, "a", delay=timedelta(hours=1))
    lease(engine, 1)

    declined = cli("purge", "a", answer="no\n")
    assert declined.status == 1
    assert "delete 3 undelivered messages of channel 'a' of queue 'documents' for good? [y/N]" in declined.err

    assert cli("purge", "a", "--yes", "--json").document == {"queue": "documents", "channel": "a", "purged": 3}
    assert [(one.channel, one.ready, one.scheduled, one.leased) for one in QUEUE.channels(engine)] == [
        ("a", 0, 0, 1), ("b", 1, 0, 0),
    ]  # fmt: skip
    assert cli("purge", "a").out.startswith("0 messages of channel 'a' of queue 'documents' deleted")


def test_purge_needs_an_answer(cli: Cli, engine: Engine) -> None:
    """Where nobody can answer nothing is deleted; a channel that is not there is told."""
    enqueue(engine, "a")

    assert cli("purge", "a").status == 2
    assert cli("purge", "x", "--yes").status == 1
    assert QUEUE.stats(engine).ready == 1
