from datetime import timedelta

from sqlalchemy import Engine

from sqlalchemy_fairqueue import ChannelPolicy, Queue
from tests.cli.conftest import Cli
from tests.cli.messages import QUEUE, bury, enqueue, lease
from tests.fixtures.database import Database


def test_stats(cli: Cli, engine: Engine) -> None:
    """Each queue has a row with its counts; the document has them by the names of QueueStats. None is no error."""
    assert cli("stats").out == "schema 'public' has no queue yet\n"
    assert cli("stats", "--json").document == {"summary": "No queue has been used yet.", "queues": []}
    bury(engine, "a")
    enqueue(engine, "a", "a", "b")
    enqueue(engine, "a", delay=timedelta(hours=1))
    lease(engine, 1)
    QUEUE.configure(engine, max_concurrency=7, rate="50/s")
    Queue("other").pause(engine)

    found = cli("stats")
    document = cli("stats", "--json").document

    assert found.status == 0
    sentence, _, documents, other = found.rows()
    assert sentence[0].startswith("Queue 'documents' has 1 dead letter, the last died ")
    assert document["summary"].endswith("; 1 further finding.")
    assert documents[:12] == ["documents", "2", "2", "0", "0", "1", "0", "1", "7", "50/s", "1", "0"]
    assert other[0] == "other"
    assert other[-1].startswith("paused for ")
    first, second = document["queues"]
    assert first["queue"] == "documents"
    names = ("ready", "scheduled", "leased", "dead", "channels", "max_concurrency")
    assert [first[name] for name in names] == [2, 1, 1, 1, 2, 7]
    assert first["oldest_ready_seconds"] >= 0
    assert first["oldest_ready_at"].endswith("+00:00")
    assert second["paused_at"] is not None
    assert second["oldest_ready_seconds"] is None


def test_one_queue(cli: Cli, engine: Engine) -> None:
    """--queue restricts to one, and one that is not there is told with those that are."""
    enqueue(engine, "a")
    enqueue(engine, "a", queue=Queue("other"))

    assert [queue["queue"] for queue in cli("stats", "--json", "--queue", "other").document["queues"]] == ["other"]
    missing = cli("stats", "--queue", "documets")
    assert missing.status == 1
    assert "no queue 'documets' in schema 'public'; its queues are 'documents', 'other'" in missing.err


def test_channels(cli: Cli, engine: Engine) -> None:
    """Each channel has a row with its counts and its policy."""
    policy = ChannelPolicy(max_concurrency=4, rate="10/min", weight=3, max_backlog=50, on_full="drop")
    QUEUE.configure_channel(engine, "a", policy)
    enqueue(engine, "a", "a", "b")
    lease(engine, 1)
    QUEUE.pause(engine, "b")

    found = cli("channels")
    document = cli("channels", "--json").document

    _, first, second = found.rows()
    assert first[:11] == ["a", "1", "0", "0", "1", "0", "0", "1", "1/4", "10/m", "3"]
    assert second[0] == "b"
    assert second[-1].startswith("paused for ")
    assert document["more"] is False
    channel = document["channels"][0]
    assert channel["channel"] == "a"
    assert channel["rate"] == {"interval_seconds": 6.0, "burst": 1, "of": "messages"}
    assert (channel["max_concurrency"], channel["max_backlog"], channel["on_full"]) == (4, 50, "drop")


def test_one_channel(cli: Cli, engine: Engine) -> None:
    """A channel can be named; one that is not there is told."""
    enqueue(engine, "a", "b")

    assert [one["channel"] for one in cli("channels", "b", "--json").document["channels"]] == ["b"]
    missing = cli("channels", "c", "--json")
    assert missing.status == 1
    assert missing.error["kind"] == "not_found"
    assert "queue 'documents' has no channel 'c'" in missing.err


def test_busy_channels(cli: Cli, engine: Engine) -> None:
    """--busy leaves out the channels without messages."""
    enqueue(engine, "a")
    QUEUE.complete(engine, lease(engine, 1))
    assert cli("channels", "--busy").out == "queue 'documents' has no busy channels\n"
    assert cli("channels", "a", "--busy", "--json").document == {"channels": [], "more": False}
    enqueue(engine, "b")
    assert [one["channel"] for one in cli("channels", "--busy", "--json").document["channels"]] == ["b"]
    assert [one["channel"] for one in cli("channels", "--json").document["channels"]] == ["a", "b"]


def test_channels_of_several_queues(cli: Cli, engine: Engine) -> None:
    """Without --queue the channels of every queue are shown, each below the name of its queue; so is a single one."""
    enqueue(engine, "a")
    enqueue(engine, "b", queue=Queue("other"))
    assert [line[0] for line in cli("channels", "b").rows()] == ["queue other", "channel", "b"]
    assert (cli("channels", "c").status, cli("channels", "c", "--queue", "other").status) == (1, 1)

    assert [line[0] for line in cli("channels").rows()] == [
        "queue documents", "channel", "a", "queue other", "channel", "b",
    ]  # fmt: skip
    document = cli("channels", "--json").document
    assert [(one["queue"], one["channel"]) for one in document["channels"]] == [("documents", "a"), ("other", "b")]


def test_thousands_of_channels(cli: Cli, database: Database) -> None:
    """Channels come in pages, which lead from the first to the last."""
    database.execute(
        "with made as (insert into fq_channel (queue, name) select 'documents', 'c' || lpad(n::text, 5, '0') "
        "from generate_series(1, 3000) n returning id) "
        "insert into fq_channel_state (channel_id, queue) select id, 'documents' from made"
    )

    first = cli("channels")
    assert len(first.out.splitlines()) == 1 + 100 + 1
    assert first.out.splitlines()[-1] == "there are more: --after c00100, or a higher --limit"

    pages = [cli("channels", "--json", "--limit", "1200").document]
    while pages[-1]["more"]:
        after = pages[-1]["channels"][-1]["channel"]
        pages.append(cli("channels", "--json", "--limit", "1200", "--after", after).document)
    seen = [one["channel"] for page in pages for one in page["channels"]]
    assert seen == [f"c{number:05}" for number in range(1, 3001)]
    assert cli("stats", "--json").document["queues"][0]["channels"] == 3000
