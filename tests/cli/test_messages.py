import re
from datetime import timedelta

from sqlalchemy import Engine

from tests.cli.conftest import Cli
from tests.cli.messages import QUEUE, bury, enqueue, lease


def test_list(cli: Cli, engine: Engine) -> None:
    """The messages of a channel are listed with their states."""
    held, ready = enqueue(engine, "a", "a")
    assert [one.message_id for one in lease(engine, 1)] == [held]
    [later] = enqueue(engine, "a", delay=timedelta(hours=1), kind="print", key="k")

    found = cli("messages", "list", "a")
    assert [row[:2] for row in found.rows()[1:]] == [
        [str(held), "leased"], [str(ready), "ready"], [str(later), "scheduled"],
    ]  # fmt: skip
    document = cli("messages", "list", "a", "--json", "--limit", "2").document
    assert [one["message_id"] for one in document["messages"]] == [held, ready]
    rest = cli("messages", "list", "a", "--json", "--after", document["next"]).document
    assert ([one["message_id"] for one in rest["messages"]], rest["next"]) == ([later], None)
    assert cli("messages", "list", "nobody").out == "channel 'nobody' of queue 'documents' has no messages\n"


def test_show(cli: Cli, engine: Engine) -> None:
    """One message is shown with its payload, how many come before it, and the reason for which it waits."""
    first, second = enqueue(engine, "a", "a", payload={"page": 7})

    document = cli("messages", "show", str(second), "--json").document
    assert (document["state"], document["messages_ahead"], document["payload"]) == ("ready", 1, '{"page": 7}')
    assert document["waits_for"] == "no consumer"
    lease(engine, 1)
    assert cli("messages", "show", str(first), "--json").document["waits_for"] is None
    assert ["messages ahead", "0"] in cli("messages", "show", str(second)).rows()


def test_one_that_is_not_there(cli: Cli, engine: Engine) -> None:
    """The command says where else it may be."""
    [dead] = bury(engine, "a")
    found = cli("messages", "show", str(dead))
    assert found.status == 1
    assert f"'fairqueue dead show {dead} --queue documents'" in found.err


def test_a_result(cli: Cli, engine: Engine) -> None:
    """Of a message that has ended the result is shown, or why there is none."""
    QUEUE.configure(engine, result_retention=timedelta(days=1))
    first, second, third = enqueue(engine, "a", "a", "a", kind="parse")
    QUEUE.complete(engine, lease(engine, 1), result={"pages": ["köln"]})
    QUEUE.complete(engine, lease(engine, 1))
    QUEUE.cancel(engine, third)

    shown = cli("messages", "show", str(first), "--json").document
    assert (shown["state"], shown["channel"], shown["kind"]) == ("completed", "a", "parse")
    assert shown["result"] == '{"pages": ["köln"]}'
    assert shown["expires_at"] is not None
    assert "köln" in cli("messages", "show", str(first)).out
    assert cli("messages", "show", str(second), "--json").document["result"] == "null"
    gone = cli("messages", "show", str(third), "--json").document
    assert (gone["state"], gone["result"]) == ("cancelled", None)


def test_one_that_has_ended(cli: Cli, engine: Engine) -> None:
    """Where the queue records its history, a message that is done says when it ended, after which attempts."""
    QUEUE.configure(engine, history=True)
    [done] = enqueue(engine, "a", kind="report")
    QUEUE.retry(engine, lease(engine, 1), delay=timedelta(0), error="TimeoutError: host 1")
    QUEUE.complete(engine, lease(engine, 1))
    found = cli("messages", "show", str(done))
    assert re.match(r"completed at \d{4}-.* UTC, 2 attempts, ran \d", found.out)
    assert any(row[:2] == ["1", "retried"] and row[-1] == "TimeoutError: host 1" for row in found.rows())
    document = cli("messages", "show", str(done), "--json").document
    assert (document["state"], document["channel"], document["kind"]) == ("completed", "a", "report")
    assert document["finished_at"] == document["history"][-1]["finished_at"]
    assert [one["outcome"] for one in document["history"]] == ["retried", "completed"]

    [cancelled] = enqueue(engine, "b")
    deliveries = lease(engine, 1)
    QUEUE.cancel(engine, cancelled)
    QUEUE.release(engine, deliveries)
    assert cli("messages", "show", str(cancelled), "--json").document["state"] == "cancelled"
    [purged] = enqueue(engine, "b")
    QUEUE.release(engine, lease(engine, 1))
    QUEUE.purge(engine, "b")
    found = cli("messages", "show", str(purged))
    assert re.match(r"released at .* UTC, \d attempts?, ran .*; withdrawn or purged since", found.out)

    def listed(*words: str) -> list[int]:
        document = cli("messages", "list", *words, "--json").document
        return [message["message_id"] for message in document["messages"]]

    [later] = enqueue(engine, "c")
    QUEUE.complete(engine, lease(engine, 1))
    assert listed("--state", "completed") == [later, done]
    assert listed("a", "--state", "completed") == [done]
    assert listed("--state", "completed", "--kind", "report") == [done]
    assert listed("--state", "cancelled") == [cancelled]
    first = cli("messages", "list", "--state", "completed", "--limit", "1", "--json").document
    assert listed("--state", "completed", "--after", first["next"]) == [done]
    assert "records one" in cli("messages", "list", "d", "--state", "completed").out
    assert cli("messages", "list", "a", "--state", "completed", "--key", "k").status == 2


