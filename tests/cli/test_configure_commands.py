from datetime import timedelta

from sqlalchemy import Engine

from sqlalchemy_fairqueue import ChannelPolicy, Queue, Rate
from sqlalchemy_fairqueue.cli.policies import policy_document, policy_rows
from sqlalchemy_fairqueue.values.policies import POLICY
from tests.cli.conftest import Cli
from tests.cli.messages import QUEUE, enqueue, lease
from tests.fixtures.connections import Connect
from tests.fixtures.database import Database
from tests.fixtures.waits import Waits
from tests.policies import SAMPLES, WORDS


def test_each_field_has_an_option(cli: Cli, engine: Engine) -> None:
    """Every field of a policy can be set, for a channel, new ones and a plan, and is shown with every other."""
    # Fields whose samples are equal are apart.
    for number, fields in enumerate((list(WORDS)[::2], list(WORDS)[1::2])):
        policy, name = ChannelPolicy(**{field: SAMPLES[field] for field in fields}), f"n{number}"
        assert len({WORDS[field] for field in fields}) == len(fields)

        def words(option: str, given: list[str] = fields) -> list[str]:
            return [word for field in given for word in (option + field.replace("_", "-"), WORDS[field])]

        cli("configure", "channel", name, *words("--"), "--queue", "documents")
        assert [stats.policy for stats in QUEUE.channels(engine, name)] == [policy]
        cli("configure", "queue", *words("--channel-"), "--queue", name)
        enqueue(engine, "new", queue=Queue(name))
        assert [stats.policy for stats in Queue(name).channels(engine)] == [policy]
        cli("configure", "plan", name, *words("--"), "--queue", "documents")
        assert [plan.policy for plan in QUEUE.plans.list(engine, name)] == [policy]
    assert [name for name, _ in policy_rows(ChannelPolicy(**SAMPLES))] == [name.replace("_", " ") for name in SAMPLES]
    shown = cli("configure", "channel", "n0", "--queue", "documents", "--json").document["policy"]
    assert shown.keys() == SAMPLES.keys()
    listed = cli("channels", "--queue", "documents", "--json").document["channels"][0]
    assert listed.keys() >= SAMPLES.keys()
    assert {field.replace("_", " ") for field in SAMPLES} <= set(cli("plans", "list", "--queue", "documents").rows()[0])


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


def test_what_is_not_named_stays(cli: Cli, engine: Engine) -> None:
    """An option changes what it names and nothing else."""
    QUEUE.configure_channel(engine, "a", ChannelPolicy(max_concurrency=4, weight=3, max_backlog=9, on_full="drop"))

    words = ["--rate", "1/m", "--burst", "5", "--no-max-concurrency"]
    changed = cli("configure", "channel", "a", *words, "--json").document

    assert (changed["created"], changed["changed"], changed["overridden"]) == (False, True, ["max_concurrency", "rate"])
    kept = ChannelPolicy(rate=Rate(1, timedelta(minutes=1), burst=5), weight=3, max_backlog=9, on_full="drop")
    assert changed["policy"] == policy_document(kept)
    lifted = cli("configure", "channel", "a", "--no-max-backlog", "--rate", "none", "--json").document["policy"]
    assert lifted == policy_document(ChannelPolicy(weight=3, on_full="drop"))


def test_a_new_channel(cli: Cli, engine: Engine) -> None:
    """A channel that is not there is made, with the defaults of its queue where nothing else is named; not without an
    option, which shows the policy.
    """
    QUEUE.configure(engine, defaults=ChannelPolicy(weight=5, max_concurrency=2))
    assert cli("configure", "channel", "a").status == 1

    made = cli("configure", "channel", "a", "--max-concurrency", "9", "--json").document

    assert made["created"]
    assert (made["policy"]["weight"], made["policy"]["max_concurrency"]) == (5, 9)
    shown = cli("configure", "channel", "a", "--json").document
    assert (shown["changed"], shown["policy"]["weight"]) == (False, 5)


