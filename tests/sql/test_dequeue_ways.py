"""fq_dequeue has short ways for what is usual: one message, an only channel, one signal, no message locked by others.
They must do what its long way would have done.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from random import Random
from typing import Any

import pytest

from sqlalchemy_fairqueue.sql.files import NEEDED_VERSION, functions
from sqlalchemy_fairqueue.sql.schema import in_schema
from tests.fixtures.clock import install_clock
from tests.fixtures.database import Database, MakeDatabase
from tests.sql.answers import Call, Hand
from tests.sql.client import HOUR, MILLISECOND, SECOND, Kernel, OpenKernel, policy_json

CHANNELS = ("a", "b", "c", "d", "e")
START = 1_700_000_000 * SECOND
# The limit asked for, the function, and how a short way in it is closed.
_ONLY = (
    "fq_dequeue",
    "  v_alone := (v_left = 1 or l.dispatch_row is not null and l.first_tag is null and l.heard + l.moved = 1)\n",
    "  v_alone := (false)\n",
)
WAYS = {
    "one": (1, *_ONLY),
    "few": (4, *_ONLY),
    "one signal": (1, "fq_hear_signals", "  if seen = 1 and not v_freeing then\n", "  if false then\n"),
}
Way = tuple[int, str, str, str]
STILL = """
create or replace function fq_now() returns bigint language sql volatile as $$
  select last_value from public.test_clock
$$
"""


class Twin:
    """A queue under a clock that stands still between steps, its consumer, and a bystander who locks rows."""

    def __init__(self, database: Database, way: Way, *, closed: bool) -> None:
        install_clock(database)
        self.kernel = Kernel.open(database.conninfo, autocommit=True)
        self.bystander = Kernel.open(database.conninfo)
        self.kernel.rows(STILL)
        self.kernel.rows("select setval('test_clock', %(at)s)", at=START)
        self.limit, function, open_way, closed_way = way
        text = functions(NEEDED_VERSION)[function].replace("create function", "create or replace function")
        assert text.count(open_way) == 1
        if closed:
            self.kernel.rows(in_schema(text.replace(open_way, closed_way), "public"))
        self.call = Call([], None, None, None, False, False, False, False)
        self.hands: list[Hand] = []

    def close(self) -> None:
        """End its connections."""
        self.bystander.connection.close()
        self.kernel.connection.close()

    def dequeue(self) -> list[object]:
        """Take what the limit allows; what came, but for what chance or the server's other databases decide."""
        self.call = self.kernel.dequeue(self.limit, lease=HOUR, lease_id=self.call.lease_id)
        self.hands += self.call.hands
        return [
            *((hand.id, hand.channel, hand.content, hand.attempt, hand.deliveries) for hand in self.call.hands),
            self.call.lease_expires_at,
            self.call.due_in,
            self.call.is_held,
        ]

    def lock(self, table: str, among: int) -> None:
        """Let the bystander lock about half of the rows of a table."""
        key = "id" if table == "fq_message" else "channel_id"
        self.bystander.rows(f"select from {table} where {key} %% 4 = %(among)s for update skip locked", among=among)

    def rows(self) -> Sequence[dict[str, Any]]:
        """The state of every channel and message, but for the names of leases."""
        return [
            *self.kernel.rows("select *, 0 as row_version from fq_channel_state order by channel_id"),
            *self.kernel.rows("select *, 0 as lease_id from fq_message order by id"),
            *self.kernel.rows("select *, null as xid from fq_signal order by id"),
            *self.kernel.rows(
                "select *, 0 as row_version, null as heard_below, null as heard_open from fq_queue_state"
            ),
        ]


@pytest.fixture
def twins(way: Way, make_database: MakeDatabase) -> Iterator[list[Twin]]:
    """A queue where a short way is taken, and one where it is closed."""
    pair = [Twin(make_database(), way, closed=closed) for closed in (False, True)]
    yield pair
    for twin in pair:
        twin.close()


def _configure(twin: Twin, chance: Random) -> None:
    for name in CHANNELS:
        twin.kernel.configure(
            name,
            chance.choice([None, None, 1, 2]),
            interval=chance.choice([0, 0, 20 * MILLISECOND]),
            burst=chance.choice([1, 3]),
            weight=chance.choice([1, 1, 2, 3]),
        )


def _step(twin: Twin, chance: Random) -> object:
    kernel = twin.kernel
    match chance.choice(["enqueue", "pass", "settle", "cancel", "lock", "unlock", *["dequeue"] * 6]):
        case "enqueue":
            several = chance.choices(CHANNELS, k=chance.randint(1, 8))
            names = chance.choice([several, several[:1] * chance.randint(1, 4)])
            urgent = [chance.choice([None, None, None, 5]) for _ in names]
            later = [None if urgency else chance.choice([None, None, 30 * MILLISECOND]) for urgency in urgent]
            return kernel.enqueue(*names, priorities=urgent, delays=later)
        case "pass":
            by = chance.choice([1, MILLISECOND, 15 * MILLISECOND, SECOND])
            kernel.rows("select setval('test_clock', last_value + %(by)s) from test_clock", by=by)
        case "settle" if twin.hands:
            hand = twin.hands.pop(chance.randrange(len(twin.hands)))
            settle = chance.choice([kernel.complete, kernel.complete, kernel.release, kernel.retry])
            # A bystander may have it locked.
            twin.bystander.rollback()
            return settle(hand)
        case "cancel":
            twin.bystander.rollback()
            return kernel.cancel(*(chance.randint(1, 100) for _ in range(3)))
        case "lock":
            twin.lock(chance.choice(["fq_message", "fq_message", "fq_channel_state"]), chance.randrange(4))
        case "unlock":
            twin.bystander.rollback()
        case "dequeue":
            return twin.dequeue()
    return None


