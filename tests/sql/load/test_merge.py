"""fq_merge: what a load has staged is enqueued once, whole, and as if it had been enqueued message by message."""

import pytest
from psycopg import errors

from tests.sql.client import HOUR, SECOND, Kernel, refused
from tests.sql.life.verbs import listening, wait
from tests.sql.load.loads import Merged, copy, load, make_channels, make_stage, merge, messages, staged

pytestmark = pytest.mark.usefixtures("balanced")


def test_only_the_attempts_that_count_are_merged(kernel: Kernel) -> None:
    """A part that two tasks have copied is enqueued once, from the one that counts; all of it is delivered."""
    stage = make_stage(kernel)
    copy(kernel, stage, "a", "b", attempt=1)
    copy(kernel, stage, "a", "b", attempt=2)
    copy(kernel, stage, "c", "a", attempt=3)
    assert make_channels(kernel, stage, 2, 3) == 3
    assert merge(kernel, stage, 4, 2, 3) == Merged(True, 4, 4, 0, 0, 0, 0)
    assert sorted(kernel.dequeue(10).channels) == ["a", "a", "b", "c"]


def test_a_signal_says_when_the_first_is_due(kernel: Kernel) -> None:
    """One a channel, which is scheduled by it; messages with a key have one of their own, and all are counted."""
    load(
        kernel,
        *"aaabbcc",
        delay=[HOUR, None, 2 * HOUR, 3 * HOUR, 2 * HOUR, HOUR, None],
        priority=[None, 5, *[None] * 5],
        key=[*[None] * 5, "1", "2"],
    )
    told = """
      select c.name, g.added, g.dequeue_at = m.least as due, g.message_id <= m.first as below
      from fq_signal g
      join fq_channel c on c.id = g.channel_id
      cross join lateral (
        select min(m.dequeue_at) as least, min(m.id) as first from fq_message m where m.channel_id = c.id
      ) m
      order by c.name
    """
    assert [tuple(row.values()) for row in kernel.rows(told)] == [
        ("a", 3, True, True),
        ("b", 2, True, True),
        ("c", 2, True, True),
    ]
    assert sorted(kernel.dequeue(10).channels) == ["a", "c"]


def test_the_same_job_adds_nothing(kernel: Kernel) -> None:
    """The second time nothing happens, and the counts are those of the first."""
    assert load(kernel, "a", "b").merged
    assert load(kernel, "a", "b", "c") == Merged(False, 2, 2, 0, 0, 0, 0)
    assert load(kernel, "c", job="other").merged
    assert messages(kernel) == [("a", "a"), ("b", "b"), ("c", "c")]


def test_a_batch_is_merged_once_and_in_order(kernel: Kernel) -> None:
    """Of a stream each batch counts once; one that comes again after a restart adds nothing."""
    stage = staged(kernel, "a")
    done = [merge(kernel, stage, 1, batch=batch, source="query").merged for batch in (0, 0, 1, 0, 1, 2)]
    assert done == [True, False, True, False, False, True]
    # With another checkpoint the numbers of its batches mean nothing: they would be passed over in silence.
    for batch, source in ((0, "another query"), (None, None)):
        with refused(match="job job of queue q was another load"):
            merge(kernel, stage, 1, batch=batch, source=source)
    assert len(messages(kernel)) == 3


def test_a_stage_that_lost_rows_is_refused(kernel: Kernel) -> None:
    """A crash of the server empties unlogged tables: nothing is enqueued, and the job may be run again."""
    stage = staged(kernel, "a", "b")
    with refused("QF006", match="the stage of job job has 2 of 3 messages"):
        merge(kernel, stage, 3)
    assert merge(kernel, stage, 2).merged


def test_messages_that_a_trigger_keeps_out_are_missed(kernel: Kernel) -> None:
    """What a channel is told to have must be there: a load of which a part is not added fails whole."""
    kernel.rows("create function refuse() returns trigger language plpgsql as 'begin return null; end'")
    kernel.rows(
        "create trigger refuse before insert on fq_message for each row"
        " when (new.kind = 'bad') execute function refuse()"
    )
    for kinds in (["bad", "work"], ["work", "bad"]):
        with refused("QF006", match="1 of 2 messages without a key of job job could be added"):
            load(kernel, "a", "b", kind=kinds)
    assert messages(kernel) == []


