"""Measurement of a history that lies in an Arrow table: the figures of its queues and channels, without Spark."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.reporting import kernel
from sqlalchemy_fairqueue.reporting.errors import HistoryEmpty, empty_history, mixed_history
from sqlalchemy_fairqueue.reporting.figures import (
    ChannelCosts,
    ChannelFigures,
    Culprit,
    Denial,
    Figures,
    Outcomes,
    QueueCosts,
    QueueFigures,
    Ratios,
    Spread,
    Starvation,
    WindowFigures,
)
from sqlalchemy_fairqueue.reporting.time_grid import fairness_window, rung, shown_window
from sqlalchemy_fairqueue.simulation.compilation import compiled
from sqlalchemy_fairqueue.simulation.state import objects, records
from sqlalchemy_fairqueue.simulation.trace import COST, recorded_costs
from sqlalchemy_fairqueue.times import duration, instant, microseconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import timedelta

    from numpy.typing import NDArray

    from sqlalchemy_fairqueue.reporting.figures import Policy

    Numbers = NDArray[np.int64]
    Policies = Mapping[tuple[str, str], Policy]

COLUMNS = ("queue", "channel_id", "channel", "ready_at", "started_at", "finished_at", "outcome")
"""The columns of a history that are measured."""

OUTCOMES = ("completed", "retried", "released", "buried", "expired", "cancelled")

# To compile takes longer than to interpret fewer attempts than this.
_WORTH_COMPILING = 100_000
_PERCENTILES = (500, 950, 990)
_THOUSAND = 1000
# A service counts as so many microseconds at least in the slowdown.
_LEAST_SERVICE = 10_000
# Tenants of a queue whose culprits are found, and culprits that are told of each.
_VICTIMS = 20
# In a window of the shares by cost, a backlogged channel gets several messages that are dearer than these.
_DEAR = 0.99
_LEAST_WINDOWS = 20
_CULPRITS = 3


def measure_table(
    history: pa.Table,
    *,
    policies: Policies | None = None,
    window: timedelta | None = None,
    compile_: bool | None = None,
) -> Figures:
    """Take all figures of a history.

    Args:
        history: With the columns of COLUMNS; times as timestamps.
        policies: The policies by queue and channel. None: no channel has limits, all weigh the same.
        window: Width of the windows over time. None: one that makes at most 240 of them.
        compile_: Whether to compile the kernel. None: if numba is installed and the history is long enough.

    Raises:
        HistoryEmpty: The history has no attempt.
        InvalidArgument: A column is missing, or the history is of several databases.
    """
    check_columns(history.column_names)
    return figures_of(
        [measure_queue(rows, policies or {}, window, compile_=compile_) for _, rows in queues_of(history)]
    )


def check_columns(names: Sequence[str]) -> None:
    """Refuse what is no history.

    Raises:
        InvalidArgument: A column is missing.
    """
    missing = [name for name in COLUMNS if name not in names]
    if missing:
        raise InvalidArgument(
            f"the history lacks {', '.join(missing)}: it has {', '.join(names)}; "
            'read it by read_history, by format("fairqueue") or from an archive'
        )


class MeasuredQueue(NamedTuple):
    """The figures of a queue.

    Attributes:
        queue: Of the queue as a whole.
        channels: Of its channels.
        ids: The ids of its channels, in the same order.
    """

    queue: QueueFigures
    channels: list[ChannelFigures]
    ids: list[int]


def measure_queue(
    rows: pa.Table, policies: Policies, window: timedelta | None = None, *, compile_: bool | None = None
) -> MeasuredQueue:
    """Measure one queue; the arguments are those of :func:`measure_table`.

    Raises:
        InvalidArgument: A channel's id stands for two channels.
    """
    check_ids(rows)
    name: str = rows["queue"][0].as_py()
    return _Queue(name, rows, policies, window, compile_=compile_).figures()


def figures_of(measured: Sequence[MeasuredQueue]) -> Figures:
    """The figures of a history, of those of its queues.

    Raises:
        HistoryEmpty: There is none.
        InvalidArgument: The id of a channel is in two queues.
    """
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
    return Figures(tuple(one.queue for one in measured), tuple(channels))


def queues_of(history: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """The queues of a history by name, each with its rows."""
    names, codes = encoded(history, "queue")
    for code in sorted(range(len(names)), key=names.__getitem__):
        rows = codes == code
        if rows.any():
            yield names[code], history if rows.all() else history.filter(pa.array(rows))


def encoded(table: pa.Table, name: str) -> tuple[list[Any], Any]:
    """The different values of a column, and of each row the index of its value."""
    column = table[name].combine_chunks()
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    if isinstance(column, pa.ChunkedArray):
        column = column.unify_dictionaries().combine_chunks()
    return column.dictionary.to_pylist(), column.indices.to_numpy()


def numbers(table: pa.Table, name: str) -> Numbers:
    """A column of whole numbers, or of timestamps in microseconds."""
    column = table[name]
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz))
    found: Numbers = column.cast(pa.int64()).to_numpy()
    return found


def check_ids(rows: pa.Table) -> None:
    """Refuse a queue in which an id stands for two channels.

    Raises:
        InvalidArgument: It does.
    """
    ids, of_id = encoded(rows, "channel_id")
    names, of_name = encoded(rows, "channel")
    name_of = np.zeros(len(ids), np.int64)
    name_of[of_id] = of_name
    wrong = name_of[of_id] != of_name
    if wrong.any():
        row = int(wrong.argmax())
        queue: str = rows["queue"][0].as_py()
        one, other = sorted((names[name_of[of_id[row]]], names[of_name[row]]))
        raise InvalidArgument(mixed_history(ids[of_id[row]], (queue, one), (queue, other)))


@dataclass(frozen=True, slots=True)
class _Fairness:
    """Fair shares of a queue."""

    width: int
    shares: kernel.Shares
    windows: Numbers
    indexes: Any
    costs: Any


class _Queue:
    """Measures one queue."""

    def __init__(
        self, name: str, rows: pa.Table, policies: Policies, window: timedelta | None, *, compile_: bool | None
    ) -> None:
        self._name = name
        self._compile = len(rows) >= _WORTH_COMPILING if compile_ is None else compile_
        ids, of_id = encoded(rows, "channel_id")
        order = np.argsort(ids)
        self._ids: list[int] = [ids[number] for number in order]
        rank = np.empty(len(ids), np.int32)
        rank[order] = np.arange(len(ids))
        self._channel = rank[of_id]
        self._size = len(ids)
        names, of_name = encoded(rows, "channel")
        name_of = np.zeros(len(ids), np.int64)
        name_of[self._channel] = of_name
        self._names: list[str] = [names[number] for number in name_of]
        ready, started = numbers(rows, "ready_at"), numbers(rows, "started_at")
        # A clock that was set back must not make time run backwards: a later event counts as no earlier one.
        started = np.maximum(started, ready)
        finished = np.maximum(started, numbers(rows, "finished_at"))
        self._ready, self._started, self._finished = ready, started, finished
        self._wait, self._service = started - ready, finished - started
        outcomes, of_outcome = encoded(rows, "outcome")
        codes = [OUTCOMES.index(one) if one in OUTCOMES else len(OUTCOMES) for one in outcomes]
        self._outcome = np.array(codes, np.int8)[of_outcome]
        self._cost: Numbers | None = None
        if COST in rows.column_names:
            cost: Numbers = recorded_costs(rows).to_numpy()
            self._cost = cost if int(cost.min()) != int(cost.max()) else None
        self._policies = [policies.get((name, one)) for one in self._names]
        self._begin, self._end = int(ready.min()), int(finished.max())
        self._attempts = np.bincount(self._channel, minlength=self._size)
        span = self._end - self._begin
        self._shown = shown_window(span) if window is None else microseconds(window)

    def figures(self) -> MeasuredQueue:
        """The figures of the queue and of its channels."""
        events = self._events()
        channels, busy, concurrency = self._sweep(events)
        width = fairness_window(self._end - self._begin, len(self._ready), int(channels["backlogged"].sum()))
        fairness = self._divide(events, width)
        by_cost = self._divide_costs(events, int(channels["backlogged"].sum()), width)
        members = self._channels(channels, fairness, by_cost)
        indexes = fairness.indexes[~np.isnan(fairness.indexes)]
        queue = QueueFigures(
            queue=self._name,
            from_=instant(self._begin),
            to=instant(self._end),
            channels=self._size,
            attempts=len(self._ready),
            outcomes=_outcomes(np.bincount(self._outcome, minlength=len(OUTCOMES))),
            wait=_spread(self._wait.copy()),
            service=_spread(self._service.copy()),
            busy=duration(busy),
            greatest_concurrency=concurrency,
            fairness=float(indexes.mean()) if len(indexes) else None,
            least_fairness=float(indexes.min()) if len(indexes) else None,
            fairness_window=duration(width),
            contended=len(indexes) / len(fairness.windows),
            window=duration(self._shown),
            windows=tuple(self._over_time(events, fairness)),
            by_cost=None if by_cost is None else self._queue_costs(by_cost),
        )
        return MeasuredQueue(queue, members, self._ids)

    def _events(self) -> kernel.Events:
        held = (self._service > 0).astype(np.int8)
        columns = []
        for times, with_held in ((self._ready, False), (self._started, True), (self._finished, True)):
            # Rows are mostly in the order of time, which this sort makes use of.
            order = np.argsort(times, kind="stable")
            columns += [times[order], self._channel[order], *([held[order]] if with_held else [])]
        return kernel.Events(*columns)

    def _sweep(self, events: kernel.Events) -> tuple[Any, int, int]:
        channels = records(kernel.Channel, self._size)
        for number, policy in enumerate(self._policies):
            if policy and policy.rate_interval:
                channels["interval"][number] = microseconds(policy.rate_interval)
        fast = compiled(kernel.sweep) if self._compile else None
        if fast is not None:
            busy, concurrency = fast(tuple(events), channels)
            return channels, int(busy), int(concurrency)
        rows = objects(kernel.Channel, channels)
        busy, concurrency = kernel.sweep(kernel.Events(*(column.tolist() for column in events)), rows)
        for name in channels.dtype.names:
            channels[name] = [getattr(row, name) for row in rows]
        return channels, busy, concurrency

    def _queue_costs(self, fairness: _Fairness) -> QueueCosts:
        indexes = fairness.indexes[~np.isnan(fairness.indexes)]
        return QueueCosts(
            cost=int(fairness.costs.sum()),
            fairness=float(indexes.mean()) if len(indexes) else None,
            least_fairness=float(indexes.min()) if len(indexes) else None,
            fairness_window=duration(fairness.width),
            contended=len(indexes) / len(fairness.windows),
        )

    def _divide_costs(self, events: kernel.Events, backlogged: int, width: int) -> _Fairness | None:
        """The fair shares of the costs; None: all attempts cost the same.

        A backlogged channel gets as many of the dear messages in a window as it gets messages where these are counted.
        """
        if self._cost is None:
            return None
        dear = max(int(np.partition(self._cost, at := int((len(self._cost) - 1) * _DEAR))[at]), 1)
        wanted = fairness_window(self._end - self._begin, max(int(self._cost.sum()) // dear, 1), backlogged)
        widest = rung((self._end - self._begin) / _LEAST_WINDOWS)
        return self._divide(events, max(width, min(wanted, widest)), self._cost)

    def _divide(self, events: kernel.Events, width: int, cost: Numbers | None = None) -> _Fairness:
        services = np.bincount(self._channel, weights=self._service, minlength=self._size) / self._attempts
        weights, most = np.ones(self._size), np.full(self._size, np.inf)
        for number, policy in enumerate(self._policies):
            if policy is not None:
                weights[number] = policy.weight
                if policy.rate_interval:
                    most[number] = width // microseconds(policy.rate_interval) + policy.rate_burst
                if policy.max_concurrency is not None and services[number] > 0:
                    most[number] = min(most[number], policy.max_concurrency * width / services[number])
        if cost is None:
            costs: Any = self._attempts
            sizes = (np.ones(len(self._ready), np.int64),) * 2
        else:
            costs = np.bincount(self._channel, weights=cost, minlength=self._size)
            # Its limits are in messages.
            most *= np.maximum(costs / self._attempts, 1)
            sizes = (cost[np.argsort(self._ready, kind="stable")], cost[np.argsort(self._started, kind="stable")])
        victims: Any = np.full(self._size, -1)
        limits = (weights, most)
        shares, count = self._walk(events, width, limits, victims, sizes)
        worst = np.argsort(-shares.denied / self._attempts, kind="stable")[:_VICTIMS]
        worst = worst[shares.denied[worst] > 0]
        if len(worst):
            victims[worst] = np.arange(len(worst))
            shares, count = self._walk(events, width, limits, victims, sizes)
        return _Fairness(width, shares, shares.windows[:count], shares.indexes[:count], costs)

    def _walk(
        self, events: kernel.Events, width: int, limits: tuple[Any, Any], victims: Any, sizes: tuple[Numbers, Numbers]
    ) -> tuple[kernel.Shares, int]:
        reals = [np.zeros(self._size) for _ in range(6)]
        wholes = [np.zeros(self._size, np.int64) for _ in range(4)]
        share, served, denied, above, stretch, worst = reals
        begin, end, worst_begin, worst_end = wholes
        windows = (self._end - self._begin) // width + 2
        rows = min(windows, len(self._ready))
        shares = kernel.Shares(
            weights=limits[0], most=limits[1], share=share, served=served, denied=denied, above=above, stretch=stretch,
            stretch_begin=begin, stretch_end=end, worst=worst, worst_begin=worst_begin, worst_end=worst_end,
            victims=victims, blame=np.zeros((int(victims.max()) + 1, self._size)),
            windows=np.zeros(rows, np.int64), indexes=np.zeros(rows),
        )  # fmt: skip
        fast = compiled(kernel.divide) if self._compile else None
        if fast is not None:
            return shares, int(fast(tuple(events), width, tuple(shares), *sizes))
        return shares, kernel.divide(events, width, shares, *sizes)

    def _channels(self, swept: Any, fairness: _Fairness, by_cost: _Fairness | None) -> list[ChannelFigures]:
        size = self._size
        order = np.argsort(self._channel.astype(np.uint16) if size <= 1 << 16 else self._channel, kind="stable")
        ends = np.cumsum(self._attempts)
        slowdown = np.maximum(
            (self._finished - self._ready) * _THOUSAND // np.maximum(self._service, _LEAST_SERVICE), _THOUSAND
        )
        spreads = [_grouped(values[order], ends) for values in (self._wait, self._service, slowdown)]
        waits = np.add.reduceat(self._wait[order], ends - self._attempts)
        kinds = self._channel.astype(np.int64) * (len(OUTCOMES) + 1) + self._outcome
        outcomes = np.bincount(kinds, minlength=size * (len(OUTCOMES) + 1)).reshape(size, -1)
        shares, found = fairness.shares, []
        for number in range(size):
            one, attempts = swept[number], int(self._attempts[number])
            wait, service, slow = (spread[number] for spread in spreads)
            denied = shares.denied[number] * fairness.width
            found.append(
                ChannelFigures(
                    queue=self._name,
                    channel=self._names[number],
                    attempts=attempts,
                    outcomes=_outcomes(outcomes[number]),
                    wait=Spread(*map(duration, wait)),
                    service=Spread(*map(duration, service)),
                    slowdown=Ratios(*(value / _THOUSAND for value in slow)),
                    mean_wait=duration(round(int(waits[number]) / attempts)),
                    denied_wait=duration(round(denied / attempts)),
                    fair_share=float(shares.served[number] / shares.share[number]) if shares.share[number] else None,
                    backlogged=duration(int(one["backlogged"])),
                    starved=duration(int(one["starved"])),
                    longest_starvation=Starvation(
                        duration(int(one["lasted"])),
                        instant(int(one["longest_begin"])),
                        instant(int(one["longest_end"])),
                    )
                    if one["lasted"]
                    else None,
                    greatest_concurrency=int(one["concurrency"]),
                    greatest_rate=int(one["rate"]),
                    greatest_burst=int(one["burst"]) if one["interval"] else None,
                    policy=self._policies[number],
                    above_share=float(shares.above[number]),
                    denial=self._denial(number, fairness),
                    by_cost=None if by_cost is None else self._channel_costs(number, by_cost),
                )
            )
        return found

    def _channel_costs(self, number: int, fairness: _Fairness) -> ChannelCosts:
        shares = fairness.shares
        return ChannelCosts(
            cost=int(fairness.costs[number]),
            fair_share=float(shares.served[number] / shares.share[number]) if shares.share[number] else None,
            denied_cost=float(shares.denied[number]),
            above_share=float(shares.above[number]),
            denial=self._denial(number, fairness),
        )

    def _denial(self, number: int, fairness: _Fairness) -> Denial | None:
        shares, width = fairness.shares, fairness.width
        if not round(shares.denied[number] * width):
            return None
        culprits: list[Culprit] = []
        row = shares.victims[number]
        if row >= 0:
            blame = shares.blame[row]
            greatest = np.argsort(-blame, kind="stable")[:_CULPRITS]
            culprits = [
                Culprit(self._names[other], float(blame[other] / shares.denied[number]))
                for other in greatest
                if blame[other] > 0
            ]
        return Denial(
            from_=instant(int(shares.worst_begin[number]) * width),
            to=instant((int(shares.worst_end[number]) + 1) * width),
            part=float(shares.worst[number] / shares.denied[number]),
            culprits=tuple(culprits),
        )

    def _over_time(self, events: kernel.Events, fairness: _Fairness) -> Iterator[WindowFigures]:
        first, last = self._begin // self._shown, self._end // self._shown
        count = int(last - first + 1)

        def counted(times: Numbers) -> Numbers:
            return np.bincount(times // self._shown - first, minlength=count)

        started, ready = counted(events.started_at), counted(events.ready_at)
        completed = counted(self._finished[self._outcome == 0])
        waiting = np.cumsum(ready - started)
        waits = self._wait[np.argsort(self._started, kind="stable")]
        spreads = _grouped(waits, np.cumsum(started))
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


def _grouped(values: Numbers, ends: Numbers) -> list[tuple[int, ...]]:
    """The percentiles and the maximum of each group of values that lie one behind the other; *values* is reordered."""
    found, begin = [], 0
    for end in ends.tolist():
        found.append(_nearest_ranks(values[begin:end]) if end > begin else ())
        begin = end
    return found


def _nearest_ranks(values: Numbers) -> tuple[int, ...]:
    """The percentiles by nearest rank, and the maximum."""
    count = len(values)
    ranks = [(count * percentile + _THOUSAND - 1) // _THOUSAND - 1 for percentile in _PERCENTILES]
    values.partition([*ranks, count - 1])
    return (*(int(values[rank]) for rank in ranks), int(values[-1]))


def _spread(values: Numbers) -> Spread:
    return Spread(*map(duration, _nearest_ranks(values)))


def _outcomes(counts: Any) -> Outcomes:
    return Outcomes(*(int(count) for count in counts[: len(OUTCOMES)]))
