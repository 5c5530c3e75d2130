"""fq_dequeue with a budget of bytes: where a batch ends, and that its channels stand as after a smaller batch."""

import pytest

from tests.sql.client import HOUR, Kernel, OpenKernel

pytestmark = pytest.mark.installed


def _take(kernel: Kernel, max_bytes: int | None, limit: int = 100) -> list[tuple[str, int]]:
    """The channel and the size of each message of a batch."""
    rows = kernel.rows(
        "select channel, octet_length(content) as size, due_in, message_id from fq_dequeue("
        "%(queue)s, %(limit)s, %(lease)s, 'me', p_max_bytes => %(max_bytes)s::bigint)",
        limit=limit,
        lease=HOUR,
        max_bytes=max_bytes,
    )
    *taken, about = rows
    assert about["message_id"] is None
    return [(row["channel"], row["size"]) for row in taken]


def _fill(kernel: Kernel, *channels: str, size: int = 100, headers: str | None = None) -> None:
    kernel.enqueue(*channels, contents=[b"x" * size] * len(channels), headers=[headers] * len(channels))


def test_a_batch_ends_before_the_message_that_is_too_much(kernel: Kernel) -> None:
    """The budget is used up to its last byte, and the next batch goes on behind it."""
    _fill(kernel, *"aabbcc")
    assert _take(kernel, 400) == [("a", 100), ("b", 100), ("c", 100), ("a", 100)]
    assert kernel.rows("select due_in from fq_dequeue('q', 10, 1000000, 'me', p_max_bytes => 1)")[-1]["due_in"] == 0
    assert _take(kernel, None) == [("c", 100)]


@pytest.mark.parametrize(("channels", "limit"), [("aaa", 100), ("abc", 100), ("abc", 1)])
def test_one_message_always_passes(kernel: Kernel, channels: str, limit: int) -> None:
    """What is larger than the budget comes alone."""
    _fill(kernel, *channels)
    assert [_take(kernel, 1, limit) for _ in range(4)] == [[(name, 100)] for name in channels] + [[]]


def test_a_large_message_is_not_passed_by(kernel: Kernel) -> None:
    """Small messages behind a large one wait for it, in its channel and in others."""
    _fill(kernel, "a")
    _fill(kernel, "b", size=1000)
    _fill(kernel, "a", "b", "c")
    assert _take(kernel, 500) == [("a", 100)]
    assert _take(kernel, 500) == [("b", 1000)]
    assert _take(kernel, 500) == [("c", 100), ("a", 100), ("b", 100)]


def test_headers_count_as_text(kernel: Kernel) -> None:
    """A short number that prints as a long one counts by what is sent."""
    _fill(kernel, "a", "a", "b", headers='{"n": 1e300}')
    assert _take(kernel, 600) == [("a", 100)]
    assert _take(kernel, 900) == [("b", 100), ("a", 100)]


@pytest.mark.parametrize("locked", [False, True], ids=["free", "first locked"])
@pytest.mark.parametrize("weights", [(1, 1, 1), (3, 1, 2), (7, 7, 7)])
def test_the_channels_stand_as_after_a_smaller_batch(
    kernel: Kernel, open_kernel: OpenKernel, weights: tuple[int, int, int], *, locked: bool
) -> None:
    """Wherever a batch is cut, no message is missing, counts and heads are right, and turns go on where they were."""
    for most in range(1, 21):
        one = Kernel(kernel.connection, queue=f"q{most}")
        for name, weight in zip("abc", weights, strict=True):
            one.configure(name, max_concurrency=50, weight=weight)
        _fill(one, *"abc" * 8)
        holder = open_kernel()
        if locked:
            holder.rows(
                "select from fq_message where id in (select min(m.id) from fq_message m join fq_channel c"
                " on c.id = m.channel_id where c.queue = %(queue)s group by c.id) for update",
                queue=one.queue,
            )
        left = 21 if locked else 24
        for _ in range(2):
            batch = _take(one, most * 100)
            assert len(batch) == min(most, left)
            left -= len(batch)
            if not left:
                break
            states = one.rows(
                "select s.*, m.* from fq_channel_state s cross join lateral ("
                " select count(x.lease_id) as taken, min(x.id) filter (where x.lease_id is null) as head"
                " from fq_message x where x.channel_id = s.channel_id) m where s.queue = %(queue)s",
            )
            for state in states:
                assert state["current_concurrency"] == state["taken"]
                assert state["backlog"] == 8 - state["taken"]
                assert state["head_message_id"] == state["head"]
            shares = [state["taken"] / state["weight"] for state in states if 8 - state["taken"] > locked]
            assert max(shares, default=0) - min(shares, default=0) <= 1
        holder.rollback()