def test_channels_must_be_there(kernel: Kernel) -> None:
    """A first use belongs into a transaction of its own, so the merge makes none."""
    stage = make_stage(kernel)
    copy(kernel, stage, "a", "b")
    with refused(match="channel a of queue q does not exist"):
        merge(kernel, stage, 2)
    assert [make_channels(kernel, stage, limit=1) for _ in range(3)] == [1, 1, 0]
    assert merge(kernel, stage, 2).created == 2


@pytest.mark.parametrize("aging", [None, SECOND])
@pytest.mark.parametrize("key", [None, "k"])
def test_a_priority_from_a_time_on(kernel: Kernel, key: str | None, aging: int | None) -> None:
    """A message with a priority and a time is due then, and has its priority from then on; the others as ever."""
    if aging:
        kernel.set_queue(defaults={"priority_aging": aging})
    load(kernel, *"aab", delay=[HOUR, None, None], priority=[5, 7, 3], key=[key, None, None])
    rows = kernel.rows(
        "select c.name, m.* from fq_message m join fq_channel c on c.id = m.channel_id order by priority"
    )
    now = rows[0]["enqueued_at"]
    assert [row["priority"] for row in rows] == [3, 5, 7]
    assert rows[1]["dequeue_at"] in range(now + HOUR, now + HOUR + 60 * SECOND)
    if aging:
        assert now - 3 * SECOND - 5 <= rows[0]["dequeue_at"] <= now - 2 * SECOND
    else:
        assert (rows[0]["dequeue_at"], rows[2]["dequeue_at"]) == (-3, -7)
    promotions = kernel.rows("select due_at, message_id from fq_promotion")
    assert promotions == [{"due_at": rows[1]["dequeue_at"], "message_id": rows[1]["id"]}]


def test_times_and_priorities(kernel: Kernel) -> None:
    """A delay counts from the merge, a time in the past is now, a priority goes first."""
    now = kernel.value("select fq_now()")
    nothing = [None] * 4
    load(
        kernel,
        *"abcd",
        delay=[HOUR, None, None, None],
        at=[None, now + 2 * HOUR, 1, None],
        priority=[*nothing[:3], 5],
        max_attempts=[*nothing[:3], 3],
        cost=[7, *nothing[:3]],
        headers=['{"x": 1}', *nothing[:3]],
    )
    rows = {
        row["name"]: row
        for row in kernel.rows("select c.name, m.* from fq_message m join fq_channel c on c.id = m.channel_id")
    }
    assert rows["a"]["dequeue_at"] - now in range(HOUR, HOUR + 60 * SECOND)
    assert rows["b"]["dequeue_at"] == now + 2 * HOUR
    assert rows["c"]["dequeue_at"] == rows["c"]["enqueued_at"]
    assert (rows["d"]["dequeue_at"], rows["d"]["max_attempts"], rows["a"]["max_attempts"]) == (-5, 3, 20)
    assert rows["a"]["headers"] == {"x": 1}
    assert (rows["a"]["cost"], rows["b"]["cost"]) == (7, None)


@pytest.mark.parametrize(
    ("on", "counts", "left"),
    [
        ("skip", Merged(True, 3, 1, 0, 2, 0, 0), [("a", "a"), ("b", "b")]),
        ("replace", Merged(True, 3, 1, 2, 0, 0, 0), [("a", "third"), ("b", "second")]),
    ],
)
def test_keys(kernel: Kernel, on: str, counts: Merged, left: list[tuple[str, str]]) -> None:
    """A key stands once, whether another transaction has it or the load brings it twice."""
    kernel.enqueue("a", keys=["1"], contents=[b"a"])
    contents = [b"first", b"b", b"third"] if on == "skip" else [b"first", b"second", b"third"]
    assert load(kernel, "a", "b", "a", key=["1", "1", "1"], content=contents, on=on) == counts
    assert messages(kernel) == left


