from datetime import timedelta

import pytest
from sqlalchemy import Engine

from sqlalchemy_fairqueue import ChannelPolicy, Queue, Rate
from sqlalchemy_fairqueue.cli.policies import policy_document, policy_rows
from sqlalchemy_fairqueue.values.policies import POLICY
from tests.cli.conftest import Cli
from tests.cli.messages import QUEUE, enqueue
from tests.fixtures.connections import Connect
from tests.fixtures.database import Database
from tests.fixtures.waits import Waits
from tests.policies import SAMPLES, WORDS


def test_a_channel(cli: Cli, engine: Engine) -> None:
    """Each option of a channel's policy is set, and shown as it is now."""
    enqueue(engine, "a")

    found = cli(
        "configure", "channel", "a", "--max-concurrency", "4", "--rate", "10/s", "--burst", "5", "--weight", "3",
        "--max-backlog", "1000", "--on-full", "drop",
    )  # fmt: skip

    assert found.status == 0
    assert found.rows()[:7] == [
        ["channel 'a' of queue 'documents' is served like this now"],
        ["max concurrency", "4"], ["max cost out", "no limit"], ["rate", "10/s, burst 5"], ["weight", "3"],
        ["max backlog", "1,000"], ["on full", "drop"],
    ]  # fmt: skip
    [stats] = QUEUE.channels(engine, "a")
    assert (stats.max_concurrency, stats.rate, stats.weight, stats.max_backlog) == (4, Rate(10, burst=5), 3, 1000)


def test_each_field_has_an_option(cli: Cli, engine: Engine) -> None:
    """Every field of a policy can be set, for a channel, new ones and a plan, and is shown with every other."""
    for field, value in WORDS.items():
        one, name = ChannelPolicy(**{field: SAMPLES[field]}), field.replace("_", "-")
        cli("configure", "channel", field, f"--{name}", value, "--queue", "documents")
        assert [stats.policy for stats in QUEUE.channels(engine, field)] == [one]
        cli("configure", "queue", f"--channel-{name}", value, "--queue", f"all {field}")
        enqueue(engine, "new", queue=Queue(f"all {field}"))
        assert [stats.policy for stats in Queue(f"all {field}").channels(engine)] == [one]
        cli("configure", "plan", field, f"--{name}", value, "--queue", "documents")
        assert [plan.policy for plan in QUEUE.plans.list(engine, field)] == [one]
    assert [name for name, _ in policy_rows(ChannelPolicy(**SAMPLES))] == [name.replace("_", " ") for name in SAMPLES]
    shown = cli("configure", "channel", "weight", "--queue", "documents", "--json").document["policy"]
    assert shown.keys() == SAMPLES.keys()
    listed = cli("channels", "--queue", "documents", "--json").document["channels"][0]
    assert listed.keys() >= SAMPLES.keys()
    assert {field.replace("_", " ") for field in SAMPLES} <= set(cli("plans", "list", "--queue", "documents").rows()[0])


def test_idle_channels_are_forgotten(cli: Cli) -> None:
    """The time after which idle channels are forgotten is set, lifted and shown."""
    changed = cli("configure", "queue", "--queue", "documents", "--forget-channels-after", "7d")
    assert ["forget channels after", "7d"] in [row[:2] for row in changed.rows()]
    shown = cli("configure", "queue", "--queue", "documents", "--forget-channels-after", "none", "--json")
    assert shown.document["forget_channels_after_seconds"] is None


def test_a_concurrent_change_lasts(cli: Cli, engine: Engine, connect: Connect, waits: Waits) -> None:
    """A command that changes one field keeps what another transaction changes meanwhile."""
    QUEUE.configure_channel(engine, "a", weight=2)
    other = connect()
    QUEUE.configure_channel(other, "a", max_backlog=500)
    command = waits.start(lambda _: cli("configure", "channel", "a", "--weight", "7", "--json"))
    waits.until("select pid from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'")
    other.commit()
    assert command.result().document["policy"]["max_backlog"] == 500
    assert [stats.policy for stats in QUEUE.channels(engine)] == [ChannelPolicy(weight=7, max_backlog=500)]


