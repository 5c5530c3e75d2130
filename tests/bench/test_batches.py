"""Lease then complete in batches of 100, and what a hundred times as many channels cost."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

import pytest

from tests.bench.figures import Figure, backend_cost, each_once, rate, total
from tests.bench.loads import Consuming, consumers, drain
from tests.bench.processes import send_out

if TYPE_CHECKING:
    from tests.bench.conftest import Alternate
    from tests.bench.figures import Report
    from tests.bench.stage import Stage

_BATCH = 100
_CONSUMERS = 2


@pytest.mark.parametrize("weight", [1, 4, 16])
def test_batches_beside_the_unfair_bound(
    stage: Stage, report: Report, alternate: Alternate, weight: int, *, full: bool
) -> None:
    """Two consumers empty 1,000 channels at 0.6 of the speed of one that knows no channels, by turns of *weight*."""
    messages = 500_000 if full else 50_000
    sides = ("fair", "plain", "found")
    filled = {side: stage.fill(side, channels=1_000, messages=messages, weight=weight) for side in sides}
    rates: dict[str, list[float]] = {side: [] for side in sides}
    costs: dict[str, list[float]] = {side: [] for side in sides}

    def measure(side: str) -> None:
        with stage.clone(filled[side]) as conninfo:
            watches = send_out(consumers(_CONSUMERS, drain, Consuming(side, conninfo, limit=_BATCH)))
        each_once(watches, messages=messages)
        rates[side].append(rate(watches))
        costs[side].append(backend_cost(watches))

    alternate(measure, sides)
    for one in filled.values():
        stage.drop(one)
    for bound, name in ("plain", "the unfair bound"), ("found", "the unfair bound with an index by lease"):
        report.add(
            Figure(
                f"lease and complete, batch {_BATCH}, 1,000 channels, turns of {weight}, {messages:,} messages,"
                f" {_CONSUMERS} consumers",
                "messages/s",
                rates["fair"],
                rates[bound],
                name,
                reach=0.6 if bound == "plain" else None,
                notes={
                    "server processor time a message, us": f"{median(costs['fair']):.1f} to {median(costs[bound]):.1f}",
                },
            )
        )


def test_a_hundred_times_as_many_channels(stage: Stage, report: Report, alternate: Alternate, *, full: bool) -> None:
    """A message costs about the same among 100,000 channels and 5 million messages as among 1,000 and 500,000."""
    shape = {"many": (100_000, 5_000_000), "few": (1_000, 500_000)}
    if not full:
        shape = {"many": (20_000, 400_000), "few": (1_000, 40_000)}
    # The same number of messages is taken on both sides, from the whole depth.
    enough = shape["few"][1] // _CONSUMERS
    filled = {
        name: stage.fill("fair", channels=channels, messages=messages) for name, (channels, messages) in shape.items()
    }
    costs: dict[str, list[float]] = {"many": [], "few": []}

    def measure(name: str) -> None:
        with stage.clone(filled[name]) as conninfo:
            watches = send_out(consumers(_CONSUMERS, drain, Consuming("fair", conninfo, limit=_BATCH, enough=enough)))
        each_once(watches)
        assert total(watches) >= shape["few"][1]
        costs[name].append(1e6 / rate(watches))

    alternate(measure, ("many", "few"))
    for one in filled.values():
        stage.drop(one)
    report.add(
        Figure(
            f"cost a message with {shape['many'][0]:,} channels, {shape['many'][1]:,} messages,"
            f" the first {shape['few'][1]:,} of them",
            "us",
            costs["many"],
            costs["few"],
            f"{shape['few'][0]:,} channels, {shape['few'][1]:,} messages",
            reach=1.25,
            better="less",
        )
    )
    report.add(
        Figure(
            f"hearing {filled['many'].signals:,} signals of {shape['many'][0]:,} channels, one a message, one hearer",
            "signals/s",
            [filled["many"].signals / filled["many"].seconds],
            [filled["few"].signals / filled["few"].seconds],
            f"{filled['few'].signals:,} signals of {shape['few'][0]:,} channels",
            reach=None,
        )
    )
