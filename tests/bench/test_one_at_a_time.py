"""One message a dequeue, beside the design that the project starts from."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from tests.bench.figures import Figure, backend_cost, each_once, rate
from tests.bench.loads import Consuming, consumers, drain
from tests.bench.processes import send_out

if TYPE_CHECKING:
    from tests.bench.conftest import Alternate
    from tests.bench.figures import Report
    from tests.bench.stage import Stage

_CHANNELS = 1_000
_SIDES = ("fair", "head", "lean", "plain")
_ALSO = {"lean": "head pointer that counts no slots", "plain": "the unfair bound"}


def test_batch_one(stage: Stage, report: Report, alternate: Alternate, *, full: bool) -> None:
    """Dequeue one, complete one: not slower than popping one message from a head pointer."""
    filled = {side: stage.fill(side, channels=_CHANNELS, messages=200_000 if full else 20_000) for side in _SIDES}
    for count in (2, 4):
        enough = (40_000 if full else 2_000) // count
        rates: dict[str, list[float]] = {side: [] for side in _SIDES}
        costs: dict[str, list[float]] = {side: [] for side in _SIDES}

        def measure(
            side: str,
            count: int = count,
            enough: int = enough,
            rates: dict[str, list[float]] = rates,
            costs: dict[str, list[float]] = costs,
        ) -> None:
            with stage.clone(filled[side]) as conninfo:
                watches = send_out(consumers(count, drain, Consuming(side, conninfo, limit=1, enough=enough)))
            each_once(watches)
            rates[side].append(rate(watches))
            costs[side].append(backend_cost(watches))

        alternate(measure, _SIDES)
        report.add(
            Figure(
                f"batch 1, {_CHANNELS:,} channels, {count} consumers",
                "messages/s",
                rates["fair"],
                rates["head"],
                "head pointer",
                reach=1.0,
                notes={
                    f"{name}, messages/s": f"{median(rates[side]):.0f}, ratio {_ratio(rates['fair'], rates[side]):.2f}"
                    for side, name in _ALSO.items()
                }
                | {
                    "server processor time a message, us": ", ".join(
                        f"{side} {median(cost):.0f}" for side, cost in costs.items()
                    )
                },
            )
        )
    for one in filled.values():
        stage.drop(one)


def _ratio(ours: list[float], theirs: list[float]) -> float:
    return median(one / other for one, other in zip(ours, theirs, strict=True))