def test_what_a_bound_would_do_is_shown(cli: Cli) -> None:
    """What was set is shown also where it does nothing yet."""
    assert ["on full", "drop"] in cli("configure", "channel", "a", "--queue", "documents", "--on-full", "drop").rows()


def test_what_is_not_named_stays(cli: Cli, engine: Engine) -> None:
    """An option changes what it names and nothing else."""
    QUEUE.configure_channel(engine, "a", ChannelPolicy(max_concurrency=4, weight=3, max_backlog=9, on_full="drop"))

    changed = cli("configure", "channel", "a", "--rate", "1/m", "--no-max-concurrency", "--json").document

    assert changed == {
        "queue": "documents", "channel": "a", "created": False, "changed": True,
        "policy": policy_document(ChannelPolicy()) | {
            "rate": {"interval_seconds": 60.0, "burst": 1, "of": "messages"}, "weight": 3, "max_backlog": 9,
            "on_full": "drop",
        },
        "plan": None, "overridden": ["max_concurrency", "rate"],
    }  # fmt: skip
    lifted = cli("configure", "channel", "a", "--no-max-backlog", "--rate", "none", "--json").document["policy"]
    assert lifted == policy_document(ChannelPolicy()) | {"weight": 3, "on_full": "drop"}


def test_show_a_channel(cli: Cli, engine: Engine) -> None:
    """Without an option nothing is changed: the policy is shown, or that there is no such channel."""
    enqueue(engine, "a")

    shown = cli("configure", "channel", "a", "--json").document
    assert (shown["changed"], shown["policy"]["weight"]) == (False, 1)
    assert cli("configure", "channel", "b").status == 1
    assert len(QUEUE.channels(engine)) == 1


def test_a_new_channel(cli: Cli, engine: Engine) -> None:
    """A channel that is not there is made, with the defaults of its queue where nothing else is named."""
    QUEUE.configure(engine, defaults=ChannelPolicy(weight=5, max_concurrency=2))

    made = cli("configure", "channel", "a", "--max-concurrency", "9", "--json").document

    assert made["created"]
    assert (made["policy"]["weight"], made["policy"]["max_concurrency"]) == (5, 9)


def test_a_queue(cli: Cli, engine: Engine) -> None:
    """Limit, history and the defaults of new channels are set apart: what is not named stays."""
    first = cli("configure", "queue", "--queue", "documents", "--max-concurrency", "50", "--json").document
    assert first == {
        "queue": "documents", "changed": True, "max_concurrency": 50, "max_cost_out": None, "rate": None,
        "limits": [], "history": False,
        "history_retention_seconds": None, "dead_letter_retention_seconds": None, "fair_by": "messages",
        "dead_letter_retention_seconds_by_kind": {}, "forget_channels_after_seconds": 2592000.0, "defaults": None,
        "default_plan": None, "result_retention_seconds": None, "on_dead": "continue",
        "on_dead_kinds": [],
    }  # fmt: skip

    rate = cli("configure", "queue", "--rate", "50/s", "--burst", "9", "--json").document["rate"]
    assert rate == {"interval_seconds": 0.02, "burst": 9, "of": "messages"}
    cli("configure", "queue", "--history", "--history-retention", "7d")
    assert QUEUE.stats(engine).rate == Rate(50, burst=9)
    cli("configure", "queue", "--rate", "none")
    assert QUEUE.stats(engine).rate is None
    cli("configure", "queue", "--channel-weight", "2", "--channel-rate", "5/s", "--channel-on-full", "drop")
    last = cli("configure", "queue", "--channel-max-backlog", "10", "--json").document

    assert (last["max_concurrency"], last["history"], last["history_retention_seconds"]) == (50, True, 604800.0)
    assert last["defaults"] == policy_document(ChannelPolicy()) | {
        "rate": {"interval_seconds": 0.2, "burst": 1, "of": "messages"}, "weight": 2, "max_backlog": 10,
        "on_full": "drop",
    }  # fmt: skip
    enqueue(engine, "new")
    [stats] = QUEUE.channels(engine)
    assert (stats.weight, stats.max_backlog) == (2, 10)


