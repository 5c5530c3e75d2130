"""Samples of queues over time: one a minute, of the busiest channels, with what was served and failed."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, text

from sqlalchemy_fairqueue import InvalidArgument, Queue
from sqlalchemy_fairqueue.database.engines import run
from sqlalchemy_fairqueue.reports import Trend, TrendPoint
from tests.cli.messages import QUEUE, bury, enqueue, lease
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database
from tests.fixtures.waits import Waits

_MINUTE = timedelta(minutes=1)
_KEEP = f"select fq_keep_samples('{{{QUEUE.name}}}')"


@pytest.fixture
def keep(database: Database, clock: Clock) -> Callable[[], int]:
    """Keep the samples of the next minute; how many rows there are new."""

    def kept() -> int:
        clock.advance(_MINUTE - timedelta(seconds=clock.now().second))
        rows: int = database.value(_KEEP)
        return rows

    return kept


def _last(trend: Trend) -> TrendPoint:
    return [point for point in trend.points if point.ready is not None][-1]


def test_one_row_a_minute(
    engine: Engine, database: Database, keep: Callable[[], int], waits: Waits, connect: Callable[[], Connection]
) -> None:
    """Several that keep samples at the same time, or one after the other, keep one row a minute, and hinder no verb."""
    enqueue(engine, "a", "a", "b")
    assert keep() == 3
    assert database.value(_KEEP) == 0
    database.execute("delete from fq_sample")
    first = connect()
    first.execute(text(_KEEP))
    second = waits.start(lambda engine: run(engine, lambda one: one.scalar(text(_KEEP)))).blocked()
    waits.unhindered(lambda engine: QUEUE.complete(engine, lease(engine)))
    first.commit()
    assert second.result() == 0
    assert database.value("select count(*) from fq_sample") == 3


def test_sizes_of_an_hour(engine: Engine, database: Database, clock: Clock, keep: Callable[[], int]) -> None:
    """With the samples go the sizes of the largest tables, once an hour and for eight days."""
    enqueue(engine, "a")
    clock.advance(timedelta(hours=1) - timedelta(minutes=clock.now().minute))
    keep()
    keep()
    hours = "select string_agg(n::text, ' ') from (select count(*) as n from fq_size group by at order by at) h"
    assert database.value(hours) == "10"
    assert database.value("select bytes = pg_total_relation_size('fq_message') from fq_size where name = 'fq_message'")
    clock.advance(timedelta(hours=1))
    keep()
    assert database.value(hours) == "10 10"
    clock.advance(timedelta(days=7, hours=23, minutes=30))
    keep()
    assert database.value(hours) == "10 10 10"
    database.execute("select fq_prune_expired(100)")
    assert database.value(hours) == "10 10"
    assert database.value("select count(*) from fq_growth()") == 0


def test_backlog_and_oldest_wait(engine: Engine, clock: Clock, keep: Callable[[], int]) -> None:
    """Each point has the most of its samples; where there is none it says so."""
    enqueue(engine, "a", "a", "b")
    enqueue(engine, "later", delay=timedelta(days=1))
    keep()
    clock.advance(2 * _MINUTE)
    QUEUE.complete(engine, lease(engine, 2))
    keep()
    hour = QUEUE.admin.trend(engine)
    assert (hour.step, len(hour.points)) == (_MINUTE, 60)
    assert [point.ready for point in hour.points[-4:]] == [3, None, None, 1]
    assert hour.points[-1].at == clock.now().replace(second=0, microsecond=0)
    waited = hour.points[-1].oldest_wait
    assert waited is not None
    assert 3 * _MINUTE <= waited < 5 * _MINUTE
    day = QUEUE.admin.trend(engine, over=timedelta(days=1))
    assert max(point.ready or 0 for point in day.points) == 3
    assert sum(_last(QUEUE.admin.trend(engine, channel=name)).ready or 0 for name in "ab") == 1


def test_the_busiest_channels(engine: Engine, keep: Callable[[], int]) -> None:
    """Twenty channels are kept; of the others nothing is known, or, if these are fewer, that they have nothing."""
    QUEUE.configure(engine, history=True)
    names = [f"c{number:02}" for number in range(19)]
    enqueue(engine, "most", "most", "most", *names)
    assert keep() == 21
    assert _last(QUEUE.admin.trend(engine, channel="most")).ready == 3
    enqueue(engine, "most", *names, "z")
    assert keep() == 21
    [*_, point] = QUEUE.admin.trend(engine, channel="z").points
    assert (point.ready, point.oldest_wait, point.served, point.failed) == (None, None, None, None)
    enqueue(engine, "z", "z")
    QUEUE.complete(engine, lease(engine))
    assert keep() == 21
    assert _last(QUEUE.admin.trend(engine, channel="z")).served == 3, "those with the most attempts"
    assert keep() == 1
    point = _last(QUEUE.admin.trend(engine, channel="z"))
    assert (point.ready, point.oldest_wait, point.served, point.failed) == (0, timedelta(0), 0, 0)


def test_old_rows_go(engine: Engine, database: Database, clock: Clock, keep: Callable[[], int]) -> None:
    """Rows are kept for 25 hours, those of other queues are left alone."""
    enqueue(engine, "a")
    keep()
    other = Queue("others")
    enqueue(engine, "a", queue=other)
    database.value("select fq_keep_samples('{others}')")
    clock.advance(timedelta(hours=25))
    keep()
    assert database.value("select string_agg(queue, ' ' order by queue, at, channel) from fq_sample") == (
        "documents documents others others"
    )


def test_served_and_failed(engine: Engine, clock: Clock, keep: Callable[[], int]) -> None:
    """Each attempt that ended is counted once, by the minute and channel; after a pause of the workers none is."""
    QUEUE.configure(engine, history=True)
    enqueue(engine, "a", "a", "a", "a", "b", "b")
    keep()
    assert _last(QUEUE.admin.trend(engine)).served is None
    one, two, three, *others = sorted(lease(engine), key=lambda found: (found.channel, found.message_id))
    QUEUE.complete(engine, [one, two])
    QUEUE.retry(engine, three, error="busy")
    keep()
    QUEUE.release(engine, others[:1])
    QUEUE.complete(engine, others[1:2])
    QUEUE.bury(engine, others[2:])
    keep()
    keep()

    def ended(channel: str | None) -> list[tuple[int | None, int | None]]:
        return [(point.served, point.failed) for point in QUEUE.admin.trend(engine, channel=channel).points[-3:]]

    assert ended(None) == [(2, 1), (1, 1), (0, 0)]
    assert ended("a") == [(2, 1), (0, 0), (0, 0)]
    assert ended("b") == [(0, 0), (1, 1), (0, 0)]
    day = QUEUE.admin.trend(engine, over=timedelta(days=1)).points
    assert [sum(getattr(point, name) or 0 for point in day) for name in ("served", "failed")] == [3, 2]
    clock.advance(timedelta(minutes=20))
    keep()
    assert [(point.served, point.failed) for point in QUEUE.admin.trend(engine).points[-1:]] == [(None, None)]


def test_without_a_history(engine: Engine, database: Database, keep: Callable[[], int], clock: Clock) -> None:
    """What was served is not known; the dead letters tell of deaths, also when they have been redriven."""
    QUEUE.configure(engine, history=False)
    keep()
    clock.advance(_MINUTE)
    letters = bury(engine, "b", "c")
    assert database.value(_KEEP) == 1
    keep()
    QUEUE.dead_letters.redrive(engine, letters)
    keep()
    points = QUEUE.admin.trend(engine).points[-3:]
    assert [(point.served, point.failed) for point in points] == [(None, 0), (None, 2), (None, 0)]
    assert QUEUE.admin.trend(engine, channel="b").points[-2].failed == 1
    assert QUEUE.admin.trend(engine).handlers == ()


def test_times_of_handlers(engine: Engine, clock: Clock) -> None:
    """Each attempt falls into a bucket of its kind, the kind with the most attempts first; a release is none."""
    QUEUE.configure(engine, history=True)
    enqueue(engine, "a", "a", "b", kind="parse")
    enqueue(engine, "a", kind="send")
    found = lease(engine)
    parse = [delivery for delivery in found if delivery.kind == "parse"]
    clock.advance(timedelta(seconds=50))
    QUEUE.complete(engine, [delivery for delivery in found if delivery.kind == "send"])
    QUEUE.complete(engine, parse[:2])
    clock.advance(timedelta(hours=1))
    QUEUE.retry(engine, parse[2])
    QUEUE.release(engine, lease(engine))
    one, two = QUEUE.admin.trend(engine, over=2 * timedelta(hours=1)).handlers
    assert (one.kind, one.attempts, two.kind, two.attempts) == ("parse", 3, "send", 1)
    assert one.counts == (0,) * 10 + (2, 0, 0, 1)
    assert (one.within(0.5), one.within(0.9)) == (timedelta(seconds=100), None)
    [last] = QUEUE.admin.trend(engine, over=_MINUTE).handlers
    assert last.attempts == 1
    [mine] = QUEUE.admin.trend(engine, channel="b", over=timedelta(days=1)).handlers
    assert mine.attempts == 1


def test_bad_arguments(engine: Engine) -> None:
    """Times that no sample covers are refused, and names that are none."""
    wrong: tuple[dict[str, Any], ...] = (
        {"over": timedelta(seconds=59)}, {"over": timedelta(days=1, seconds=1)}, {"over": 60}, {"channel": ""},
    )  # fmt: skip
    for one in wrong:
        with pytest.raises(InvalidArgument):
            QUEUE.admin.trend(engine, **one)
