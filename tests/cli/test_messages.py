from datetime import timedelta

import pytest
from sqlalchemy import Engine

from tests.cli.conftest import Cli
from tests.cli.messages import ODD_NAMES, QUEUE, bury, enqueue, lease


def test_list(cli: Cli, engine: Engine) -> None:
    """The messages of a channel are listed with their states."""
    held, ready = enqueue(engine, "a", "a")
    assert [one.message_id for one in lease(engine, 1)] == [held]
    [later] = enqueue(engine, "a", delay=timedelta(hours=1), kind="print", key="k")

    found = cli("messages", "list", "a")
    assert found.rows()[0] == ["id", "state", "kind", "key", "attempts", "due (UTC)", "consumer", "error"]
    assert [row[:2] for row in found.rows()[1:]] == [
        [str(held), "leased"], [str(ready), "ready"], [str(later), "scheduled"],
    ]  # fmt: skip
    document = cli("messages", "list", "a", "--json", "--limit", "1").document
    assert [one["message_id"] for one in document["messages"]] == [held, ready]
    assert cli("messages", "list", "nobody").out == "channel 'nobody' of queue 'documents' has no messages\n"


def test_show(cli: Cli, engine: Engine) -> None:
    """One message is shown with its payload, its place, and the reason for which it waits."""
    first, second = enqueue(engine, "a", "a", payload={"page": 7})

    def reason(message_id: int = second) -> object:
        return cli("messages", "show", str(message_id), "--json").document["waits_for"]

    document = cli("messages", "show", str(second), "--json").document
    assert (document["state"], document["place"], document["payload"]) == ("ready", 2, '{"page": 7}')
    assert reason() == "no consumer"
    lease(engine, 1)
    assert reason(first) is None
    assert ["place in its channel", "1"] in cli("messages", "show", str(second)).rows()
    QUEUE.configure_channel(engine, "a", max_concurrency=1)
    assert reason() == "own limit"
    QUEUE.pause(engine, "a")
    assert reason() == "paused"
    QUEUE.pause(engine)
    assert reason() == "queue paused"
    [later] = enqueue(engine, "a", delay=timedelta(hours=1))
    assert reason(later) == "its time"


def test_one_that_is_not_there(cli: Cli, engine: Engine) -> None:
    """The command says where else it may be."""
    [dead] = bury(engine, "a")
    found = cli("messages", "show", str(dead))
    assert found.status == 1
    assert f"'fairqueue dead show {dead}'" in found.err


def test_cancel(cli: Cli, engine: Engine) -> None:
    """Messages are withdrawn here too."""
    [message_id] = enqueue(engine, "a")
    assert cli("messages", "cancel", str(message_id)).status == 0
    assert QUEUE.message(engine, message_id) is None


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names(cli: Cli, engine: Engine, name: str) -> None:
    """Nothing of a name is taken for markup, a terminal's control or SQL."""
    [message_id] = enqueue(engine, name, kind=name, key=name)
    assert cli("messages", "list", name).status == 0
    found = cli("messages", "show", str(message_id), "--json").document
    assert (found["channel"], found["kind"], found["key"]) == (name, name, name)
    assert "\x1b" not in cli("messages", "show", str(message_id)).out
