"""fq_stats, fq_channel_stats, fq_queues: what is said of a queue is so."""

import pytest

from tests.sql.client import HOUR, SECOND, Kernel, OpenKernel
from tests.sql.kernel.verbs import bound, channel_stats, limit, pause, stats
from tests.sql.plans import explained


def test_a_queue_says_how_it_stands(kernel: Kernel) -> None:
    """Ready, scheduled, out, dead, signals and consumers are counted, heard or not."""
    before = kernel.value("select fq_now()")
    limit(kernel, 5)
    kernel.enqueue(*"aaabbbc", delays=[None] * 6 + [HOUR])
    expected = {
        "channels": 3,
        "ready": 6,
        "scheduled": 1,
        "leased": 0,
        "dead": 0,
        "dropped": 0,
        "paused_at": None,
        "max_concurrency": 5,
        "current_concurrency": 0,
        "rate_interval": None,
        "rate_burst": None,
        "rate_allows_at": None,
        "signals": 3,
        "consumers": 0,
        "served_cost": None,
        "served_since": None,
    }
    found = stats(kernel)
    oldest = found.pop("oldest_ready_at")
    assert found == expected
    assert before <= oldest <= kernel.value("select fq_now()")
    one, two, _ = kernel.dequeue(3, lease=HOUR).hands
    kernel.bury(one)
    kernel.release(two)
    pause(kernel)
    found = stats(kernel)
    assert found["paused_at"] > before
    assert {
        name: found[name] for name in ("ready", "leased", "dead", "current_concurrency", "signals", "consumers")
    } == {
        "ready": 4,
        "leased": 1,
        "dead": 1,
        "current_concurrency": 1,
        "signals": 2,
        "consumers": 1,
    }


def test_the_oldest_is_that_which_has_waited_longest(kernel: Kernel) -> None:
    """Ordinary messages wait since they are due, prioritised ones since they were enqueued, scheduled ones not yet."""
    kernel.enqueue("a", "b", "c", delays=[None, None, HOUR], priorities=[7, None, None])
    kernel.rows("update fq_message set enqueued_at = 11 where dequeue_at < 0")
    kernel.rows("update fq_message m set dequeue_at = 12 from fq_channel c where c.id = m.channel_id and c.name = 'b'")
    found = channel_stats(kernel)
    assert [found[name]["oldest_ready_at"] for name in "abc"] == [11, 12, None]
    assert stats(kernel)["oldest_ready_at"] == 11


def test_queues_are_those_with_channels_or_settings(kernel: Kernel) -> None:
    """Each queue once, in order, made by a message or by configuration."""
    for queue in ("c", "a", "b"):
        Kernel(kernel.connection, queue=queue).enqueue("x", "y")
    pause(Kernel(kernel.connection, queue="d"))
    pause(Kernel(kernel.connection, queue="a"))
    assert [row["fq_queues"] for row in kernel.rows("select * from fq_queues()")] == ["a", "b", "c", "d"]


def test_busy_channels_are_those_with_something_to_do(kernel: Kernel) -> None:
    """Ready, scheduled, leased, paused or at their limit with messages, or heard of: busy. All others are idle."""
    kernel.configure("full", 1)
    kernel.enqueue("done", "full", "full", "dead", "held", "ready", "later", "off", delays=[None] * 6 + [HOUR, None])
    hands = {hand.channel: hand for hand in kernel.dequeue(4).hands}
    kernel.complete(hands["done"])
    kernel.bury(hands["dead"])
    kernel.hear()
    pause(kernel, "off")
    pause(kernel, "paused and empty", new=True)
    kernel.hear()
    assert list(channel_stats(kernel, busy=True)) == ["full", "held", "later", "off", "ready"]
    kernel.enqueue("heard of")
    assert list(channel_stats(kernel, busy=True, limit=3)) == ["full", "heard of", "held"]
    assert list(channel_stats(kernel, busy=True, after="held")) == ["later", "off", "ready"]
    assert list(channel_stats(kernel, "off", "done", "nobody", busy=True)) == ["off"]
    assert list(channel_stats(kernel, "off", "done", "nobody")) == ["done", "off"]
    found = stats(kernel)
    assert {name: found[name] for name in ("channels", "ready", "scheduled", "leased", "dead")} == {
        "channels": 9,
        "ready": 4,
        "scheduled": 1,
        "leased": 2,
        "dead": 1,
    }
    everyone = channel_stats(kernel)
    assert sum(row["ready"] for row in everyone.values()) == found["ready"]
    assert {name for name, row in everyone.items() if row["ready"] + row["scheduled"] + row["leased"]} == set(
        channel_stats(kernel, busy=True)
    )


def test_what_idle_channels_dropped_is_counted(kernel: Kernel) -> None:
    """Messages dropped by a channel that is idle now are in the sum."""
    bound(kernel, "a", 1, drop=True)
    kernel.enqueue("a", "a", "a")
    kernel.complete(*kernel.dequeue(5).hands)
    kernel.hear()
    assert channel_stats(kernel, busy=True) == {}
    assert stats(kernel)["dropped"] == 2


@pytest.mark.usefixtures("cloned")
def test_idle_channels_are_not_read(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """With a thousand idle channels as many buffers and state rows are read as with none."""
    filler = open_kernel(autocommit=True)
    filler.enqueue("m", "n", "n")
    filler.hear()
    kernel.rows(f"set statement_timeout = {60 * SECOND // 1000}")
    questions = (
        lambda: stats(kernel),
        lambda: channel_stats(kernel, busy=True),
        lambda: channel_stats(kernel, "m"),
        lambda: channel_stats(kernel, limit=2),
    )

    def scanned() -> list[list[int]]:
        found = []
        for question in questions:
            with explained(kernel) as scans:
                question()
            assert [str(scan) for scan in scans if scan.node == "Seq Scan"] == []
            found.append(sorted(scan.rows for scan in scans if scan.rows and scan.node != "Index Only Scan"))
        return found

    scanned()
    before = scanned()
    filler.rows(
        "with made as (insert into fq_channel (queue, name) select 'q', 'z' || n from generate_series(1, 1000) n"
        " returning id) insert into fq_channel_state (channel_id, queue) select id, 'q' from made"
    )
    assert scanned() == before
    assert stats(kernel)["channels"] == 1002


@pytest.mark.usefixtures("cloned")
def test_looking_reads_no_ready_messages(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """However many messages are ready, what is said of a queue is read by index, a few rows a channel."""
    filler = open_kernel(autocommit=True)
    filler.enqueue(*["a", "b"] * 500)
    filler.hear()
    kernel.rows(f"set statement_timeout = {60 * SECOND // 1000}")
    with explained(kernel) as scans:
        assert stats(kernel)["ready"] == 1000
        assert channel_stats(kernel)["a"]["ready"] == 500
        kernel.rows("select * from fq_queues()")
    assert scans
    assert [str(scan) for scan in scans if scan.node == "Seq Scan" or scan.rows > 10] == []
