"""Rules of administrators: policies, bounds, pauses, limits, history, purges of channels."""

from dataclasses import replace
from functools import partial

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from sqlalchemy_fairqueue import ChannelPolicy, Rate
from sqlalchemy_fairqueue.times import duration
from sqlalchemy_fairqueue.values.policies import POLICY
from tests.model.books import QueueLimits
from tests.model.business import CHANNELS, TRANSACTIONS, Business
from tests.model.work import Configured, Defaulted, Limited, Paused, Purged, Recorded

POLICIES = st.builds(
    ChannelPolicy,
    max_concurrency=st.none() | st.integers(1, 3),
    max_cost_out=st.none() | st.integers(1, 9),
    rate=st.none() | st.builds(Rate, st.sampled_from([1, 50]), burst=st.integers(1, 3)),
    weight=st.integers(1, 3),
    max_backlog=st.none() | st.integers(1, 6),
    on_full=st.sampled_from(["raise", "drop"]),
    priority_aging=st.none() | st.sampled_from([1_000, 400_000, 40_000_000]).map(duration),
)
BOUNDS = st.builds(ChannelPolicy, max_backlog=st.integers(1, 5), on_full=st.sampled_from(["raise", "drop", "drop"]))

_RARE = 12


class Administration(Business):
    """What administrators do, at once or in a transaction."""

    @initialize(quotas=st.dictionaries(CHANNELS, st.integers(1, 9), max_size=2))
    def begin_with_quotas(self, quotas: dict[str, int]) -> None:
        """Some channels have a quota from the first step on."""
        for channel, most in quotas.items():
            self.configure(None, channel, ChannelPolicy(max_cost_out=most), now=True)

    @rule(tx=st.none() | TRANSACTIONS, channel=CHANNELS, policy=POLICIES | BOUNDS, now=st.booleans())
    def configure(self, tx: int | None, channel: str, policy: ChannelPolicy, *, now: bool) -> None:
        """Set a limit, a rate, a weight or a bound, raise it, lower it, lift it."""
        policy = self.told(policy)
        perform = partial(self.queue.configure_channel, channel=channel, policy=policy)
        self.change(tx, Configured(channel, policy), perform, now=now)

    @rule(
        tx=st.none() | TRANSACTIONS,
        channel=CHANNELS,
        policy=POLICIES,
        names=st.sets(st.sampled_from(tuple(POLICY)), min_size=1, max_size=2),
        now=st.booleans(),
    )
    def change_fields(self, tx: int | None, channel: str, policy: ChannelPolicy, names: set[str], *, now: bool) -> None:
        """Change some fields of a channel's policy, whatever the others are by then."""
        policy = self.told(policy)
        given = {name: getattr(policy, name) for name in sorted(names)}
        perform = partial(self.queue.configure_channel, channel=channel, **given)
        self.change(tx, Configured(channel, policy, changes=frozenset(names)), perform, now=now)

    @rule(tx=st.none() | TRANSACTIONS, policy=st.just(ChannelPolicy()) | POLICIES | BOUNDS, now=st.booleans())
    def set_defaults(self, tx: int | None, policy: ChannelPolicy, *, now: bool) -> None:
        """Set the policy of channels that will be made."""
        policy = self.told(policy)
        self.change(tx, Defaulted(policy), partial(self.queue.configure, defaults=policy), now=now)

    def told(self, policy: ChannelPolicy) -> ChannelPolicy:
        """The policy; its rate is in cost, if those of the program are."""
        return replace(policy, rate=self.rated(policy.rate))

    def rated(self, rate: Rate | None) -> Rate | None:
        """A rate, in cost if those of the program are."""
        return Rate.every(rate.interval, rate.burst, "cost") if rate and self.metered else rate

    @rule(tx=st.none() | TRANSACTIONS, channel=st.none() | CHANNELS | CHANNELS, paused=st.booleans(), now=st.booleans())
    def pause(self, tx: int | None, channel: str | None, *, paused: bool, now: bool) -> None:
        """Stop or go on serving a channel or the queue."""
        if channel is not None and channel not in self.books.channels:
            # To resume it would fail.
            paused = True
        queue = self.queue
        perform = partial(queue.pause, channel=channel, new=True) if paused else partial(queue.resume, channel=channel)
        self.change(tx, Paused(channel, paused), perform, now=now)

    @rule(
        tx=st.none() | TRANSACTIONS,
        most=st.none() | st.integers(1, 5),
        most_cost=st.none() | st.integers(3, 15),
        now=st.booleans(),
    )
    def limit_queue(self, tx: int | None, most: int | None, most_cost: int | None, *, now: bool) -> None:
        """Set the limits of the whole queue, raise them, lower them, lift them."""
        work = Limited(QueueLimits(most, most_cost), frozenset({"most", "most_cost"}))
        perform = partial(self.queue.configure, max_concurrency=most, max_cost_out=most_cost)
        self.change(tx, work, perform, now=now)

    @rule(tx=st.none() | TRANSACTIONS, history=st.sampled_from([True, True, False]), now=st.booleans())
    def record_history(self, tx: int | None, *, history: bool, now: bool) -> None:
        """Keep every attempt from now on, or none; those that are under way end as they began."""
        self.change(tx, Recorded(history), partial(self.queue.configure, history=history), now=now)

    @rule(tx=st.none() | TRANSACTIONS, which=st.integers(0, _RARE), now=st.booleans())
    def purge(self, tx: int | None, which: int, *, now: bool) -> None:
        """Delete what a channel has in nobody's hands, and leave what others hold or have locked."""
        waiting = sorted({one.channel for one in self.books.messages.values() if one.lease_id is None})
        channel = waiting[which % len(waiting)] if waiting and which < _RARE else "a"
        self.change(tx, Purged(channel), partial(self.queue.purge, channel=channel), now=now)

    def resume_all(self) -> None:
        """Whatever is paused goes on."""
        for channel in [name for name, one in self.books.channels.items() if one.paused]:
            self.pause(None, channel, paused=False, now=True)
        if self.books.paused:
            self.pause(None, None, paused=False, now=True)
