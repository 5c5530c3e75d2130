"""fq_keep_history: partitions are made ahead and dropped, while the queue goes on."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from tests.fixtures.clock import Clock
from tests.fixtures.waits import Waits
from tests.sql.answers import Hand
from tests.sql.client import HOUR, Kernel, OpenKernel, on
from tests.sql.life.verbs import history, keep_history

DAY = 24 * HOUR


def _name(clock: Clock, days: int = 0) -> str:
    return f"fq_history_p{clock.now() + timedelta(days=days):%Y%m%d}"


def _homes(kernel: Kernel) -> list[str]:
    """The partition of each row, in the order in which they were written."""
    rows = kernel.rows("select tableoid::regclass::text as home from fq_history order by id")
    return [row["home"] for row in rows]


def _attempt(kernel: Kernel) -> Hand:
    kernel.set_queue(history=True, history_retention=2 * DAY)
    kernel.enqueue("a")
    (hand,) = kernel.dequeue(lease=365 * DAY).hands
    return hand


@pytest.fixture
def noon(clock: Clock) -> Clock:
    """A clock at noon, far from the change of the day."""
    now = datetime.now(UTC)
    clock.advance(timedelta(hours=36) - timedelta(hours=now.hour, minutes=now.minute))
    return clock


def test_days_are_made_ahead_once(kernel: Kernel, noon: Clock) -> None:
    """Today and the days ahead are made; a second call finds them there; the next day one more is made."""
    assert keep_history(kernel, 2) == {_name(noon, day): "made" for day in range(3)}
    assert keep_history(kernel, 2) == {}
    noon.advance(timedelta(days=1))
    assert keep_history(kernel, 2) == {_name(noon, 2): "made"}
    kernel.complete(_attempt(kernel))
    assert _homes(kernel) == [_name(noon)]


def test_strays_move_to_their_day(kernel: Kernel, noon: Clock) -> None:
    """What the default partition took is moved whole, of today and of days without housekeeping; nothing is lost."""
    kernel.complete(_attempt(kernel))
    noon.advance(timedelta(days=1))
    kernel.complete(_attempt(kernel))
    before = history(kernel)
    assert _homes(kernel) == ["fq_history_default"] * 2
    assert keep_history(kernel, 0) == {_name(noon, -1): "made", _name(noon): "made"}
    assert history(kernel) == before
    assert _homes(kernel) == [_name(noon, -1), _name(noon)]


def test_old_days_are_dropped(kernel: Kernel, noon: Clock) -> None:
    """A day goes when its last moment is older than the longest retention, and not before; strays that old go too."""
    Kernel(kernel.connection, queue="other").set_queue(history=False, history_retention=DAY)
    kernel.complete(_attempt(kernel))
    keep_history(kernel, 0)
    day = _name(noon)
    noon.advance(timedelta(days=2))
    keep_history(kernel, 0)
    assert len(history(kernel)) == 1
    noon.advance(timedelta(days=1))
    assert keep_history(kernel, 0) == {_name(noon): "made", day: "dropped"}
    assert history(kernel) == []
    noon.advance(timedelta(days=1))
    kernel.complete(_attempt(kernel))
    noon.advance(timedelta(days=4))
    assert keep_history(kernel, 0)[_name(noon)] == "made"
    assert history(kernel) == []


def test_what_goes_is_noted(kernel: Kernel, open_kernel: OpenKernel, noon: Clock) -> None:
    """What is dropped, emptied or deleted as a stray is noted with its day and its last attempt; nothing else is."""
    positions = [_position(kernel), _position(kernel)]
    days = [_today(kernel)]
    keep_history(kernel, 0)
    assert _pruned(kernel) == []
    noon.advance(timedelta(days=3))
    keep_history(kernel, 9)
    assert _pruned(kernel) == [(*days, positions[1])]
    positions.append(_position(kernel))
    days.append(_today(kernel))
    noon.advance(timedelta(days=3))
    hand = _attempt(kernel)
    worker = open_kernel()
    worker.complete(hand)
    # A transaction that stays open after a completion keeps the day from being dropped, but not from being emptied.
    assert set(keep_history(kernel, 0).values()) == {"emptied"}
    assert history(kernel) == []
    worker.commit()
    assert "dropped" in keep_history(kernel, 0).values()
    assert len(history(kernel)) == 1
    noon.advance(timedelta(days=20))
    positions.append(_position(kernel))
    days.append(_today(kernel))
    noon.advance(timedelta(days=20))
    keep_history(kernel, 0)
    assert _pruned(kernel)[1:3] == list(zip(days[1:], positions[2:], strict=True))


def _position(kernel: Kernel) -> tuple[int, int]:
    """Record an attempt; its position in the history."""
    kernel.complete(_attempt(kernel))
    row = history(kernel)[-1]
    return int(row["recorded_xid"]), row["id"]


def _today(kernel: Kernel) -> int:
    """The day of the database's clock, counted from the epoch."""
    return int(kernel.value("select fq_now() / 86400000000"))