def test_list_by_filters(cli: Cli, engine: Engine) -> None:
    """The whole queue is listed with its channels, by state, kind and key, page by page."""
    [held] = enqueue(engine, "a")
    lease(engine, 1)
    [ready] = enqueue(engine, "b", kind="print", key="k")
    [later] = enqueue(engine, "c", delay=timedelta(hours=1))

    def found(*words: str) -> list[int]:
        return [one["message_id"] for one in cli("messages", "list", *words, "--json").document["messages"]]

    assert found() == [held, ready, later]
    assert found("--state", "leased") == [held]
    assert found("--state", "scheduled") == [later]
    assert found("--kind", "print") == found("b", "--key", "k") == [ready]
    listed = cli("messages", "list", "--limit", "1")
    assert listed.rows()[0][:3] == ["id", "state", "channel"]
    assert f"--after=3.{queue_position(engine, held)}.{held}" in listed.out
    assert cli("messages", "list", "--kind", "none").out == "queue 'documents' has no such messages\n"
    assert cli("messages", "list", "--key", "k").status == 2
    assert cli("messages", "list", "--after", "7").status == 2


def queue_position(engine: Engine, message_id: int) -> object:
    """The position of a message in its channel."""
    with engine.connect() as connection:
        return connection.exec_driver_sql(f"select dequeue_at from fq_message where id = {message_id}").scalar_one()


def test_move(cli: Cli, engine: Engine) -> None:
    """Messages are put into another channel; the exit status says whether all of them are there."""
    one, two = enqueue(engine, "a", "a")
    document = cli("messages", "move", str(one), str(two), "--to", "b", "--json").document
    assert [entry["outcome"] for entry in document["messages"]] == ["moved", "moved"]
    assert cli("messages", "move", str(one), "--to", "b").status == 0
    lease(engine, 1)
    moved = cli("messages", "move", str(one), str(two), str(two + 1), "--to", "c")
    outcomes = [row[1].partition(":")[0] for row in moved.rows()[1:]]
    assert (moved.status, outcomes) == (1, ["stays", "moved", "not there"])


def test_retry(cli: Cli, engine: Engine) -> None:
    """Messages are due at once; dead ones are redriven; the exit status says whether all of them will be tried."""
    [later] = enqueue(engine, "a", delay=timedelta(hours=1))
    [dead] = bury(engine, "b")
    found = cli("messages", "retry", str(later), str(dead), "--json")
    assert found.status == 0
    assert [one["outcome"] for one in found.document["messages"]] == ["due", "redriven"]
    lease(engine, 1)
    again = cli("messages", "retry", str(later), str(dead), str(dead + 1))
    outcomes = sorted(row[1].partition(":")[0] for row in again.rows()[1:])
    assert (again.status, outcomes) == (1, ["a consumer has it", "not there", "was due already"])


def test_show_attempts(cli: Cli, engine: Engine) -> None:
    """A failed message is shown with its attempts, and its traceback line by line; so is a dead letter."""
    QUEUE.configure(engine, history=True)
    [message_id] = enqueue(engine, "a")
    error = "Traceback (most recent call last):\n  File \x1b[2J\nValueError: odd"
    QUEUE.retry(engine, lease(engine, 1), delay=timedelta(hours=1), error=error)
    found = cli("messages", "show", str(message_id))
    assert found.out.splitlines()[-2:] == [r"  File \x1b[2J", "ValueError: odd"]
    assert any(row[:2] == ["1", "retried"] and row[-1] == "ValueError: odd" for row in found.rows())
    document = cli("messages", "show", str(message_id), "--json").document
    assert (document["waits_for"], document["waits_until"]) == ("scheduled", document["due_at"])
    [attempt] = document["history"]
    assert (attempt["attempt"], attempt["outcome"], attempt["error"]) == (1, "retried", error)

    cli("messages", "retry", str(message_id))
    QUEUE.bury(engine, lease(engine, 1), reason="bad", error="TypeError: worse")
    assert "ValueError: odd" in cli("dead", "show", str(message_id)).out
    attempts = cli("dead", "show", str(message_id), "--json").document["history"]
    assert [one["outcome"] for one in attempts] == ["retried", "buried"]


def test_by_name(cli: Cli, engine: Engine) -> None:
    """Messages are shown, retried and cancelled by their channel with a key or an ordering key."""
    first, second = enqueue(engine, "a", "a", ordering_key="s", delay=timedelta(hours=1))
    [keyed] = enqueue(engine, "a", key="k")
    in_order, by_key = ["--channel", "a", "--ordering-key", "s"], ["--channel", "a", "--key", "k"]

    assert cli("messages", "show", *in_order, "--json").document["message_id"] == first
    assert cli("messages", "show", *by_key, "--json").document["message_id"] == keyed
    retried = cli("messages", "retry", *in_order, "--json").document["messages"]
    assert retried == [{"message_id": first, "outcome": "due"}]

    cancelled = cli("messages", "cancel", *in_order, "--json").document["messages"]
    assert sorted(one["message_id"] for one in cancelled) == [first, second]
    assert {one["outcome"] for one in cancelled} == {"cancelled"}
    again = cli("messages", "cancel", *in_order, "--json")
    assert (again.status, again.document["messages"]) == (1, [{"message_id": None, "outcome": "missing"}])
    assert cli("messages", "retry", *in_order).status == 1
    shown = cli("messages", "show", *in_order, "--json")
    assert (shown.status, shown.error["kind"]) == (1, "not_found")
    assert cli("messages", "show", *by_key).status == 0


def test_an_id_or_a_name(cli: Cli, engine: Engine) -> None:
    """A message is named by its id, or by its channel with a key; anything else is a bad command line."""
    assert enqueue(engine, "a", key="k") != []
    for command in ("show", "retry", "cancel"):
        for words in ([], ["--channel", "a"], ["--key", "k"], ["1", "--channel", "a", "--key", "k"]):
            found = cli("messages", command, *words, "--json")
            assert (found.status, found.error["kind"]) == (2, "usage")
    assert len(lease(engine)) == 1