def test_what_a_queue_shares_by(cli: Cli) -> None:
    """It is set, shown and kept; another word is refused with those that there are."""
    shared = cli("configure", "queue", "--queue", "documents", "--fair-by", "cost", "--json").document
    assert (shared["changed"], shared["fair_by"]) == (True, "cost")
    assert ["fair by", "cost"] in cli("configure", "queue", "--max-concurrency", "9").rows()
    refused = cli("configure", "queue", "--fair-by", "weight")
    assert refused.status == 2
    assert "none of messages, cost and seconds" in " ".join(refused.err.split())


def test_history_on_and_off(cli: Cli, engine: Engine) -> None:
    """The retention outlives the history, and can be set beside either."""
    QUEUE.configure(engine, history=True, history_retention=timedelta(days=3))

    assert ["history retention", "3d"] in cli("configure", "queue", "--no-history").rows()
    off = cli("configure", "queue", "--json").document
    assert (off["history"], off["history_retention_seconds"]) == (False, 259200.0)
    on = cli("configure", "queue", "--history", "--json").document
    assert (on["history"], on["history_retention_seconds"]) == (True, 259200.0)
    longer = cli("configure", "queue", "--history-retention", "4d", "--json").document
    assert (longer["history"], longer["history_retention_seconds"]) == (True, 345600.0)


def test_retention_of_results(cli: Cli) -> None:
    """Results are kept for a time, or not at all."""
    changed = cli("configure", "queue", "--queue", "documents", "--result-retention", "1d", "--json").document
    assert changed["result_retention_seconds"] == 86_400.0
    assert ["result retention", "1d"] in cli("configure", "queue").rows()
    lifted = cli("configure", "queue", "--result-retention", "none", "--json").document
    assert lifted["result_retention_seconds"] is None


def test_retention_of_dead_letters(cli: Cli) -> None:
    """It is set for all kinds and for single ones, each apart, and shown."""
    option = "--dead-letter-retention"
    cli("configure", "queue", "--queue", "documents", option, "30d", option, "parse=1d", option, "k=v=2d")
    changed = cli("configure", "queue", "--dead-letter-retention", "parse=none", "--json").document
    assert changed["dead_letter_retention_seconds"] == 2_592_000.0
    assert changed["dead_letter_retention_seconds_by_kind"] == {"k=v": 172_800.0}
    assert ["dead letter retention of kind k=v", "2d"] in cli("configure", "queue").rows()
    lifted = cli("configure", "queue", "--dead-letter-retention", "none", "--json").document
    assert lifted["dead_letter_retention_seconds"] is None


def test_show_a_queue(cli: Cli, engine: Engine) -> None:
    """Without an option the settings are shown, for people and for programs."""
    enqueue(engine, "a")
    assert cli("configure", "queue").rows() == [
        ["queue 'documents'"], ["max concurrency", "no limit"], ["max cost out", "no limit"],
        ["rate", "no rate"], ["limits", "none"], ["fair by", "messages"], ["history", "no"],
        ["history retention", "30 days"],
        ["dead letter retention", "for ever"], ["result retention", "not at all"], ["forget channels after", "30d"],
        ["default plan", "none"], ["on dead", "continue"], ["on dead kinds", "none"],
        ["new channels take the policy that their first enqueue brings"],
    ]  # fmt: skip

    cli("configure", "queue", "--channel-weight", "2", "--history")
    shown = cli("configure", "queue").rows()
    assert ["history", "yes"] in shown
    assert shown[-len(SAMPLES) - 1 :] == [
        ["new channels start with"], *map(list, policy_rows(ChannelPolicy(weight=2)))
    ]  # fmt: skip
    assert cli("configure", "queue", "--json").document["changed"] is False


def test_no_limit_of_a_queue(cli: Cli, engine: Engine) -> None:
    """The limit of a queue is taken away by name."""
    QUEUE.configure(engine, max_concurrency=3)

    assert cli("configure", "queue", "--no-max-concurrency", "--json").document["max_concurrency"] is None
    assert QUEUE.stats(engine).max_concurrency is None


