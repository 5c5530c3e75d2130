"""Priorities: the order that they give, from the time on when a message is due, through retries and redrives."""

from collections.abc import Iterator

import pytest
from psycopg.types.json import Jsonb

from tests.fixtures.clock import install_clock
from tests.fixtures.database import Database
from tests.sql.answers import Hand
from tests.sql.client import HOUR, SECOND, Kernel, OpenKernel
from tests.sql.kernel.verbs import channel_stats, stats
from tests.sql.plans import assert_frugal

START = 1_700_000_000 * SECOND
MINUTE = 60 * SECOND


@pytest.fixture
def still(database: Database) -> Iterator[Kernel]:
    """A connection to a database whose clock stands still until ``wait`` moves it."""
    install_clock(database)
    database.execute(
        "create or replace function fq_now() returns bigint language sql volatile as "
        "$$ select last_value from public.test_clock $$"
    )
    kernel = Kernel.open(database.conninfo, autocommit=True)
    wait(kernel, 0)
    yield kernel
    kernel.connection.close()


def wait(kernel: Kernel, time: int) -> None:
    """Set the clock so much after the start."""
    kernel.rows("select setval('public.test_clock', %(now)s)", now=START + time)


def aging(kernel: Kernel, channel: str, step: int | None) -> None:
    """Set how much waiting a step of priority outweighs."""
    kernel.rows(
        "select fq_configure_channel(%(queue)s, %(channel)s, %(changes)s)",
        channel=channel,
        changes=Jsonb({"priority_aging": step}),
    )


def take(kernel: Kernel, limit: int = 1, *, lease: int = HOUR) -> list[Hand]:
    """Messages as they are delivered, in moments of their own."""
    kernel.rows("select setval('public.test_clock', nextval('public.test_clock') + 9)")
    return kernel.dequeue(limit, lease=lease).hands


def order(kernel: Kernel, limit: int = 100) -> list[int]:
    """The messages that are ready, in the order of their delivery, each completed."""
    found = []
    while hands := take(kernel, limit):
        found += [hand.id for hand in hands]
        kernel.complete(*hands)
    return found


def ids(kernel: Kernel, *priorities: int | None, **more: object) -> list[int]:
    """Enqueue one message a priority in channel a; their ids."""
    added = kernel.enqueue(*"a" * len(priorities), priorities=priorities, **more)  # type: ignore[arg-type]
    return [one.message_id for one in added]