def _pruned(kernel: Kernel) -> list[tuple[int, tuple[int, int]]]:
    """What was taken away: the day, and the last attempt."""
    rows = kernel.rows("select * from fq_pruned_history order by id")
    assert all(row["finished_until"] - row["finished_from"] == DAY for row in rows)
    return [(row["finished_from"] // DAY, (int(row["recorded_xid"]), row["history_id"])) for row in rows]


def test_one_at_a_time(kernel: Kernel, open_kernel: OpenKernel, waits: Waits, noon: Clock) -> None:
    """While one is at it another does nothing and does not wait; if the first dies, the next does it all."""
    first = open_kernel()
    assert keep_history(first, 1) == {_name(noon): "made", _name(noon, 1): "made"}
    assert waits.unhindered(on(keep_history)) == {}
    first.rollback()
    assert keep_history(kernel, 1) == {_name(noon): "made", _name(noon, 1): "made"}


def test_completions_go_on_meanwhile(kernel: Kernel, open_kernel: OpenKernel, waits: Waits, noon: Clock) -> None:
    """While days are being made in an open transaction, completions of a day that is there do not wait."""
    hands = [_attempt(kernel), _attempt(kernel)]
    keep_history(kernel, 0)
    keeper = open_kernel()
    assert keep_history(keeper, 1) == {_name(noon, 1): "made"}
    assert waits.unhindered(on(lambda worker: worker.complete(hands[0]))) == {}
    keeper.commit()
    worker = open_kernel()
    assert worker.complete(hands[1]) == {}
    assert keep_history(kernel, 2) == {_name(noon, 2): "made"}
    worker.commit()
    assert _homes(kernel) == [_name(noon)] * 2


@pytest.mark.parametrize("verb", ["complete", "retry", "dequeue"])
def test_verbs_go_on_when_today_is_made(
    kernel: Kernel, open_kernel: OpenKernel, waits: Waits, noon: Clock, verb: str
) -> None:
    """A verb that records while the day of now gets its partition waits for that commit, and its row is there then."""
    hand = _attempt(kernel)
    if verb == "dequeue":
        kernel.rows("update fq_lease set expires_at = fq_now()")
    keeper = open_kernel()
    assert keep_history(keeper, 0) == {_name(noon): "made"}

    def work(worker: Kernel) -> object:
        if verb == "complete":
            return worker.complete(hand)
        return worker.retry(hand) if verb == "retry" else len(worker.dequeue().hands)

    rival = waits.start(on(work)).blocked()
    keeper.commit()
    assert rival.result() == (1 if verb == "dequeue" else {})
    assert _homes(kernel) == [_name(noon)]


def test_a_day_that_is_made_has_what_the_others_have(kernel: Kernel, noon: Clock) -> None:
    """A day's indexes are parts of the history's, and nothing is left of what spared the server to read it."""
    kernel.complete(_attempt(kernel))
    keep_history(kernel, 1)
    indexes = "select count(*) from pg_index where indrelid = %(table)s::regclass"
    parts = indexes + " and exists (select from pg_inherits where inhrelid = indexrelid)"
    checks = "select count(*) from pg_constraint where conrelid = %(table)s::regclass and contype = 'c'"
    for day in (_name(noon), _name(noon, 1)):
        whole = kernel.value(indexes, table="fq_history")
        assert kernel.value(indexes, table=day) == kernel.value(parts, table=day) == whole
        assert kernel.value(checks, table=day) == kernel.value(checks, table="fq_history")


def test_a_table_in_use_is_left_for_the_next_time(kernel: Kernel, open_kernel: OpenKernel, noon: Clock) -> None:
    """A completion that holds the default partition, a reader that holds all: nothing is made or dropped, no error
    comes, and the next call does it.
    """
    hand = _attempt(kernel)
    worker = open_kernel()
    worker.complete(hand)
    assert keep_history(kernel, 0) == {_name(noon): "busy"}
    assert _homes(kernel) == []
    worker.commit()
    assert keep_history(kernel, 0) == {_name(noon): "made"}
    assert _homes(kernel) == [day := _name(noon)]

    reader = open_kernel()
    history(reader)
    noon.advance(timedelta(days=4))
    assert keep_history(kernel, 0) == {_name(noon): "busy", day: "busy"}
    assert len(history(kernel)) == 1
    reader.rollback()

    assert keep_history(kernel, 0) == {_name(noon): "made", day: "dropped"}


def test_a_name_that_something_else_has(kernel: Kernel, noon: Clock) -> None:
    """The day gets a number behind its name; it is kept, found again and dropped as any other."""
    taken = ("table {} (id bigint)", "view {} as select 1 as one", "type {} as enum ('a')", "sequence {}")
    for day, thing in enumerate(taken):
        kernel.rows("create " + thing.format(_name(noon, day)))
    made = {f"{_name(noon, day)}_1": "made" for day in range(len(taken))}
    assert keep_history(kernel, len(taken) - 1) == made
    assert keep_history(kernel, len(taken) - 1) == {}
    kernel.complete(_attempt(kernel))
    assert _homes(kernel) == [f"{_name(noon)}_1"]
    noon.advance(timedelta(days=40))
    assert keep_history(kernel, 0) == {_name(noon): "made"} | dict.fromkeys(made, "dropped")


@pytest.fixture
def owner(kernel: Kernel) -> Iterator[str]:
    """A role that owns the history."""
    name = kernel.value("select current_database() || '_owner'")
    kernel.rows(f'create role "{name}"')
    kernel.rows(f'grant create, usage on schema public to "{name}"')
    kernel.rows(f'grant execute on function fq_keep_history, fq_now to "{name}"')
    for table in "fq_history", "fq_history_default", "fq_pruned_history":
        kernel.rows(f'alter table {table} owner to "{name}"')
    kernel.rows(f'grant select on fq_queue, test_clock to "{name}"')
    yield name
    kernel.rows("reset role")
    kernel.rows(f'drop owned by "{name}" cascade')
    kernel.rows(f'drop role "{name}"')


def test_days_belong_to_the_owner_whoever_makes_them(kernel: Kernel, noon: Clock, owner: str) -> None:
    """A superuser, or a member of the owner, makes days; the owner can dump and drop them."""
    member = f"{owner}_member"
    keep_history(kernel, 1)
    kernel.rows(f'create role "{member}" in role "{owner}"')
    kernel.rows(f'set role "{member}"')
    try:
        assert len(keep_history(kernel, 3)) == 2
    finally:
        kernel.rows("reset role")
        kernel.rows(f'drop role "{member}"')
    owners = "select distinct relowner::regrole::text from pg_class where starts_with(relname, 'fq_history_p')"
    assert [row["relowner"].strip('"') for row in kernel.rows(owners)] == [owner]
    noon.advance(timedelta(days=40))
    kernel.rows(f'set role "{owner}"')
    assert list(keep_history(kernel, 0).values()).count("dropped") == 4


def test_a_generated_column_of_the_users(kernel: Kernel, noon: Clock) -> None:
    """A column that the server computes is there in each day, and for what is moved into it."""
    kernel.rows("alter table fq_history add column waited bigint generated always as (started_at - ready_at) stored")
    kernel.complete(_attempt(kernel))
    before = history(kernel)
    assert keep_history(kernel, 1) == {_name(noon): "made", _name(noon, 1): "made"}
    assert history(kernel) == before
    assert _homes(kernel) == [_name(noon)]


_ATTEMPT = """
insert into fq_history (queue, channel_id, channel, message_id, kind, attempt, enqueued_at, ready_at, started_at,
  finished_at, outcome)
values ('q', 1, 'a', 1, 'work', 1, 1, 1, 1, %(at)s, 'completed')
returning id, recorded_xid::text, pg_current_xact_id()::text as xid, tableoid::regclass::text as day
"""


def test_the_history_takes_any_time(kernel: Kernel) -> None:
    """An attempt is recorded whether its day was made or not, with the next id and the transaction that wrote it."""
    kernel.rows("create table day partition of fq_history for values from (1000) to (2000)")
    rows = [kernel.rows(_ATTEMPT, at=at)[0] for at in (0, 1500, 2**62)]
    assert [row["day"] for row in rows] == ["fq_history_default", "day", "fq_history_default"]
    assert [row["id"] for row in rows] == [1, 2, 3]
    assert all(row["recorded_xid"] == row["xid"] for row in rows)
    assert kernel.value("select count(distinct recorded_xid) from fq_history") == 3


def test_an_attempt_costs_few_index_entries(kernel: Kernel) -> None:
    """An attempt maintains two trees, by record and by message, and one block range index, no unique one."""
    rows = kernel.rows("select indexdef from pg_indexes where tablename = 'fq_history_default' order by 1")
    indexes = sorted(row["indexdef"].split(" USING ")[1] for row in rows)
    assert indexes == ["brin (id)", "btree (message_id)", "btree (recorded_xid, id)"]
    assert all("UNIQUE" not in row["indexdef"] for row in rows)
