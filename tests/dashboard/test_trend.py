"""A queue and a tenant over time, drawn without a script."""

import re
from datetime import timedelta

from sqlalchemy import Engine

from tests.cli.messages import QUEUE, bury, enqueue, lease
from tests.dashboard.conftest import Browse, Page
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database


def _keep(database: Database, clock: Clock) -> None:
    clock.advance(timedelta(minutes=1))
    database.value(f"select fq_keep_samples('{{{QUEUE.name}}}')")


def _heights(page: Page, chart: str) -> list[list[float]]:
    """The heights of the points of the lines of a drawing."""
    [drawing] = re.findall(rf'aria-label="{chart}, over time">(.*?)</svg><figcaption>', page.html)
    return [
        [float(point.partition(",")[2]) for point in points.split()]
        for points in re.findall(r'points="(.*?)"', drawing)
    ]


def test_a_queue_and_a_tenant(browse: Browse, engine: Engine, database: Database, clock: Clock) -> None:
    """The drawings have the points of the samples, the words say the most and the last, and links lead to the day."""
    QUEUE.configure(engine, history=True)
    enqueue(engine, "a", "a", "b", kind="parse")
    _keep(database, clock)
    enqueue(engine, "a")
    _keep(database, clock)
    QUEUE.complete(engine, [one for one in lease(engine) if one.channel == "a"])
    _keep(database, clock)
    viewer = browse("viewer")
    page = viewer.get("tenants", queue=QUEUE.name)
    high, higher, low = _heights(page, "Ready messages")[0]
    assert 16 <= higher < high < low == 128
    assert "ready: 4 at most, 0 at last" in page.text
    served, failed = _heights(page, "Served and failed a minute")
    assert (served, failed) == ([128.0, 16.0], [128.0, 128.0])
    assert "served: 3 at most, 3 at last" in page.text
    assert page.handlers == []
    assert "style=" not in page.html
    assert "parse 3 from" in page.text
    assert 'aria-label="3 from' in page.html
    day = viewer.get(page.links["last day"].partition("#")[0])
    assert "ready: 4 at most" in day.text
    assert "Served and failed each 15 minutes" in day.text
    tenant = viewer.get("tenant", queue=QUEUE.name, channel="b")
    assert "ready: 1 at most, 0 at last" in tenant.text
    assert "Over time" not in viewer.get().text


def test_without_samples_and_history(browse: Browse, engine: Engine, database: Database, clock: Clock) -> None:
    """The page says that there are no samples, and that the queue records no history; deaths are drawn."""
    bury(engine, "a")
    viewer = browse("viewer")
    page = viewer.get("tenants", queue=QUEUE.name)
    assert "No sample of that time is kept" in page.text
    assert "records no history" in page.text
    assert "<polyline" not in page.html.partition("Over time")[2]
    _keep(database, clock)
    bury(engine, "a", "b")
    clock.advance(timedelta(minutes=1))
    _keep(database, clock)
    tenant = viewer.get("tenant", queue=QUEUE.name, channel="a")
    assert "died: 1 at most, 1 at last" in tenant.text