@pytest.mark.parametrize("limit", [1, 100])
def test_a_scheduled_message_has_its_priority_when_it_is_due(still: Kernel, limit: int) -> None:
    """Before its time nobody gets it; then it comes before all of a lower priority, also those enqueued earlier."""
    [plain, low] = ids(still, None, 1)
    [late, urgent] = ids(still, None, 5, delays=[MINUTE, MINUTE])
    [more] = ids(still, 3, ats=[START + MINUTE - SECOND // 2])
    assert take(still)[0].id == low
    wait(still, MINUTE - SECOND)
    still.release(*take(still, limit))
    wait(still, MINUTE)
    assert order(still, limit) == [urgent, more, plain, late]
    assert still.value("select count(*) from fq_promotion") == 0


@pytest.mark.parametrize("verb", ["retry", "release"])
def test_a_priority_outlives_a_delay(still: Kernel, verb: str) -> None:
    """A message that is given back with a delay has its priority again when it is due."""
    [urgent] = ids(still, 7)
    hand = take(still)[0]
    getattr(still, verb)(hand, delay=MINUTE)
    [plain, low] = ids(still, None, 1)
    assert stats(still)["scheduled"] == 1
    wait(still, MINUTE)
    assert [hand.id for hand in take(still, 2)] == [urgent, low]
    assert stats(still)["ready"] == 1
    assert order(still) == [plain]


@pytest.mark.parametrize("given", [(None, 0), (9, 0), (9, MINUTE)])
def test_a_replacement_brings_its_own_priority(still: Kernel, given: tuple[int | None, int]) -> None:
    """A message that is rewritten has the time and the priority of the one that replaced it, and no other."""
    priority, delay = given
    [first, other] = ids(still, 5, 7, delays=[HOUR, None], keys=["k", None])
    still.rows(
        "select * from fq_enqueue('q', '{a}', '{work}', array['']::bytea[], array[null]::jsonb[],"
        " array[%(delay)s]::bigint[], '{null}', array[%(priority)s]::integer[], '{k}', '{null}',"
        " p_on_duplicates => '{replace}')",
        delay=delay,
        priority=priority,
    )
    wait(still, MINUTE)
    assert order(still) == ([first, other] if priority else [other, first])
    wait(still, 2 * HOUR)
    assert order(still) == []
    assert still.value("select count(*) from fq_promotion") == 0


def test_a_message_that_is_locked_is_promoted_later(still: Kernel, open_kernel: OpenKernel) -> None:
    """Nobody waits for a transaction that has the message; the next call after it gives the message its position."""
    [plain] = ids(still, None)
    [urgent] = ids(still, 5, delays=[MINUTE])
    other = open_kernel()
    other.rows("select from fq_message where id = %(id)s for update", id=urgent)
    wait(still, MINUTE)
    hands = take(still)
    assert [hand.id for hand in hands] == [plain]
    still.release(*hands)
    other.rollback()
    assert order(still) == [urgent, plain]


@pytest.mark.parametrize("limit", [1, 100])
def test_aging_weighs_priority_against_waiting(still: Kernel, limit: int) -> None:
    """A message goes before those that became ready up to so many steps before it, and behind those before them."""
    aging(still, "a", MINUTE)
    [old] = ids(still, None)
    wait(still, MINUTE + SECOND)
    [younger] = ids(still, None)
    wait(still, 2 * MINUTE - SECOND)
    [low, middle, high] = [ids(still, priority)[0] for priority in (1, 2, 3)]
    assert order(still, limit) == [high, middle, old, low, younger]


def test_urgent_messages_starve_nobody_with_aging(still: Kernel) -> None:
    """An endless stream of prioritised messages lets an ordinary one come after as long as its priority is worth."""
    aging(still, "a", SECOND)
    [plain] = ids(still, None)
    for second in range(12):
        wait(still, second * SECOND)
        ids(still, 10)
        hand = take(still)[0]
        still.complete(hand)
        if hand.id == plain:
            break
    assert second == 10


def test_aging_counts_from_the_time_when_a_message_is_due(still: Kernel) -> None:
    """A scheduled, a retried and a redriven message are weighed as if they had come when they were due."""
    aging(still, "a", MINUTE)
    [retried] = ids(still, 2)
    [hand] = take(still)
    [scheduled] = ids(still, 1, delays=[10 * MINUTE])
    still.retry(hand, delay=10 * MINUTE)
    wait(still, 8 * MINUTE + SECOND)
    [early] = ids(still, None)
    wait(still, 9 * MINUTE + SECOND)
    [late] = ids(still, None)
    wait(still, 11 * MINUTE)
    assert order(still) == [retried, early, scheduled, late]


@pytest.mark.parametrize("step", [1, 31_536_000_000_000])
def test_extremes_of_aging(still: Kernel, step: int) -> None:
    """The greatest priority and the longest step order messages, and keep them readable."""
    aging(still, "a", step)
    [plain, great] = ids(still, None, 2**31 - 1)
    assert order(still) == [great, plain]
    with pytest.raises(Exception, match="priority_aging"):
        aging(still, "a", 0)


def test_stats_know_since_when_a_promoted_message_waits(still: Kernel) -> None:
    """The oldest ready message waits since it was due, not since it was enqueued."""
    ids(still, 5, delays=[MINUTE])
    wait(still, 2 * MINUTE)
    still.release(*take(still, 9))
    ids(still, 6, delays=[MINUTE])
    wait(still, 4 * MINUTE)
    still.release(*take(still))
    assert stats(still)["oldest_ready_at"] >= START + MINUTE
    assert channel_stats(still)["a"]["oldest_ready_at"] >= START + MINUTE


def test_promotions_are_frugal(still: Kernel) -> None:
    """Among ten thousand scheduled messages with a priority those that are due are found by index."""
    ids(still, *[5] * 3, delays=[MINUTE] * 3)
    still.rows(
        "with made as (insert into fq_message"
        " (channel_id, kind, content, dequeue_at, enqueued_at, max_attempts, priority)"
        " select c.id, 'work', '', %(at)s + n, %(at)s, 20, 3 from fq_channel c cross join generate_series(1, 10000) n"
        " returning id, dequeue_at) insert into fq_promotion select 'q', dequeue_at, id from made",
        at=START + HOUR,
    )
    still.hear()
    wait(still, MINUTE)
    assert_frugal(still, 12, lambda: still.dequeue(1))
    wait(still, HOUR + 4)
    assert_frugal(still, 24, lambda: still.dequeue(1))
