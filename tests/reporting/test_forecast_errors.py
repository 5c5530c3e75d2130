"""Errors of forecasts against real runs, as the benchmark computes them."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from sqlalchemy_fairqueue.simulation.capacity import Capacity
from tests.bench.reporting.applications import LEAST_MESSAGES, Settings, errors

_BEGIN = datetime(2026, 3, 1, tzinfo=UTC)


def attempts(waits: dict[int, float]) -> pa.Table:
    """Attempts of these messages with these waits in seconds."""
    return pa.Table.from_pylist(
        [
            {"message_id": message, "ready_at": _BEGIN, "started_at": _BEGIN + timedelta(seconds=wait)}
            for message, wait in waits.items()
        ]
    )


def test_means_of_tenants_with_enough_messages_are_compared() -> None:
    """Messages of the two runs have ids of their own; a tenant with fewer than twenty messages does not count."""
    forecast = attempts({number: 1.0 + number % 2 for number in range(40)} | {90: 5.0})
    real = attempts({100 + number: 2.0 for number in range(40)} | {190: 1.0})
    tenants = {number: "a" if number < LEAST_MESSAGES else "b" for number in range(40)} | {90: "c"}

    found = errors(forecast, tenants, real, {100 + number: tenant for number, tenant in tenants.items()})

    assert [(one.tenant, one.messages) for one in found] == [("a", 20), ("b", 20)]
    assert [one.error for one in found] == pytest.approx([-0.25, -0.25])


def test_workers_of_a_scenario_are_a_multiple_of_the_measured_capacity() -> None:
    """Where the record was never backlogged nothing was measured: they are the handlers."""
    half, recorded = Settings(workers=2), Settings(workers=4)

    assert half.scenario(Capacity(4.4, 1_000_000, 4.0, 5.0), recorded).workers == pytest.approx(2.2)
    assert half.scenario(Capacity(9, 0, 9, 9), recorded).workers == 2
