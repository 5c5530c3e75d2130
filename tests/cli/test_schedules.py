from datetime import timedelta

from sqlalchemy import Engine

from tests.cli.conftest import Cli
from tests.cli.messages import QUEUE
from tests.cli.test_installation import role
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database

OWN = ("--queue", "documents", "--channel", "a")


def test_added_and_listed(cli: Cli) -> None:
    """A schedule is made with all that is asked for, changed by another call, and shown."""
    words = ("--cron", "0 3 * * *", "--timezone", "Europe/Berlin", "--catch-up", "all", "--jitter", "5m")
    made = cli("schedules", "set", "nightly", *OWN, *words, "--kind", "report", "--payload", '{"run": 1}',
               "--ordering-key", "s", "--json")  # fmt: skip
    schedule = made.document["schedule"]
    assert (schedule["channel"], schedule["name"], schedule["cron"], schedule["timezone"], schedule["state"]) == (
        "a", "nightly", "0 3 * * *", "Europe/Berlin", "active",
    )  # fmt: skip
    assert (schedule["catch_up"], schedule["jitter_seconds"], schedule["every_seconds"]) == ("all", 300.0, None)
    assert (schedule["kind"], schedule["content_size"], schedule["in_code"]) == ("report", 9, False)
    assert schedule["ordering_key"] == "s"

    assert "schedule 'nightly' of channel 'a' of queue 'documents': next at 2" in (
        cli("schedules", "set", "nightly", *OWN, "--every", "6h").out
    )
    listed = cli("schedules", "list", "--queue", "documents", "--json").document
    assert (listed["queue"], listed["more"]) == ("documents", False)
    assert [one["every_seconds"] for one in listed["schedules"]] == [21_600.0]
    text = cli("schedules", "list", "--queue", "documents").out
    assert "every 6h 00m" in text
    assert "active" in text


def test_pages(cli: Cli, engine: Engine) -> None:
    """No more are listed than asked for, of one channel if it is named."""
    for channel in "ab":
        QUEUE.schedules.set(engine, "one", channel=channel, every=timedelta(hours=1))
    assert cli("schedules", "list", "--queue", "documents", "--limit", "1", "--json").document["more"] is True
    only = cli("schedules", "list", *OWN, "--json").document["schedules"]
    assert [one["channel"] for one in only] == ["a"]
    assert "has no schedules there" in cli("schedules", "list", "--queue", "documents", "--channel", "c").out


def test_show(cli: Cli, engine: Engine, database: Database, clock: Clock) -> None:
    """Slots that were run, skipped or are late are shown, and the next ones; of a paused one those that were run."""
    hour = timedelta(hours=1) // timedelta(microseconds=1)
    QUEUE.schedules.set(engine, "one", channel="a", every=timedelta(hours=1))
    for slot in (1, 3):
        database.execute(
            f"insert into fq_schedule_slot select id, anchor_at + {slot * hour}, {slot}, fq_now() from fq_schedule"
        )
    database.execute(f"update fq_schedule set done_until = anchor_at + {3 * hour}, next_at = anchor_at + {4 * hour}")
    clock.advance(timedelta(hours=5, minutes=30))

    found = cli("schedules", "show", "one", *OWN, "--limit", "2", "--json").document
    assert (found["schedule"]["name"], found["ran_is_known"]) == ("one", True)
    assert [(one["state"], one["message_id"]) for one in found["slots"]] == [
        ("run", 1), ("skipped", None), ("run", 3), ("late", None), ("late", None), ("next", None), ("next", None),
    ]  # fmt: skip
    slots = [one["slot_at"] for one in found["slots"]]
    assert slots == sorted(set(slots))
    assert "skipped" in cli("schedules", "show", "one", *OWN).out
    cli("schedules", "pause", "one", *OWN)
    assert {one["state"] for one in cli("schedules", "show", "one", *OWN, "--json").document["slots"]} == {"run"}
    assert cli("schedules", "show", "two", *OWN).status == 1


def test_show_of_a_cron_expression(cli: Cli, engine: Engine) -> None:
    """A schedule that nobody has run yet has slots to come, by its time zone; one that is paused has none."""
    QUEUE.schedules.set(engine, "one", channel="a", cron="0 3 * * *", timezone="Asia/Tokyo")
    slots = cli("schedules", "show", "one", *OWN, "--json").document["slots"]
    assert [(one["state"], one["slot_at"][11:19]) for one in slots] == [("next", "18:00:00")] * 5
    QUEUE.schedules.pause(engine, "one", channel="a")
    assert "the schedule has no slots" in cli("schedules", "show", "one", *OWN).out


def test_show_without_the_record(bare_cli: Cli, engine: Engine, database: Database) -> None:
    """A role that may not read the tables sees the slots to come, and that it does not see the others."""
    QUEUE.schedules.set(engine, "one", channel="a", every=timedelta(hours=1))
    with role(database, f"{database.name}_guest") as url:
        words = ("schedules", "show", "one", *OWN, "--database-url", url)
        found = bare_cli(*words, "--json").document
        assert (found["ran_is_known"], {one["state"] for one in found["slots"]}) == (False, {"next"})
        assert "which slots were run, the owner of the tables may read" in bare_cli(*words).out


def test_paused_resumed_run_and_removed(cli: Cli, engine: Engine) -> None:
    """Pausing or resuming twice changes nothing and says so; of a run the message's id is told; a removal is asked."""
    QUEUE.schedules.set(engine, "one", channel="a", every=timedelta(hours=1), payload="x")
    first, again = (cli("schedules", "pause", "one", *OWN, "--json").document for _ in range(2))
    assert (first["changed"], first["schedule"]["state"]) == (True, "paused")
    assert (again["changed"], again["schedule"]["state"]) == (False, "paused")
    assert "next at 2" in cli("schedules", "resume", "one", *OWN).out
    assert "was so already: active" in cli("schedules", "resume", "one", *OWN).out
    found = cli("schedules", "run", "one", *OWN, "--json").document
    [delivery] = QUEUE.dequeue(engine)
    assert (found["message_id"], delivery.payload) == (delivery.message_id, "x")
    assert cli("schedules", "remove", "one", *OWN).status == 2
    assert "'one' of channel 'a'" in cli("schedules", "remove", "one", *OWN, "--yes").out
    assert QUEUE.schedules.list(engine) == []


def test_what_is_not_there(cli: Cli, engine: Engine) -> None:
    """A name that the channel does not have is told, and nothing is made."""
    QUEUE.schedules.set(engine, "one", channel="b", every=timedelta(hours=1))
    for verb in ("pause", "resume", "run", "remove"):
        found = cli("schedules", verb, "one", *OWN, "--json", *(["--yes"] if verb == "remove" else []))
        assert (found.status, found.error["kind"]) == (1, "not_found")


def test_what_is_refused(cli: Cli, engine: Engine) -> None:
    """Bad values are usage errors, and nothing is kept."""
    for words, said in (
        (("--cron", "0 25 * * *"), "bad hour"),
        (("--cron", "0 3 * * *", "--timezone", "Europe/Atlantis"), "which this machine does not know"),
        ((), "give one of them"),
        (("--every", "1h", "--payload", "{"), "is no JSON"),
    ):
        found = cli("schedules", "set", "one", *OWN, *words)
        assert found.status == 2
        assert said in found.err
    assert QUEUE.schedules.list(engine) == []