def test_a_queue(cli: Cli, engine: Engine) -> None:
    """Limit, history and the defaults of new channels are set apart: what is not named stays."""
    first = cli("configure", "queue", "--queue", "documents", "--max-concurrency", "50", "--json").document
    assert {name: value for name, value in first.items() if value} == {
        "queue": "documents", "changed": True, "max_concurrency": 50, "fair_by": "messages", "on_dead": "continue",
        "forget_channels_after_seconds": 2_592_000.0,
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
    defaults = ChannelPolicy(weight=2, rate="5/s", max_backlog=10, on_full="drop")
    assert last["defaults"] == policy_document(defaults)
    enqueue(engine, "new")
    assert QUEUE.channels(engine)[0].policy == defaults


def test_other_settings_of_a_queue(cli: Cli) -> None:
    """They are set, lifted, shown and kept; a word that is none is refused with those that there are."""
    queue = ["configure", "queue", "--queue", "documents"]
    words = ["--fair-by", "cost", "--forget-channels-after", "7d", "--result-retention", "1d"]
    shared = cli(*queue, *words, "--json").document
    names = ("changed", "fair_by", "forget_channels_after_seconds", "result_retention_seconds")
    assert [shared[name] for name in names] == [True, "cost", 604_800.0, 86_400.0]
    shown = [row[:2] for row in cli(*queue, "--max-concurrency", "9").rows()]
    for row in (["fair by", "cost"], ["forget channels after", "7d"], ["result retention", "1d"]):
        assert row in shown
    lifted = cli(*queue, "--forget-channels-after", "none", "--result-retention", "none", "--json").document
    assert [lifted[name] for name in names] == [True, "cost", None, None]
    refused = cli(*queue, "--fair-by", "weight")
    assert refused.status == 2
    assert "none of messages, cost and seconds" in " ".join(refused.err.split())


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
    shown = cli("configure", "queue").rows()
    assert ["history", "no"] in shown
    assert shown[-1] == ["new channels take the policy that their first enqueue brings"]

    cli("configure", "queue", "--channel-weight", "2", "--history")
    shown = cli("configure", "queue").rows()
    assert ["history", "yes"] in shown
    assert shown[-len(SAMPLES) - 1 :] == [
        ["new channels start with"], *map(list, policy_rows(ChannelPolicy(weight=2)))
    ]  # fmt: skip
    assert cli("configure", "queue", "--json").document["changed"] is False


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
    options = {name: "--" + name.replace("_", "-") for name, definition in POLICY.items() if definition.none}
    cli("configure", "channel", "a", *(word for field in options for word in (options[field], WORDS[field])))
    left = set(options)
    for field, option in options.items():
        policy = cli("configure", "channel", "a", option, "none", "--json").document["policy"]
        left.remove(field)
        assert {name for name in options if policy[name] is not None} == left
    for words in (["--max-concurrency", "none"], ["--no-max-concurrency"]):
        cli("configure", "queue", "--max-concurrency", "3", "--channel-max-concurrency", "2")
        lifted = cli("configure", "queue", *words, "--channel-max-concurrency", "none", "--json").document
        assert (lifted["max_concurrency"], lifted["defaults"]["max_concurrency"]) == (None, None)
        assert QUEUE.stats(engine).max_concurrency is None
    cli("configure", "limit", "api", "--max-concurrency", "3", "--rate", "1/s")
    [limit] = cli("configure", "limit", "api", "--max-concurrency", "none", "--json").document["limits"]
    assert limit["max_concurrency"] is None


def test_bad_values(cli: Cli, database: Database) -> None:
    """A value that cannot be kept is named, and nothing is changed."""
    for words, complaint in (
        (["channel", "a", "--max-concurrency", "0"], "max_concurrency is 0; give an int from 1"),
        (["channel", "a", "--max-concurrency", "many"], "'many' is no whole number; give one from 1, or none"),
        (["channel", "a", "--max-backlog", "1", "--no-max-backlog"], "contradict each other"),
        (["channel", "a", "--rate", "fast"], "'fast' is no rate"),
        (["channel", "a", "--on-full", "explode"], "'explode' is none of raise and drop"),
        (["channel", "", "--weight", "1"], "channel '' has 0 bytes"),
        (["channel"], "CHANNEL"),
        (["queue", "--max-concurrency", "1", "--no-max-concurrency"], "contradict each other"),
        (["queue", "--history-retention", "1h"], "history_retention is"),
        (["queue", "--dead-letter-retention", "parse"], "'parse' is no duration"),
        (["queue", "--dead-letter-retention", "=1d"], "kind of dead_letter_retention '' has 0 bytes"),
        (["queue", "--channel-max-concurrency", "1", "--no-channel-max-concurrency"], "contradict each other"),
    ):
        found = cli("configure", *words, "--queue", "documents", "--json")
        assert (found.status, found.error["kind"]) == (2, "usage")
        assert complaint in found.err
    assert database.value("select count(*) from fq_queue") == 0
    assert database.value("select count(*) from fq_channel") == 0


def test_a_queue_by_its_name(cli: Cli, engine: Engine) -> None:
    """The name of a queue stands where that of a channel does; another one by --queue is a contradiction."""
    cli("configure", "queue", "prompts", "--fair-by", "cost")
    enqueue(engine, "a")
    assert cli("configure", "queue", "prompts", "--json").document["fair_by"] == "cost"
    assert cli("configure", "queue", "prompts", "--queue", "prompts", "--json").document["queue"] == "prompts"
    assert cli("configure", "queue", "prompts", "--queue", "documents").status == 2


def test_limits(cli: Cli, engine: Engine) -> None:
    """A limit is made, changed, drawn from, shown and removed; what is not named stays."""
    assert cli("limits").out == "schema 'public' has no shared limits\n"
    cli("configure", "limit", "api", "--max-concurrency", "5", "--rate", "50/s", "--burst", "3")
    made = cli("configure", "limit", "api", "--max-concurrency", "2", "--json").document["limits"]
    rate = {"interval_seconds": 0.02, "burst": 3, "of": "messages"}
    assert made == [
        {
            "name": "api", "max_concurrency": 2, "max_cost_out": None, "rate": rate, "current_concurrency": 0,
            "current_cost": 0, "queues": [],
        }
    ]  # fmt: skip
    changed = cli("configure", "queue", "--queue", "documents", "--limit", "api", "--json").document
    assert changed["limits"] == ["api"]
    enqueue(engine, "a", "b", "c")
    lease(engine, 10)
    headings, row = cli("limits").rows()
    assert (headings[:2], row) == (["limit", "leased"], ["api", "2", "2", "-", "-", "50/s", "3", "documents"])
    assert ["limits", "api"] in cli("configure", "queue").rows()


def test_a_limit_that_is_drawn_from(cli: Cli, engine: Engine) -> None:
    """A limit that a queue draws from stays, with what to do."""
    QUEUE.limits.configure(engine, "api", rate="5/s")
    QUEUE.configure(engine, limits=["api"])
    refused = cli("configure", "limit", "api", "--remove")
    assert refused.status == 2
    assert "the limit api is that of documents" in refused.err
    cli("configure", "queue", "--no-limit")
    assert cli("configure", "limit", "api", "--remove").out == "schema 'public' has no shared limit 'api'\n"
    for option in ([], ["--remove"]):
        assert cli("configure", "limit", "api", *option).status == 1


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


def test_contradictions(cli: Cli, engine: Engine) -> None:
    """What contradicts itself is refused; what does not exist is said to."""
    enqueue(engine, "a")
    for words in (
        ["limit", "api", "--remove", "--rate", "5/s"],
        ["limit", "api", "--max-concurrency", "5", "--no-max-concurrency"],
        ["queue", "--limit", "api", "--no-limit"],
        ["queue", "--limit", "api"],
        ["channel", "a", "--plan", "gold", "--no-plan"],
        ["channel", "a", "--plan", "gold"],
        ["channel", "a", "--reset", "wait"],
        ["queue", "--default-plan", "gold"],
        ["plan", "gold", "--max-backlog", "1", "--no-max-backlog"],
    ):
        assert cli("configure", *words).status == 2, words
    assert cli("configure", "plan", "gold").status == 1
    assert cli("plans", "remove", "gold").status == 1
