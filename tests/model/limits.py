"""The machine of limits: the rules of the machine, and rates of the queue, and a limit that a rival draws from too."""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from sqlalchemy_fairqueue import Delivery, Rate
from sqlalchemy_fairqueue.reports import Deliveries
from tests.model.batches import Batching
from tests.model.books import QueueLimits
from tests.model.business import TRANSACTIONS
from tests.model.rates import Drawn, RateCell, SharedRoom
from tests.model.turns import cost_of
from tests.model.work import Limited
from tests.model.world import TICK

SHARED = "shared"
RATES = st.none() | st.builds(Rate, st.sampled_from([1, 50]), burst=st.integers(1, 4))
# No program takes so long: the rival's slots stay its own until it gives them back.
_LEASE = timedelta(days=30)
_STEPS = 100 * TICK


class LimitsMachine(Batching):
    """Limits of the queue as a whole: its rate, and one that it shares with a rival of one channel."""

    def __init__(self) -> None:
        super().__init__()
        self.world.rows("truncate fq_limit, fq_limit_share")
        self.shared_most: int | None = None
        self.drawn = Drawn()
        self.rival = self.world.queue("rival")
        self.held: list[Delivery] = []
        self.rival.limits.configure(self.world.engine, SHARED, max_concurrency=None)
        self.rival.configure(self.world.engine, limits=[SHARED])

    @initialize(most=st.none() | st.integers(1, 6), rate=RATES, own=RATES)
    def begin_limited(self, most: int | None, rate: Rate | None, own: Rate | None) -> None:
        """Most programs begin with a queue that draws from the shared limit, and some with a rate of its own."""
        self.change_shared_limit(most, rate)
        self.share_limit(None, shared=most is not None or rate is not None, now=True)
        self.limit_rate(None, own, now=True)

    @rule(tx=st.none() | TRANSACTIONS, rate=RATES, now=st.booleans())
    def limit_rate(self, tx: int | None, rate: Rate | None, *, now: bool) -> None:
        """Set a rate of the whole queue, or lift it."""
        rate = self.rated(rate)
        work = Limited(QueueLimits(rate=rate), frozenset({"rate"}))
        self.change(tx, work, partial(self.queue.configure, rate=rate), now=now)

    @rule(tx=st.none() | TRANSACTIONS, shared=st.sampled_from([True, True, False]), now=st.booleans())
    def share_limit(self, tx: int | None, *, shared: bool, now: bool) -> None:
        """Draw from the shared limit from now on, or from none."""
        work = Limited(QueueLimits(shared=shared), frozenset({"shared"}))
        limits = [SHARED] if shared else None
        self.change(tx, work, partial(self.queue.configure, limits=limits), now=now)

    @rule(most=st.none() | st.integers(1, 6), rate=RATES)
    def change_shared_limit(self, most: int | None, rate: Rate | None) -> None:
        """Set the shared limit, raise it, lower it, lift it."""
        if self.others().gate:
            # It would wait for who makes the queue draw from it.
            return
        rate = self.rated(rate)
        self.rival.limits.configure(self.world.engine, SHARED, max_concurrency=most, rate=rate)
        self.shared_most = most
        self.drawn = Drawn(RateCell(rate))

    @rule(count=st.integers(1, 4))
    def rival_takes(self, count: int) -> None:
        """The rival adds messages and takes as many as it is let."""
        for number in range(count):
            self.rival.enqueue(self.world.engine, channel="r", payload=number, cost=cost_of(number))
        before = self.world.pass_by((one.expires_at for one in self.books.leases.values()), _STEPS, _STEPS)
        batch = self.rival.dequeue(self.world.engine, limit=count, lease=_LEASE)
        self._note_abandoned(before)
        out = self._out()
        self.held += batch
        assert self.shared_most is None or not batch or out + len(batch) <= self.shared_most, (
            f"the rival got {len(batch)}, {out} were out, the shared limit is {self.shared_most}"
        )
        self.drawn.add([cost_of(one.payload) for one in batch], before, self.world.now())
        self.saw("the rival took messages" if batch else "the rival was held back")

    def _note_abandoned(self, now: int) -> None:
        """At a full limit the rival attends to the queue if that has no consumer any more: it takes back what expired,
        and promotes what came due.
        """
        due = {
            one.id: one.dequeue_at
            for one in self.books.messages.values()
            if one.promoted_at is not None and one.promoted_at <= now
        }
        rows = self.world.rows("select id, dequeue_at from fq_message where id = any (%(ids)s)", ids=list(due))
        if any(due[id_] != at for id_, at in rows):
            self.books.promote(now, self.others().messages)
        expired = [
            one.id
            for one in self.books.messages.values()
            if one.lease_id is not None and self.books.leases[one.lease_id].expires_at <= now
        ]
        if expired and not any(one.expires_at > now for one in self.books.leases.values()):
            held = self.world.rows(
                "select id from fq_message where id = any (%(ids)s) and lease_id is not null", ids=expired
            )
            if len(held) < len(expired):
                others = self.others()
                self.books.reclaim(now, others.messages, others.leases)
                self.saw("the rival took back what was abandoned")

    @rule(which=st.integers(0, 5))
    @precondition(lambda self: self.held)
    def rival_completes(self, which: int) -> None:
        """The rival gives a slot back, which counts until it is heard."""
        self.rival.complete(self.world.engine, self.held.pop(which % len(self.held)))

    def spoil(self, which: int, how: str) -> None:
        """No rule here: when a dequeue sets bad rows aside, its draws are at instants that are not known."""

    def shared_room(self) -> SharedRoom:
        """The room in the shared limit: the rival's slots count until the rival has heard that they are free."""
        if not self.books.limits.shared:
            return SharedRoom()
        [[rate_at, rival_out, waits_until]] = self.world.rows(
            "select s.rate_at, coalesce(q.current_concurrency, 0), m.contends_until from fq_limit_share s "
            "join fq_limit_share m on m.queue = 'rival' left join fq_queue_state q on q.queue = 'rival' "
            "where s.queue = ''"
        )
        free = None if self.shared_most is None else max(0, self.shared_most - rival_out - self.books.out()[0])
        return SharedRoom(free, RateCell(self.drawn.cell.rate, rate_at), contended=waits_until > self.world.now())

    def note_drawn(self, costs: Sequence[int], now: int) -> None:
        """The rate of the shared limit holds for both queues together; so does its number of slots."""
        if not self.books.limits.shared or not costs:
            return
        self.drawn.add(costs, now - TICK, self.world.now())
        self.saw(f"dequeue drew {'cost' if self.drawn.cell.metered else 'messages'} from the shared limit")
        out = self._out() + len(costs)
        assert self.shared_most is None or out <= self.shared_most, f"{out} are out, the limit is {self.shared_most}"

    def _out(self) -> int:
        return len(self.held) + (self.books.out()[0] if self.books.limits.shared else 0)

    def _drain(self) -> None:
        """The rival leaves first, and leaves nothing behind that counts."""
        self.rival.complete(self.world.engine, self.held)
        self.held.clear()
        self.rival.purge(self.world.engine, "r")
        assert list(self.rival.dequeue(self.world.engine)) == []
        super()._drain()

    def _drained(self) -> Deliveries:
        """At a full limit consumers poll, and only a lease that expires makes room."""
        if self.shared_room().free == 0:
            out = [one.lease_id for one in self.books.messages.values() if one.lease_id is not None]
            first = min(self.books.leases[one].expires_at for one in out)
            self.world.advance(timedelta(microseconds=max(TICK, first - self.world.now())))
        return super()._drained()
