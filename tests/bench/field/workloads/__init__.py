"""The workloads, by subject. Each takes an arena and gives figures by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from tests.bench.field.workloads import depth, fairness, throughput, transactions

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.bench.field.workloads.measures import Figures


@dataclass(frozen=True, slots=True)
class Work:
    """A workload.

    Attributes:
        run: does it in an arena.
        quick: who does it in the quick form; in the full form all do.
        rounds: most rounds of the full form.
    """

    run: Callable[..., Figures]
    quick: Literal["all", "library", "nobody"] = "library"
    rounds: int = 100

    @property
    def text(self) -> str:
        """What is done."""
        return " ".join((self.run.__doc__ or "").split())


WORKLOADS: Final = {
    work.run.__name__: work
    for work in (
        Work(throughput.drain, "all"),
        Work(throughput.one_by_one, "all"),
        Work(throughput.enqueue, "all"),
        Work(throughput.steady, "all"),
        Work(fairness.whale, "all"),
        Work(fairness.newcomers, "all"),
        Work(fairness.zipf, "all"),
        Work(fairness.costs, "all"),
        Work(transactions.business_5ms, "all"),
        Work(transactions.business_2s, "nobody"),
        Work(depth.backlog_100k),
        Work(depth.channels_100k),
        Work(depth.future),
        Work(depth.idle),
        Work(depth.limited),
        Work(depth.backlog_1m, "nobody"),
        Work(depth.backlog_10m, "nobody", rounds=1),
        Work(throughput.snapshot, rounds=1),
    )
}