# In lists, so that each list needs one way, and each way one list, where parameters multiply.
_POLICIES = [
    list(product([1, 2, 3], [slots], [interval], [1, 2, 3, 4, 6]))
    for slots, interval in product([None, 1, 2], [0, 20 * MILLISECOND])
]
_every_way = pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))


@pytest.mark.many(4)
@_every_way
@pytest.mark.parametrize("seed", range(8))
def test_a_short_way_does_what_the_long_one_does(twins: list[Twin], seed: int) -> None:
    """By either way: the same messages in the same order, the same rows left, whatever the channels'
    weights, limits and rates, whatever is locked.
    """
    program = [Random(seed) for _ in twins]  # noqa: S311 - both twins draw the same
    for twin, chance in zip(twins, program, strict=True):
        _configure(twin, chance)
        twin.kernel.enqueue(*CHANNELS * 4)
    for number in range(80):
        ours, theirs = [_step(twin, chance) for twin, chance in zip(twins, program, strict=True)]
        assert ours == theirs, number
        assert twins[0].rows() == twins[1].rows(), number


@_every_way
@pytest.mark.parametrize("policies", _POLICIES, ids=range(len(_POLICIES)))
def test_what_one_call_brought_is_taken_as_the_long_way_would(
    twins: list[Twin], policies: Sequence[tuple[int, int | None, int, int]]
) -> None:
    """Nothing else is in the queue: whatever the weight, the slots and the rate of the channel, however many come."""
    for number, (weight, slots, interval, count) in enumerate(policies):
        for twin in twins:
            twin.kernel.rows("select setval('test_clock', last_value + %(by)s) from test_clock", by=SECOND)
            twin.kernel.configure(f"c{number}", slots, interval=interval, burst=3, weight=weight)
            twin.dequeue()
            twin.kernel.enqueue(*[f"c{number}"] * count)
        ours, theirs = [twin.dequeue() for twin in twins]
        assert ours == theirs
        assert len(twins[0].call.hands) >= 1
        assert twins[0].rows() == twins[1].rows()
        for twin in twins:
            twin.kernel.rows("delete from fq_message")
            twin.kernel.rows(
                "update fq_channel_state set ready_tag = null, due_at = null, head_dequeue_at = null,"
                " head_message_id = null"
            )


def test_a_call_that_finds_nothing_writes_nothing(open_kernel: OpenKernel) -> None:
    """Its commit has nothing to wait for, under a lease or without one."""
    kernel = open_kernel()
    kernel.enqueue("a")
    took = kernel.dequeue(lease=HOUR)
    kernel.complete(*took.hands)
    kernel.commit()
    for limit in (1, 7):
        found = kernel.dequeue(limit, lease=HOUR, lease_id=took.lease_id)
        assert (found.hands, found.lease_id) == ([], took.lease_id)
        assert kernel.value("select pg_current_xact_id_if_assigned()") is None


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"max_concurrency": 1}, id="limit"),
        pytest.param({"rate_interval": HOUR, "rate_burst": 1}, id="rate"),
        pytest.param({"rate_interval": HOUR, "rate_burst": 1, "rate_of": "cost"}, id="rate in cost"),
        pytest.param({"max_cost_out": 1}, id="quota in cost"),
        pytest.param({"limits": ["api"]}, id="shared limit"),
    ],
)
def test_a_call_to_a_queue_that_is_full_writes_nothing(open_kernel: OpenKernel, changes: dict[str, object]) -> None:
    """Messages wait, and the limit lets none of them out, until one ends or the time has come."""
    kernel = open_kernel()
    kernel.rows("select fq_configure_limit('api', %(changes)s)", changes=policy_json(max_concurrency=1))
    kernel.rows("select fq_limit_queue('q', %(changes)s)", changes=policy_json(**changes))
    kernel.enqueue("a", "b")
    kernel.commit()
    took = kernel.dequeue(5, lease=HOUR)
    assert len(took.hands) == 1
    # One more may write where the ready order begins now.
    kernel.rows("update fq_queue_state set noted_at = 0")
    assert kernel.dequeue().hands == []
    kernel.commit()
    for limit in (1, 7):
        assert kernel.dequeue(limit, lease=HOUR, lease_id=took.lease_id).hands == []
        assert kernel.value("select pg_current_xact_id_if_assigned()") is None
    if "rate_interval" not in changes:
        kernel.complete(*took.hands)
        assert len(kernel.dequeue(5, lease=HOUR).hands) == 1
