"""Forecasts of the replay, held against real runs of small applications under the scenario."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine

from tests.bench.figures import Figure
from tests.bench.reporting.applications import Application, applications, errors, forecast, perform

if TYPE_CHECKING:
    from tests.bench.figures import Report
    from tests.bench.stage import Stage

_REACH = 0.15


@pytest.mark.timeout(600)
@pytest.mark.parametrize("application", applications(), ids=lambda one: one.name)
def test_mean_waits(stage: Stage, report: Report, rounds: range, application: Application) -> None:
    """The mean wait of each tenant with enough messages is within 15 % of that of the real run."""
    filled = stage.fill("fair", channels=1, messages=0)
    worst, notes = [], {}
    for number in rounds:
        with stage.clone(filled) as conninfo:
            engine = create_engine(conninfo.replace("postgresql://", "postgresql+psycopg://", 1), pool_size=12)
            history, tenants = perform(engine, "recorded", application, application.recorded)
            real, real_tenants = perform(engine, "changed", application, application.changed)
            engine.dispose()
        replayed = forecast(history, application.recorded, application.changed)
        found = errors(replayed, tenants, real.attempts, real_tenants)
        worst.append(max(abs(one.error) for one in found))
        notes[f"round {number + 1}"] = ", ".join(f"{one.tenant} {one.error:+.0%}" for one in found)
    stage.drop(filled)
    report.add(
        Figure(
            f"forecast of mean waits, {application.name}: the tenant that is furthest off",
            "of the real wait",
            worst,
            [_REACH] * len(worst),
            "the limit",
            reach=1.0,
            better="less",
            notes=notes,
        )
    )
