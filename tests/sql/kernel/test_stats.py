"""fq_stats, fq_channel_stats, fq_queues: what is said of a queue is so."""

import pytest

from tests.sql.client import HOUR, SECOND, Kernel, OpenKernel
from tests.sql.kernel.verbs import channel_stats, pause, stats
from tests.sql.plans import explained


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
