from uuid import uuid4

from sqlalchemy import Engine

from tests.cli.conftest import Cli
from tests.cli.messages import QUEUE, bury, enqueue_group, lease
from tests.fixtures.database import Database
from tests.groups.conftest import fold

OWN = ("--queue", "documents")


def test_list(cli: Cli, engine: Engine, database: Database) -> None:
    """Groups are listed with their counts, the newest first, by state and page by page."""
    first, second = enqueue_group(engine, "a", "a", then="reports"), enqueue_group(engine, then="reports")
    fold(database)
    found = cli("groups", "list", *OWN)
    assert found.rows()[0][:5] == ["id", "state", "members", "pending", "done"]
    assert [row[:4] for row in found.rows()[1:]] == [[second, "finished", "0", "0"], [first, "open", "2", "2"]]

    page = cli("groups", "list", *OWN, "--limit", "1", "--json").document
    assert ([one["group_id"] for one in page["groups"]], page["more"]) == ([second], True)
    assert f"--after {second}" in cli("groups", "list", *OWN, "--limit", "1").out
    rest = cli("groups", "list", *OWN, "--after", second, "--json").document
    assert ([one["group_id"] for one in rest["groups"]], rest["more"]) == ([first], False)
    of_state = [
        [one["group_id"] for one in cli("groups", "list", *OWN, "--state", state, "--json").document["groups"]]
        for state in ("open", "finished")
    ]
    assert of_state == [[first], [second]]
    assert cli("groups", "list", "--queue", "mails").out == "queue 'mails' has no groups\n"


def test_show(cli: Cli, engine: Engine, database: Database) -> None:
    """One group is shown with what has become of its members, also before a worker has counted them."""
    group = enqueue_group(engine, "a", "a", then="reports")
    done, failed = lease(engine, 2)
    QUEUE.complete(engine, [done])
    QUEUE.bury(engine, [failed], reason="cannot be read")
    before = cli("groups", "show", group, *OWN, "--json").document
    assert (before["state"], before["total"], before["pending"], before["done"], before["failed"]) == (
        "open", 2, 0, 1, 1,
    )  # fmt: skip
    fold(database)
    after = cli("groups", "show", group, *OWN, "--json").document
    [follows] = lease(engine)
    assert (after["state"], after["message_id"], after["problem"]) == ("finished", follows.message_id, None)
    assert ["follow-up", str(follows.message_id)] in cli("groups", "show", group, *OWN).rows()


def test_cancel(cli: Cli, engine: Engine, database: Database) -> None:
    """It asks first. Members that wait are withdrawn; those that consumers hold are told of."""
    group = enqueue_group(engine, "a", "a", "a", then="reports")
    lease(engine, 1)
    assert cli("groups", "cancel", group, *OWN).status == 2
    assert cli("groups", "cancel", group, *OWN, answer="n\n").status == 1
    assert QUEUE.groups.status(engine, group).pending == 3
    found = cli("groups", "cancel", group, *OWN, answer="y\n")
    assert found.out == f"2 members of group {group} cancelled; consumers hold 1, and are told\n"
    again = cli("groups", "cancel", group, *OWN, "--yes", "--json").document
    assert (again["group_id"], again["cancelled"], again["leased"]) == (group, 0, 0)
    fold(database)
    assert cli("groups", "show", group, *OWN, "--json").document["cancelled"] == 2


def test_unknown(cli: Cli, engine: Engine) -> None:
    """An id that is none, or of no group of the queue, is told, and changes nothing."""
    bury(engine, "a")
    for words in (("show",), ("cancel", "--yes"), ("list", "--after")):
        name, *options = words
        assert cli("groups", name, *options, "7", *OWN).status == 2
        unknown = cli("groups", name, *options, str(uuid4()), *OWN)
        assert unknown.status == 1
        assert "'fairqueue groups list --queue documents' shows them" in unknown.err