def test_none_lifts_every_limit(cli: Cli, engine: Engine) -> None:
    """The word none lifts what has a --no- option too: of a channel, of new ones, of the queue, of a shared limit."""
    enqueue(engine, "a")
    both = ["--max-concurrency", "3", "--max-backlog", "4"]
    for words in (["--max-concurrency", "none"], ["--no-max-concurrency", "--max-concurrency", "None"]):
        cli("configure", "channel", "a", *both)
        found = cli("configure", "channel", "a", *words, "--json")
        assert found.status == 0, found.err
        policy = found.document["policy"]
        assert (policy["max_concurrency"], policy["max_backlog"]) == (None, 4)
    for field in [name for name, definition in POLICY.items() if definition.none]:
        option = "--" + field.replace("_", "-")
        cli("configure", "channel", "a", option, WORDS[field])
        assert cli("configure", "channel", "a", option, "none", "--json").document["policy"][field] is None
    cli("configure", "queue", "--max-concurrency", "3", "--channel-max-concurrency", "2")
    words = ["--max-concurrency", "none", "--channel-max-concurrency", "none"]
    lifted = cli("configure", "queue", *words, "--json").document
    assert (lifted["max_concurrency"], lifted["defaults"]["max_concurrency"]) == (None, None)
    cli("configure", "limit", "api", "--max-concurrency", "3", "--rate", "1/s")
    [limit] = cli("configure", "limit", "api", "--max-concurrency", "none", "--json").document["limits"]
    assert limit["max_concurrency"] is None


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["channel", "a", "--max-concurrency", "0"], "max_concurrency is 0; give an int from 1"),
        (
            ["channel", "a", "--max-concurrency", "many"],
            "'many' is no whole number; give one from 1, or none: no limit",
        ),
        (["channel", "a", "--max-concurrency", "1", "--no-max-concurrency"], "contradict each other"),
        (["channel", "a", "--max-backlog", "1", "--no-max-backlog"], "contradict each other"),
        (["channel", "a", "--rate", "fast"], "'fast' is no rate"),
        (["channel", "a", "--on-full", "explode"], "'explode' is none of raise and drop"),
        (["channel", "a", "--weight", "100000"], "weight is 100000; give an int from 1 to 10000"),
        (["channel", "", "--weight", "1"], "channel '' has 0 bytes"),
        (["channel"], "CHANNEL"),
        (["queue", "--max-concurrency", "1", "--no-max-concurrency"], "contradict each other"),
        (["queue", "--history-retention", "1h"], "history_retention is"),
        (["queue", "--history-retention", "soon"], "'soon' is no duration"),
        (["queue", "--dead-letter-retention", "parse"], "'parse' is no duration"),
        (["queue", "--dead-letter-retention", "=1d"], "kind of dead_letter_retention '' has 0 bytes"),
        (["queue", "--channel-max-concurrency", "1", "--no-channel-max-concurrency"], "contradict each other"),
    ],
)
def test_bad_values(cli: Cli, database: Database, words: list[str], complaint: str) -> None:
    """A value that cannot be kept is named, and nothing is changed."""
    found = cli("configure", *words, "--queue", "documents", "--json")

    assert (found.status, found.error["kind"]) == (2, "usage")
    assert complaint in found.err
    assert database.value("select count(*) from fq_queue") == 0
    assert database.value("select count(*) from fq_channel") == 0


def test_queues_with_odd_names(cli: Cli, engine: Engine) -> None:
    """A queue can have any name, on the screen too."""
    name = "odd [red] \x1b[0m:name"
    cli("configure", "queue", "--queue", name, "--max-concurrency", "3")

    assert Queue(name).stats(engine).max_concurrency == 3
    assert cli("stats").rows()[2][0] == r"odd [red] \x1b[0m:name"


def test_a_queue_by_its_name(cli: Cli, engine: Engine) -> None:
    """The name of a queue stands where that of a channel does; another one by --queue is a contradiction."""
    cli("configure", "queue", "prompts", "--fair-by", "cost")
    enqueue(engine, "a")
    assert cli("configure", "queue", "prompts", "--json").document["fair_by"] == "cost"
    assert cli("configure", "queue", "prompts", "--queue", "prompts", "--json").document["queue"] == "prompts"
    assert cli("configure", "queue", "prompts", "--queue", "documents").status == 2
