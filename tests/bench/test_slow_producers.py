"""Producers whose transactions take their time, all on one channel."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from tests.bench.figures import Figure, each_once, total
from tests.bench.loads import Consuming, Producing, consumers, poll, producers
from tests.bench.processes import send_out

if TYPE_CHECKING:
    from tests.bench.conftest import Alternate
    from tests.bench.figures import Report
    from tests.bench.stage import Stage

_PRODUCERS = 8
_CONSUMERS = 2
_WAIT = 0.005
_AFTERWARDS = 2.0


def test_slow_transactions_on_one_channel(stage: Stage, report: Report, alternate: Alternate, *, full: bool) -> None:
    """An enqueue at the end of a 5 ms transaction costs little, and all is delivered within a second."""
    seconds = 20.0 if full else 4.0
    filled = {side: stage.fill(side, channels=1, messages=0) for side in ("fair", "head")}
    rates: dict[str, list[float]] = {"alone": [], "fair": [], "none": [], "head": []}
    delays: list[float] = []
    shares: list[float] = []

    def measure(side: str) -> None:
        with stage.clone(filled.get(side, filled["fair"])) as conninfo:
            enqueues = {"none": None, "alone": "fair"}.get(side, side)
            tasks = producers(_PRODUCERS, Producing(enqueues, conninfo, _WAIT, seconds))
            if side in filled:
                tasks += consumers(_CONSUMERS, poll, Consuming(side, conninfo, limit=10, seconds=seconds + _AFTERWARDS))
            watches = send_out(tasks)
        made, done = watches[:_PRODUCERS], watches[_PRODUCERS:]
        rates[side].append(total(made) / seconds)
        last = max(watch.ended[-1] for watch in made)
        if side == "fair":
            each_once(done, messages=total(made))
            delays.append(max(watch.ended[-1] for watch in done if watch.ended) - last)
        elif side == "head":
            meanwhile = sum(
                count for watch in done for ended, count in zip(watch.ended, watch.counts, strict=True) if ended <= last
            )
            shares.append(meanwhile / total(made))

    alternate(measure, ("fair", "alone", "none", "head"))
    for one in filled.values():
        stage.drop(one)
    assert max(delays) < 1.0, delays
    report.add(
        Figure(
            f"{_PRODUCERS} producers, one channel, 5 ms transactions, an enqueue each",
            "transactions/s",
            rates["alone"],
            rates["none"],
            "no enqueue",
            reach=0.9,
        )
    )
    report.add(
        Figure(
            f"the same while {_CONSUMERS} consumers on the same cores deliver it all",
            "transactions/s",
            rates["fair"],
            rates["none"],
            "no enqueue and no consumers",
            reach=None,
            notes={
                "last delivery after the last commit, s": f"{median(delays):.3f}, at most {max(delays):.3f}",
                "head pointer": f"{median(rates['head']):.0f} transactions/s, {median(shares):.0%} delivered meanwhile",
            },
        )
    )
