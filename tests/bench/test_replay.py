"""The replay: how many events of one queue a core goes through in a second. No server takes part."""

from collections.abc import Callable
from functools import partial
from time import process_time

import numpy as np
import pyarrow as pa
import pytest

from sqlalchemy_fairqueue import ChannelPolicy
from sqlalchemy_fairqueue.reporting.simulation.replay import replay_queue, simulated_attempts, trace_of
from sqlalchemy_fairqueue.reporting.simulation.scenarios import Scenario
from sqlalchemy_fairqueue.reporting.simulation.simulator import simulate
from sqlalchemy_fairqueue.reporting.simulation.state import compiled
from tests.bench.figures import Figure, Report, told

_START = 1_700_000_000_000_000
_WORKERS = 16
_SERVICE = 100_000
# An attempt arrives, starts and finishes.
_EVENTS = 3
_REACH = 1_000_000

_SCENARIOS = (
    Scenario(name="fair", workers=_WORKERS),
    Scenario(name="fair, batch 16", workers=_WORKERS, batch=16),
    Scenario(name="fair by cost", workers=_WORKERS, fair_by="cost"),
    Scenario(name="one line", workers=_WORKERS, discipline="fifo"),
    Scenario(name="two of a channel at once", workers=_WORKERS, defaults=ChannelPolicy(max_concurrency=2)),
)


def history(attempts: int, channels: int) -> pa.Table:
    """Return a queue that gets twice the work that its workers can do, a few tenants having most of it."""
    random = np.random.default_rng(7)
    channel = (random.zipf(1.3, attempts) - 1) % channels
    enqueued = _START + np.sort(random.integers(0, attempts * _SERVICE // _WORKERS // 2, attempts))
    finished = enqueued + random.exponential(_SERVICE, attempts).astype(np.int64)
    ids = np.arange(1, attempts + 1)
    times = {"enqueued_at": enqueued, "ready_at": enqueued, "started_at": enqueued, "finished_at": finished}
    names = pa.array([f"tenant-{number}" for number in range(channels)])
    same = {"queue": "documents", "kind": "work", "attempt": pa.scalar(1, pa.int32()), "outcome": "completed"}
    columns = {"id": ids, "message_id": ids, "channel_id": channel + 1, "channel": names.take(pa.array(channel))}
    columns |= {name: pa.repeat(value, attempts) for name, value in same.items()}
    columns |= {name: pa.array(values).cast(pa.timestamp("us", "UTC")) for name, values in times.items()}
    return pa.table(columns)


@pytest.mark.parametrize("channels", [1_000, 100_000])
def test_events(report: Report, rounds: range, channels: int, *, full: bool) -> None:
    """A million events a second and core, whatever the scenario."""
    if compiled(simulate) is None:
        pytest.skip("numba is not installed")
    attempts = 3_000_000 if full else 300_000
    recorded = history(attempts, channels)
    trace = trace_of(recorded)
    for scenario in _SCENARIOS:
        # The first call of a process compiles.
        simulated_attempts(trace_of(recorded.slice(0, 1)), scenario, compile_=True)
        fast = _speed(partial(simulated_attempts, trace, scenario, compile_=True), attempts, rounds)
        whole = _speed(partial(replay_queue, recorded, scenario), attempts, rounds)
        what = f"replay of {attempts:,} attempts of {channels:,} channels, {scenario.name}"
        notes = {"from Arrow to Arrow": told(whole)}
        report.add(Figure(what, "events/s", fast, [_REACH] * len(fast), "the reach", 1.0, notes=notes))


def _speed(work: Callable[[], object], attempts: int, rounds: range) -> list[float]:
    """Return events in a second of processor time, round by round."""
    speeds = []
    for _ in rounds:
        began = process_time()
        work()
        speeds.append(attempts * _EVENTS / (process_time() - began))
    return speeds
