"""The dispatcher's count of a channel's undelivered messages: right in every snapshot, together with the signals that
nobody has heard.
"""

import pytest

from tests.sql.client import Kernel, OpenKernel
from tests.sql.kernel.verbs import bound, channel_stats, unbalanced


@pytest.mark.parametrize("size", [1, 10])
def test_the_count_mends_itself(kernel: Kernel, size: int) -> None:
    """A count that somebody spoilt is right again as soon as the channel runs empty and nobody's signals wait."""
    kernel.enqueue(*"abab")
    kernel.hear()
    kernel.rows("update fq_channel_state set backlog = 99")
    kernel.drain(size)
    assert [kernel.state(name)["backlog"] for name in "ab"] == [0, 0]
    assert unbalanced(kernel) == []


@pytest.mark.parametrize("size", [1, 10])
def test_a_right_count_is_not_mended(kernel: Kernel, open_kernel: OpenKernel, size: int) -> None:
    """While a signal waits, a count that looks wrong is left alone: what it says may be what the signal takes back."""
    ids = [added.message_id for added in kernel.enqueue("a", "a", "b")]
    kernel.hear()
    kernel.cancel(ids[0])
    # The withdrawal's signal stays unheard, since somebody else attends to the queue.
    user = open_kernel()
    user.rows("select from fq_queue_state for update")
    assert len([hand for _ in range(2) for hand in kernel.dequeue(size).hands]) == 2
    assert kernel.state("a")["backlog"] == 1
    assert unbalanced(kernel) == []
    user.rollback()
    kernel.hear()
    assert kernel.state("a")["backlog"] == 0


def test_what_was_dropped_is_counted(kernel: Kernel) -> None:
    """Each message that was dropped because its channel was full is counted, before and after the signal is heard."""
    bound(kernel, "a", 1, drop=True)
    kernel.rows("insert into fq_signal (queue, channel_id, dropped) select 'q', id, 3 from fq_channel")
    assert channel_stats(kernel)["a"]["dropped"] == 3
    kernel.hear()
    assert kernel.state("a")["dropped"] == 3
    assert channel_stats(kernel)["a"]["dropped"] == 3


def test_a_channel_keeps_the_last_signal_that_it_was_told_by(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """Whoever adds up what is not heard yet starts behind it; a slow transaction's late signal does not put it back."""
    kernel.enqueue("a")
    slow = open_kernel()
    slow.enqueue("a")
    kernel.enqueue("a")
    last = kernel.value("select max(id) from fq_signal")
    kernel.hear()
    assert kernel.state("a")["heard_id"] == last
    slow.commit()
    assert kernel.hear() == 1
    assert kernel.state("a")["heard_id"] == last
    assert unbalanced(kernel) == []
