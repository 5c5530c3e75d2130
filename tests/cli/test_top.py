import contextlib
import os
import pty
import select
import signal
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.cli.installation import open_installation
from sqlalchemy_fairqueue.cli.options import Options
from sqlalchemy_fairqueue.cli.top import Sort, sample_document
from sqlalchemy_fairqueue.figures import channels
from sqlalchemy_fairqueue.figures.channels import take_sample
from sqlalchemy_fairqueue.reports import ChannelStats
from tests.cli.conftest import PROGRAM, Cli, Start
from tests.cli.messages import QUEUE, enqueue, lease
from tests.fixtures.database import Database
from tests.fixtures.options import PATIENCE


def test_one_sample(cli: Cli, engine: Engine) -> None:
    """One reading has the counts of each channel, of which there may be none; rates need two."""
    assert cli("top", "--json").document["channels"] == []
    enqueue(engine, "a", "b", "b", "c", "c", "c")
    enqueue(engine, "a", "a", delay=timedelta(hours=1))
    lease(engine, 1)
    QUEUE.pause(engine, "b")

    found = cli("top", "--once")
    assert found.out.splitlines()[1].endswith("UTC  3 channels: 5 ready, 2 scheduled, 1 leased")
    assert [row[:7] for row in found.rows()[3:]] == [
        ["c", "3", "0", "0", "0", "-", "-"], ["b", "2", "0", "0", "0", "-", "-"], ["a", "0", "2", "0", "1", "-", "-"],
    ]  # fmt: skip
    assert found.rows()[4][-1].startswith("paused for ")

    shown = cli("top", "--json").document
    assert shown["since_seconds"] is None
    assert [shown["totals"][name] for name in ("channels", "ready", "scheduled", "leased")] == [3, 5, 2, 1]
    assert shown["channels"][0]["completed_per_second"] is None
    reasons = {one["channel"]: one["waits_for"] for one in shown["channels"]}
    assert reasons == {"a": "scheduled", "b": "paused", "c": "others' turn"}
    assert [one["channel"] for one in shown["channels"][0]["taken_by"]] == ["a"]


def test_a_held_channel(cli: Cli, engine: Engine) -> None:
    """A channel whose messages wait for others of their ordering key says so, with the first of these."""
    first, *_ = enqueue(engine, "a", "a", "a", ordering_key="k")
    lease(engine)
    found = cli("top", "--once", "--sort", "held")
    assert found.out.splitlines()[1].endswith("UTC  1 channel: 0 ready, 0 scheduled, 2 held, 1 leased")
    assert f"behind message {first} of its ordering key" in found.rows()[3]
    assert f"behind message {first} of its ordering key" in cli("channels").rows()[1]
    [top], [listed] = (cli(name, "--json").document["channels"] for name in ("top", "channels"))
    for one in (top, listed):
        assert (one["waits_for"], one["behind"], one["held"], one["scheduled"]) == ("ordering key", first, 2, 0)


def test_sorting(cli: Cli, engine: Engine) -> None:
    """The channel with the most of what is asked for comes first, names in their order."""
    enqueue(engine, "b")
    lease(engine, 1)
    enqueue(engine, "c", "c")
    enqueue(engine, "a", "a", delay=timedelta(hours=1))
    enqueue(engine, "a")
    first = {
        sort: cli("top", "--json", "--sort", sort).document["channels"][0]["channel"]
        for sort in ("ready", "scheduled", "leased", "oldest", "name", "rate")
    }
    assert first == {"ready": "c", "scheduled": "a", "leased": "b", "oldest": "c", "name": "a", "rate": "a"}


def test_limit(cli: Cli, engine: Engine) -> None:
    """The totals are those of all channels, whatever is shown, in as many samples as --count says."""
    enqueue(engine, *(f"c{number}" for number in range(30)))
    printed = cli("top", "--count", "3", "--interval", "1ms").out
    assert (printed.count("30 channels: 30 ready"), printed.count("and 10 more channels")) == (3, 3)
    shown = cli("top", "--json", "--limit", "2", "--count", "2", "--interval", "1ms").document
    assert (len(shown["channels"]), shown["totals"]["channels"], shown["since_seconds"] > 0) == (2, 30, True)