def test_keys_that_stand_fail_the_load_when_told(kernel: Kernel) -> None:
    """With raise nothing of the load is enqueued, not even what could be."""
    kernel.enqueue("a", keys=["1"])
    with refused("QF002", match="1 of 3 messages of job job have a key that stands"):
        load(kernel, "a", "a", "b", key=["1", "2", None], on="raise")
    assert kernel.value("select count(*) from fq_message") == 1
    assert load(kernel, "b", on="raise").created == 1


def test_a_message_in_hand_gives_its_key_up(kernel: Kernel) -> None:
    """Replacing one that a consumer has adds another: the one in hand is not touched."""
    kernel.enqueue("a", keys=["1"], contents=[b"old"])
    (hand,) = kernel.dequeue().hands
    assert load(kernel, "a", key=["1"], content=[b"new"], on="replace").created == 1
    assert kernel.complete(hand) == {}
    assert messages(kernel) == [("a", "new")]


@pytest.mark.parametrize("keyed", [False, True])
def test_a_full_channel_fails_the_load(kernel: Kernel, keyed: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """A bound holds for loads too: one message too many and nothing is enqueued, or as many as there is room for; what
    is dropped is counted.
    """
    stage = staged(kernel, *"aaab", key=list("1234") if keyed else [None] * 4, max_backlog=2)
    with refused("QF005", match="channel a of queue q has no room for the messages of job job"):
        merge(kernel, stage, 4)
    assert messages(kernel) == []
    kernel.rows("select fq_configure_channel('q', 'a', '{\"on_full\": \"drop\"}')")
    assert merge(kernel, stage, 4) == Merged(True, 4, 3, 0, 0, 1, 0)
    assert messages(kernel) == [("a", "a"), ("a", "a"), ("b", "b")]


def test_waiting_consumers_are_woken_by_the_commit(kernel: Kernel) -> None:
    """One notification, and none when nothing was added."""
    lease, topic = wait(kernel)
    with listening(kernel) as heard:
        load(kernel, "a", "b")
        load(kernel, "a", "b")
    assert heard == [f"{lease}:{topic}"]


def test_a_stage_that_is_gone(kernel: Kernel) -> None:
    """Whoever dropped it, nothing is enqueued and the job is not taken for done."""
    stage = make_stage(kernel)
    kernel.rows(f"drop table public_stages.{stage}")
    with pytest.raises(errors.UndefinedTable):
        merge(kernel, stage, 0)
    assert kernel.value("select count(*) from fq_load") == 0


def test_costs_are_kept_where_messages_are_enqueued_one_by_one(kernel: Kernel) -> None:
    """In a channel with a bound too, and under a key, a message has the cost that the stage has."""
    kernel.set_queue(defaults={"max_backlog": 10})
    load(kernel, *"aab", cost=[7, None, 9], key=["k", None, None])
    rows = kernel.rows("select m.cost from fq_message m order by m.cost")
    assert [row["cost"] for row in rows] == [7, 9, None]


def test_ordering_keys(kernel: Kernel) -> None:
    """Messages of an ordering key go one at a time, as they were copied, also where they are enqueued one by one."""
    kernel.rows("select fq_configure_channel('q', 'b', '{\"max_backlog\": 100}')")
    kernel.commit()
    count = 40
    names, keys = ["a", "b"] * count, ["k", "k", None, None] * (count // 2)
    contents = [str(number).encode() for number in range(2 * count)]
    stage = make_stage(kernel)
    copy(kernel, stage, *names, ordering_key=keys, content=contents)
    # Now the rows stand in another order.
    kernel.rows(f"update public_stages.{stage} set kind = kind where ordinal % 3 = 0")
    make_channels(kernel, stage)
    assert merge(kernel, stage, 2 * count).created == 2 * count
    held = [number for number, key in enumerate(keys) if key]
    found = []
    while hands := [hand for _ in range(2) for hand in kernel.dequeue(100).hands]:
        numbers = [int(hand.content) for hand in hands]
        assert sum(number in held for number in numbers if names[number] == "a") <= 1
        found += numbers
        kernel.complete(*hands)
    for name in "ab":
        assert [number for number in found if names[number] == name and number in held] == [
            number for number in held if names[number] == name
        ]
    assert sorted(found) == list(range(2 * count))
