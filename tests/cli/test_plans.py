"""``plans``, ``configure channel --plan`` and ``configure queue --default-plan``."""

from sqlalchemy import Engine

from tests.cli.conftest import Cli
from tests.cli.messages import QUEUE, enqueue


def test_plans(cli: Cli, engine: Engine) -> None:
    """A plan is made, changed, followed, shown and removed; what is not named stays."""
    cli("configure", "plan", "gold", "--weight", "5", "--rate", "100/min", "--burst", "10", "--queue", "documents")
    [made] = cli("configure", "plan", "gold", "--max-backlog", "9", "--default", "--json").document["plans"]
    assert (made["channels"], made["is_default"], made["spread"]) == (0, True, True)
    assert (made["policy"]["weight"], made["policy"]["max_backlog"]) == (5, 9)
    enqueue(engine, "a")
    changed = cli("configure", "channel", "b", "--plan", "gold", "--weight", "7", "--json").document
    assert (changed["plan"], changed["overridden"], changed["policy"]["max_backlog"]) == ("gold", ["weight"], 9)
    headings, row = cli("plans", "list").rows()
    shown = dict(zip(headings, row, strict=True))
    assert (shown.pop("plan"), shown.pop("channels"), shown.pop("state")) == ("gold", "2", "default")
    set_ = {"rate": "100/m, burst 10", "weight": "5", "max backlog": "9", "on full": "raise"}
    assert shown == dict.fromkeys(shown, "-") | set_
    assert cli("configure", "channel", "b", "--reset", "weight", "--json").document["policy"]["weight"] == 5
    assert ["plan", "gold"] in cli("configure", "channel", "b").rows()
    assert [one["plan"] for one in cli("channels", "--json").document["channels"]] == ["gold", "gold"]
    refused = cli("plans", "remove", "gold")
    assert refused.status == 2
    assert "the plan gold is the default plan of queue documents" in refused.err
    assert cli("configure", "queue", "--no-default-plan", "--json").document["default_plan"] is None
    for channel in "ab":
        cli("configure", "channel", channel, "--no-plan")
    assert "has no plans" in cli("plans", "remove", "gold").out
    assert [one.weight for one in QUEUE.channels(engine)] == [5, 5]


def test_refusals(cli: Cli, engine: Engine) -> None:
    """What contradicts itself is refused; what does not exist is said to."""
    enqueue(engine, "a")
    for words in (
        ["configure", "channel", "a", "--plan", "gold", "--no-plan"],
        ["configure", "channel", "a", "--plan", "gold"],
        ["configure", "channel", "a", "--reset", "wait"],
        ["configure", "queue", "--default-plan", "gold"],
        ["configure", "plan", "gold", "--max-backlog", "1", "--no-max-backlog"],
    ):
        assert cli(*words).status == 2, words
    assert cli("configure", "plan", "gold").status == 1
    assert cli("plans", "remove", "gold").status == 1