def test_more_channels_than_a_statement_tells(cli: Cli, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every channel is seen, and once, however many there are: also a busy one whose name comes last."""
    enqueue(engine, "a", "b", "c", "d", "e", "\U0001f40c", *["\U0001f422"] * 5)
    enqueue(engine, "f", "z", queue=Queue("other"))
    for size in (1, 2, 6, 7, 8):
        monkeypatch.setattr(channels, "PAGE", size)
        shown = cli("top", "--json").document
        busiest = shown["channels"][0]
        assert (shown["totals"]["channels"], shown["totals"]["ready"]) == (9, 13)
        assert (busiest["channel"], busiest["ready"]) == ("\U0001f422", 5)
        assert len({(channel["queue"], channel["channel"]) for channel in shown["channels"]}) == 9


def test_pages_are_of_one_moment(cli: Cli, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that is committed while a sample reads its pages is in the next sample."""
    monkeypatch.setattr(channels, "PAGE", 2)
    enqueue(engine, "a", "b", "c")
    told = Queue.channels

    def between(queue: Queue, *arguments: Any, **options: Any) -> list[ChannelStats]:
        page = told(queue, *arguments, **options)
        enqueue(engine, "c", "d", "e")
        return page

    monkeypatch.setattr(Queue, "channels", between)
    totals = cli("top", "--json").document["totals"]
    assert (totals["channels"], totals["ready"]) == (3, 3)
    totals = cli("top", "--json").document["totals"]
    assert (totals["channels"], totals["ready"]) == (5, 9)


def test_rates(named: Database, engine: Engine) -> None:
    """Between two samples completions are counted for queues with history, and the change of every channel is told."""
    assert named.name
    recorded, plain = Queue("recorded"), Queue("plain")
    recorded.configure(engine, history=True)
    enqueue(engine, "a", "a", "a", "a", queue=recorded)
    enqueue(engine, "b", queue=plain)
    deliveries = lease(engine, queue=recorded)
    recorded.complete(engine, deliveries[0])

    with open_installation(Options()) as installation, engine.connect() as slow:
        # Begun before the first sample and committed after it: it counts for the second.
        recorded.complete(slow, deliveries[1])
        first = take_sample(engine, None, installation.queues(), None)
        slow.commit()
        recorded.complete(engine, deliveries[2])
        recorded.retry(engine, deliveries[3], delay=timedelta(hours=1))
        enqueue(engine, "b", "b", "b", queue=plain)
        second = take_sample(engine, None, installation.queues(), first)

    assert second.since is not None
    since = second.since.total_seconds()
    shown = sample_document(second, Sort.NAME, 10)
    channels = {channel["channel"]: channel for channel in shown["channels"]}
    assert channels["a"]["completed_per_second"] == pytest.approx(2 / since)
    assert channels["a"]["change_per_second"] == pytest.approx(-2 / since)
    assert channels["b"]["completed_per_second"] is None
    assert channels["b"]["change_per_second"] == pytest.approx(3 / since)
    assert shown["totals"]["completed_per_second"] == pytest.approx(2 / since)


def test_idle_channels(cli: Cli, engine: Engine) -> None:
    """Channels without messages are counted; one that had some in the last sample is shown once more."""
    queue = Queue("recorded")
    queue.configure(engine, history=True)
    enqueue(engine, "gone", "idle", queue=queue)
    idle = {delivery.channel: delivery for delivery in lease(engine, queue=queue)}
    queue.complete(engine, idle["idle"])

    first = take_sample(engine, None, [queue], None)
    queue.complete(engine, idle["gone"])
    enqueue(engine, "quick", queue=queue)
    queue.complete(engine, lease(engine, queue=queue))
    second = take_sample(engine, None, [queue], first)
    third = take_sample(engine, None, [queue], second)

    assert [one.channel for one in first.channels] == ["gone"]
    rates = {one.channel: (second.rate(one) or 0, second.change(one) or 0) for one in second.channels}
    assert rates.keys() == {"gone", "quick"}
    assert rates["gone"][1] < 0 == rates["quick"][1]
    assert rates["quick"][0] > 0
    assert (third.total, third.channels) == (3, [])
    found = cli("top", "--once")
    assert found.out.splitlines()[1].endswith("UTC  3 channels: 0 ready, 0 scheduled, 0 leased")
    assert found.out.splitlines()[-1] == "and 3 more channels"


def test_in_a_pipe(start: Start, engine: Engine) -> None:
    """In a pipe the samples follow each other as plain text, and the command ends with its reader."""
    enqueue(engine, "a")

    with start("top", "--interval", "1ms") as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(10)]
        process.stdout.close()
        status = process.wait(PATIENCE.total_seconds())
        assert process.stderr is not None
        errors = process.stderr.read()

    assert sum("1 channel: 1 ready" in line for line in lines) >= 2
    assert not any("\x1b" in line for line in lines)
    assert (status, errors) == (141, "")


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGINT, 0), (signal.SIGTERM, 128 + signal.SIGTERM)])
def test_in_a_terminal(start: Start, engine: Engine, number: int, expected: int) -> None:
    """In a terminal one table moves in place; Ctrl-C ends it with status 0, and SIGTERM too gives the screen back."""
    enqueue(engine, "a")
    ours, theirs = pty.openpty()
    terminal = {"TERM": "xterm", "COLUMNS": "100", "LINES": "12"}
    with start("top", "--interval", "10ms", program=PROGRAM, stdout=theirs, **terminal) as it:
        os.close(theirs)
        sample = b""
        while sample.count(b"1 ready") < 3:
            assert select.select([ours], [], [], PATIENCE.total_seconds())[0], sample
            sample += os.read(ours, 65536)
        it.send_signal(number)
        # A terminal that nobody reads from fills up, and then keeps the program. This ends when the program has.
        with contextlib.suppress(OSError):
            while note := os.read(ours, 65536):
                sample += note
        status = it.wait(PATIENCE.total_seconds())
        os.close(ours)

    assert status == expected
    assert b"\x1b[?1049h" in sample
    assert b"\x1b[?1049l" in sample
