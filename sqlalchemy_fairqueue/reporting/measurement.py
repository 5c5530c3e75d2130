"""Measures a history in an Arrow table: calculates the figures of its queues and channels, without Spark."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.reporting import kernel
from sqlalchemy_fairqueue.reporting.columns import OUTCOMES, QueueAttempts, check_ids
from sqlalchemy_fairqueue.reporting.errors import HistoryEmpty, empty_history, mixed_history
from sqlalchemy_fairqueue.reporting.fair_shares import Division, grouped, shown_window, spread_of
from sqlalchemy_fairqueue.reporting.figures import (
    ChannelFigures,
    Figures,
    Outcomes,
    PlanFigures,
    QueueFigures,
    Ratios,
    Spread,
    Starvation,
    WindowFigures,
)
from sqlalchemy_fairqueue.reporting.simulation.state import compiled, fill, objects, records
from sqlalchemy_fairqueue.times import duration, instant, microseconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from sqlalchemy_fairqueue.reporting.fair_shares import FairShares
    from sqlalchemy_fairqueue.reporting.figures import Policy

    Numbers = NDArray[np.int64]
    Policies = Mapping[tuple[str, str], Policy]

# For fewer attempts than this, compiling the kernel takes longer than interpreting it.
_WORTH_COMPILING = 100_000
_THOUSAND = 1000
# The least service time in the slowdown, in microseconds.
_LEAST_SERVICE = 10_000


class MeasuredQueue(NamedTuple):
    """The figures of a queue, its channels and its plans. *ids* has the id of each of *channels*, in their order."""

    queue: QueueFigures
    channels: list[ChannelFigures]
    ids: list[int]
    plans: list[PlanFigures]


def measure_queue(
    rows: pa.Table, policies: Policies, window: timedelta | None = None, *, compile_: bool | None = None
) -> MeasuredQueue:
    """Measure one queue from its attempts; raise InvalidArgument if two channels have the same id.

    Channels without a policy have weight 1 and no limits. *window* is the width of the windows over time; None: a width
    that gives about 240 windows or fewer. *compile_* says whether numba compiles the kernel; None: for long histories.
    """
    check_ids(rows)
    return _Queue(QueueAttempts(rows), policies, window, compile_=compile_).figures()


def figures_of(measured: Sequence[MeasuredQueue]) -> Figures:
    if not measured:
        raise HistoryEmpty(empty_history())
    measured = sorted(measured, key=lambda one: one.queue.queue)
    known: dict[int, tuple[str, str]] = {}
    for one in measured:
        for channel_id, channel in zip(one.ids, one.channels, strict=True):
            other = known.setdefault(channel_id, (channel.queue, channel.channel))
            if other != (channel.queue, channel.channel):
                raise InvalidArgument(mixed_history(channel_id, *sorted((other, (channel.queue, channel.channel)))))
    channels = [channel for one in measured for channel in one.channels]
    channels.sort(key=lambda one: (-one.denied_wait, -one.mean_wait, one.queue, one.channel))
    plans = [plan for one in measured for plan in one.plans]
    return Figures(tuple(one.queue for one in measured), tuple(channels), tuple(plans))


class _Queue:
    def __init__(
        self, attempts: QueueAttempts, policies: Policies, window: timedelta | None, *, compile_: bool | None
    ) -> None:
        self._attempts = attempts
        self._compile = len(attempts.ready) >= _WORTH_COMPILING if compile_ is None else compile_
        self._policies = [policies.get((attempts.queue, one)) for one in attempts.names]
        self._shown = shown_window(attempts.end - attempts.begin) if window is None else microseconds(window)

    def figures(self) -> MeasuredQueue:
        attempts, events = self._attempts, self._events()
        swept, busy, concurrency = self._sweep(events)
        backlogged = int(swept["backlogged"].sum())
        division = Division(attempts, events, self._policies, self._compile)
        by_messages = division.by_messages(backlogged)
        by_cost = division.by_costs(backlogged, by_messages.width)
        queue = QueueFigures(
            queue=attempts.queue, channels=attempts.channels, attempts=len(attempts.ready),
            from_=instant(attempts.begin), to=instant(attempts.end),
            outcomes=_outcomes(np.bincount(attempts.outcome, minlength=len(OUTCOMES))),
            wait=spread_of(attempts.wait.copy()), service=spread_of(attempts.service.copy()),
            busy=duration(busy), greatest_concurrency=concurrency,
            fairness=by_messages.fairness, least_fairness=by_messages.least_fairness,
            fairness_window=duration(by_messages.width), contended=by_messages.contended,
            window=duration(self._shown), windows=tuple(self._over_time(events, by_messages)),
            by_cost=None if by_cost is None else by_cost.queue_costs(),
        )  # fmt: skip
        channels = self._channels(swept, by_messages, by_cost)
        return MeasuredQueue(queue, channels, attempts.ids, self._plans(channels))

    def _events(self) -> kernel.Events:
        attempts = self._attempts
        counts = (attempts.service > 0).astype(np.int8)
        columns = []
        for times, with_leased in (
            (attempts.ready, False),
            (attempts.started, True),
            (attempts.finished, True),
        ):
            # A stable sort is fast here, since rows are mostly in the order of time.
            order = np.argsort(times, kind="stable")
            columns += [times[order], attempts.channel[order], *([counts[order]] if with_leased else [])]
        return kernel.Events(*columns)

    def _sweep(self, events: kernel.Events) -> tuple[Any, int, int]:
        channels = records(kernel.Channel, self._attempts.channels)
        for number, policy in enumerate(self._policies):
            if policy and policy.rate_interval:
                channels["interval"][number] = microseconds(policy.rate_interval)
        fast = compiled(kernel.sweep) if self._compile else None
        if fast is not None:
            busy, concurrency = fast(tuple(events), channels)
            return channels, int(busy), int(concurrency)
        rows = objects(channels, kernel.Channel)
        busy, concurrency = kernel.sweep(kernel.Events(*map(objects, events)), rows)
        fill(channels, rows)
        return channels, busy, concurrency

    def _channels(self, swept: Any, fairness: FairShares, by_cost: FairShares | None) -> list[ChannelFigures]:
        attempts, size = self._attempts, self._attempts.channels
        order = np.argsort(attempts.channel.astype(np.uint16) if size <= 1 << 16 else attempts.channel, kind="stable")
        ends = np.cumsum(attempts.counts)
        slowdown = np.maximum(
            (attempts.finished - attempts.ready) * _THOUSAND // np.maximum(attempts.service, _LEAST_SERVICE),
            _THOUSAND,
        )
        spreads = [grouped(values[order], ends) for values in (attempts.wait, attempts.service, slowdown)]
        waits = np.add.reduceat(attempts.wait[order], ends - attempts.counts)
        kinds = attempts.channel.astype(np.int64) * (len(OUTCOMES) + 1) + attempts.outcome
        outcomes = np.bincount(kinds, minlength=size * (len(OUTCOMES) + 1)).reshape(size, -1)
        shares, found = fairness.shares, []
        for number in range(size):
            one, count = swept[number], int(attempts.counts[number])
            wait, service, slow = (spread[number] for spread in spreads)
            denied = shares.denied[number] * fairness.width
            longest = None
            if one["lasted"]:
                stretch = (instant(int(one[name])) for name in ("longest_begin", "longest_end"))
                longest = Starvation(duration(int(one["lasted"])), *stretch)
            found.append(ChannelFigures(
                queue=attempts.queue, channel=attempts.names[number], policy=self._policies[number], attempts=count,
                outcomes=_outcomes(outcomes[number]),
                wait=Spread(*map(duration, wait)), service=Spread(*map(duration, service)),
                slowdown=Ratios(*(value / _THOUSAND for value in slow)),
                mean_wait=duration(round(int(waits[number]) / count)), denied_wait=duration(round(denied / count)),
                fair_share=fairness.share_of(number), above_share=float(shares.above[number]),
                denial=fairness.denial_of(number), backlogged=duration(int(one["backlogged"])),
                starved=duration(int(one["starved"])), longest_starvation=longest,
                greatest_concurrency=int(one["concurrency"]), greatest_rate=int(one["rate"]),
                greatest_burst=int(one["burst"]) if one["interval"] else None,
                by_cost=None if by_cost is None else by_cost.channel_costs(number),
            ))  # fmt: skip
        return found

    def _plans(self, channels: Sequence[ChannelFigures]) -> list[PlanFigures]:
        attempts = self._attempts
        members: defaultdict[str | None, list[int]] = defaultdict(list)
        for number, policy in enumerate(self._policies):
            members[policy.plan if policy else None].append(number)
        if members.keys() <= {None}:
            return []
        found = []
        for plan, numbers in members.items():
            ours = np.zeros(attempts.channels, bool)
            ours[numbers] = True
            rows = ours[attempts.channel]
            waits, count = attempts.wait[rows], int(attempts.counts[numbers].sum())
            denied = sum((channels[number].denied_wait * channels[number].attempts for number in numbers), timedelta())
            service = int(attempts.service[rows].sum())
            found.append(PlanFigures(
                queue=attempts.queue, plan=plan, channels=len(numbers), attempts=count,
                part=count / len(attempts.ready), wait=spread_of(waits.copy()),
                mean_wait=duration(round(int(waits.sum()) / count)), denied_wait=denied / count,
                denied_channels=sum(1 for number in numbers if channels[number].denied_wait),
                service=duration(service), service_part=service / max(int(attempts.service.sum()), 1),
                cost=None if attempts.cost is None else int(attempts.cost[rows].sum()),
            ))  # fmt: skip
        return sorted(found, key=lambda one: (-one.denied_wait, -one.mean_wait, one.plan or ""))

    def _over_time(self, events: kernel.Events, fairness: FairShares) -> Iterator[WindowFigures]:
        attempts = self._attempts
        first, last = attempts.begin // self._shown, attempts.end // self._shown
        count = int(last - first + 1)

        def counted(times: Numbers) -> Numbers:
            return np.bincount(times // self._shown - first, minlength=count)

        started, ready = counted(events.started_at), counted(events.ready_at)
        completed = counted(attempts.finished[attempts.outcome == 0])
        waiting = np.cumsum(ready - started)
        waits = attempts.wait[np.argsort(attempts.started, kind="stable")]
        spreads = grouped(waits, np.cumsum(started))
        shown = (fairness.windows * fairness.width // self._shown - first).astype(np.int64)
        indexes: defaultdict[int, list[float]] = defaultdict(list)
        for number, index in zip(shown.tolist(), fairness.indexes.tolist(), strict=True):
            if index == index:  # noqa: PLR0124 - NaN is not
                indexes[number].append(index)
        for number in range(count):
            found = indexes.get(number)
            yield WindowFigures(
                begin=instant(int(first + number) * self._shown),
                started=int(started[number]),
                completed=int(completed[number]),
                waiting=int(waiting[number]),
                wait=Spread(*map(duration, spreads[number])) if started[number] else None,
                fairness=sum(found) / len(found) if found else None,
            )


def _outcomes(counts: Any) -> Outcomes:
    return Outcomes(*(int(count) for count in counts[: len(OUTCOMES)]))
