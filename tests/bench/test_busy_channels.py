"""Pages of the dashboard and reasons of waits at 100,000 channels with messages, and at 10 million messages."""

from __future__ import annotations

import random
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from math import ceil
from time import monotonic
from typing import TYPE_CHECKING

import httpx
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Enqueue, Queue
from sqlalchemy_fairqueue.figures import Reason
from tests.bench.dashboards import QUEUE, address_of, row_of, seconds_until, traffic, visited
from tests.bench.figures import Figure
from tests.dashboard.conftest import Page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine

    from tests.bench.figures import Report
    from tests.bench.stage import Stage

_HOUR = timedelta(hours=1)
_KEPT_SECONDS = 2.0
_PAGE_SECONDS = 0.2
_ROUNDS = 40
_DEAD = 2_000
_BATCH = 2_000
_OTHER = Queue("summaries", schema="fairqueue")


def test_pages_at_many_busy_channels(stage: Stage, report: Report, *, full: bool) -> None:
    """The p95 of each page is below 200 ms beside traffic, with 3 messages a channel."""
    channels = 100_000 if full else 20_000
    with _filled(stage, channels, 3 * channels) as engine:
        _hold(engine, channels // 5)
        _report_pages(report, engine, channels, f"{channels:,} channels, {3 * channels:,} messages")


def test_pages_at_many_messages(stage: Stage, report: Report, *, full: bool) -> None:
    """The same with 100 messages a channel."""
    channels = 100_000 if full else 10_000
    with _filled(stage, channels, 100 * channels) as engine:
        _hold(engine, channels // 5)
        _report_pages(report, engine, channels, f"{channels:,} channels, {100 * channels:,} messages")


def test_reasons_at_many_busy_channels(stage: Stage, report: Report, *, full: bool) -> None:
    """The table of all tenants and a tenant's page name each reason, with the culprit, within two seconds."""
    channels = 100_000 if full else 20_000
    with _filled(stage, channels, 3 * channels) as engine:
        late = _named(engine, channels // 5)
    assert late.keys() == set(Reason)
    for page in ("the table of tenants", "a tenant's page"):
        worst = max(late, key=lambda reason: late[reason][page])
        report.add(
            Figure(
                f"until {page} names the reason of a wait and the culprit, {channels:,} channels, the latest: {worst}",
                "s", [late[worst][page]], [_KEPT_SECONDS], "2 s", 1.0, "less",
                {str(reason): f"{found[page]:.2f} s" for reason, found in late.items()},
            )
        )  # fmt: skip


@contextmanager
def _filled(stage: Stage, channels: int, messages: int) -> Iterator[Engine]:
    filled = stage.fill("fair", channels=channels, messages=messages)
    engine = create_engine(make_url(stage.conninfo(filled.name)).set(drivername="postgresql+psycopg"))
    try:
        QUEUE.configure(engine, history=True)
        yield engine
    finally:
        engine.dispose()
        stage.drop(filled)


def _hold(engine: Engine, messages: int) -> None:
    held = 0
    while held < messages:
        held += len(QUEUE.dequeue(engine, limit=_BATCH, lease=_HOUR))


def _report_pages(report: Report, engine: Engine, channels: int, size: str) -> None:
    for page, seconds in _measured(engine, channels).items():
        p95 = sorted(seconds)[ceil(len(seconds) * 0.95) - 1]
        what = f"the page {page}, {size}, beside traffic, p95"
        report.add(Figure(what, "ms", [p95 * 1000], [_PAGE_SECONDS * 1000], "200 ms", 1.0, "less"))


def _measured(engine: Engine, channels: int) -> dict[str, list[float]]:
    """The seconds of each request by page, beside traffic, while a fifth of the channels have a message out."""
    QUEUE.bury(engine, QUEUE.dequeue(engine, limit=_DEAD), reason="test", error="ValueError: no such page")
    QUEUE.configure_plan(engine, "gold", weight=2)
    QUEUE.schedule(engine, "nightly", channel="channel-1", every=_HOUR)
    with Session(engine) as session, session.begin(), QUEUE.group(session) as group:
        group.enqueue_many([Enqueue(channel=f"channel-{number}", payload=1) for number in range(1, 1001)])
    waiting = [one.message_id for one in QUEUE.messages(engine, channel=f"channel-{channels}", limit=20)]
    took: dict[str, list[float]] = {}
    with traffic(engine, channels), visited(engine) as client:
        for _ in range(_ROUNDS):
            channel = f"channel-{random.randint(1, channels)}"  # noqa: S311
            pages = {
                "of all queues": "/",
                "of all tenants": address_of("tenants"),
                "of a tenant": address_of("tenant", channel=channel),
                "of a message": address_of("message", id=waiting[-1]),
                "of plans": address_of("plans"),
                "of a plan": address_of("plan", plan="gold"),
                "of groups": address_of("groups"),
                "of a group": address_of("group", group=group.id),
                "of dead letters": address_of("dead"),
                "of schedules": address_of("schedules"),
                "of workers": address_of("workers"),
                "of health": "/health",
            }
            for page, path in pages.items():
                began = monotonic()
                assert client.get(path).status_code == httpx.codes.OK, page
                took.setdefault(page, []).append(monotonic() - began)
    return took


@dataclass
class _Case:
    """What makes a tenant wait for a reason.

    Attributes:
        reason: The reason.
        channel: The tenant.
        causes: What makes it wait for that, step by step.
        end: Undoes it.
        culprit: Words that name whose fault it is.
    """

    reason: Reason
    channel: str
    causes: tuple[Callable[[], object], ...]
    end: Callable[[], object] = field(default=lambda: None)
    culprit: str = ""


def _named(engine: Engine, held: int) -> dict[Reason, dict[str, float]]:
    """The seconds until both pages name the reason and the culprit, by reason and page, each after what causes it."""
    late: dict[Reason, dict[str, float]] = {}
    cases = _cases(engine, held)
    with visited(engine) as client:
        for case in cases:
            for cause in case.causes:
                cause()
            late[case.reason] = {
                "the table of tenants": seconds_until(lambda case=case: _in_table(client, case), 5 * _KEPT_SECONDS),  # type: ignore[misc]
                "a tenant's page": seconds_until(lambda case=case: _on_page(client, case), 5 * _KEPT_SECONDS),  # type: ignore[misc]
            }
            case.end()
    return late


def _in_table(client: httpx.Client, case: _Case) -> bool:
    filtered = {"reason": str(case.reason)} if case.reason is Reason.SCHEDULED else {}
    row = row_of(client.get(address_of("tenants", **filtered)).text, case.channel)
    return f" {case.reason} " in f"{row} " and case.culprit in row


def _on_page(client: httpx.Client, case: _Case) -> bool:
    html = client.get(address_of("tenant", channel=case.channel)).text
    verdict = Page(200, html.partition('class="verdict">')[2].partition("</p>")[0]).text
    return verdict.startswith(str(case.reason)) and case.culprit in verdict


def _cases(engine: Engine, held: int) -> list[_Case]:
    """The twelve, of tenants that wait longest: one that nobody serves, and three that have a message out."""
    full, rated, busy, whale, rival = _next_in_turn(engine, 5)
    waits, later = "waits", "later"
    for channel, most in ((full, 5), (rated, None), (busy, None)):
        QUEUE.configure_channel(engine, channel, max_concurrency=most)
        QUEUE.enqueue_many(engine, [Enqueue(channel=channel, payload=1)] * 3)
    QUEUE.configure_channel(engine, rated, rate="1/h, burst 1")
    for channel in (whale, rival):
        QUEUE.configure_channel(engine, channel, weight=1000)
    QUEUE.pause(engine, rival)
    QUEUE.enqueue_many(engine, [Enqueue(channel=whale, payload=1)] * 500)
    QUEUE.enqueue_many(engine, [Enqueue(channel=rival, payload=1)] * 900)
    _hold(engine, held)
    QUEUE.enqueue_many(engine, [Enqueue(channel=waits, payload=1)] * 20)
    QUEUE.enqueue_many(engine, [Enqueue(channel=later, payload=1, delay=_HOUR), Enqueue(channel=later, payload=1)])
    QUEUE.pause(engine, waits)
    QUEUE.pause(engine, later)
    QUEUE.dequeue(engine, limit=1, lease=_HOUR)
    for channel in (busy, rated, full):
        QUEUE.pause(engine, channel)
    _make_old(engine, [full, rated, busy, waits, later])
    _OTHER.enqueue_many(engine, [Enqueue(channel="y", payload=1)] * 2)
    _OTHER.dequeue(engine, limit=2, lease=_HOUR)
    take_one = partial(QUEUE.dequeue, engine, limit=1, lease=_HOUR)
    return [
        _Case(Reason.CAPACITY, busy, (partial(QUEUE.resume, engine, busy),)),
        _Case(
            Reason.OWN_LIMIT, full,
            (partial(QUEUE.configure_channel, engine, full, max_concurrency=1), partial(QUEUE.resume, engine, full)),
        ),
        _Case(Reason.RATE, rated, (partial(QUEUE.resume, engine, rated),)),
        _Case(
            Reason.TURN, waits, (partial(_take, engine, rival), partial(QUEUE.resume, engine, waits)), _nothing,
            f"taken by {rival}",
        ),
        _Case(Reason.PAUSED, waits, (partial(QUEUE.pause, engine, waits),), partial(QUEUE.resume, engine, waits)),
        _Case(Reason.SCHEDULED, later, (partial(_cancel_ready, engine, later),)),
        _Case(Reason.NO_CONSUMER, waits, (partial(_expire, engine, 0),), partial(_expire, engine, 3_600_000_000)),
        _Case(
            Reason.QUEUE_LIMIT, waits, (partial(QUEUE.configure, engine, max_concurrency=1),),
            partial(QUEUE.configure, engine, max_concurrency=None), f"taken by {rival}",
        ),
        _Case(
            Reason.QUEUE_RATE, waits, (partial(QUEUE.configure, engine, rate="1/h, burst 1"), take_one),
            partial(QUEUE.configure, engine, rate=None), f"taken by {rival}",
        ),
        _Case(
            Reason.SHARED_LIMIT, waits, (partial(_share, engine, max_concurrency=1),),
            partial(_share, engine, max_concurrency=None), "summaries has 2 out",
        ),
        _Case(
            Reason.SHARED_RATE, waits, (partial(_share, engine, rate="1/h, burst 1"), take_one),
            partial(_share, engine, rate=None), "shared limit api",
        ),
        _Case(Reason.QUEUE_PAUSED, waits, (partial(QUEUE.pause, engine),), partial(QUEUE.resume, engine)),
    ]  # fmt: skip


def _nothing() -> None:
    """Undoes nothing."""


def _next_in_turn(engine: Engine, count: int) -> list[str]:
    found = """
        select c.name from fairqueue.fq_channel_state s join fairqueue.fq_channel c on c.id = s.channel_id
        where s.queue = 'bench' and s.next_dequeue_at is not null order by s.next_dequeue_at limit :count
    """
    with engine.connect() as connection:
        return list(connection.execute(text(found), {"count": count}).scalars())


_OLDER_MESSAGES = """
    update fairqueue.fq_message m
    set dequeue_at = m.dequeue_at - :hour, enqueued_at = m.enqueued_at - :hour
    from fairqueue.fq_channel c
    where c.id = m.channel_id
      and c.name = any (:names)
      and m.lease_id is null
      and m.dequeue_at < fairqueue.fq_now()
"""
_OLDER_HEADS = """
    update fairqueue.fq_channel_state s
    set head_dequeue_at = s.head_dequeue_at - :hour
    from fairqueue.fq_channel c
    where c.id = s.channel_id
      and c.name = any (:names)
      and s.head_dequeue_at < fairqueue.fq_now()
"""


def _make_old(engine: Engine, channels: list[str]) -> None:
    """Let channels wait longest: an hour more than they do."""
    hour = 3_600_000_000
    with engine.begin() as connection:
        for statement in (_OLDER_MESSAGES, _OLDER_HEADS):
            connection.execute(text(statement), {"hour": hour, "names": channels})


def _take(engine: Engine, channel: str) -> None:
    """A consumer takes what a heavy tenant has, as soon as it may."""
    QUEUE.resume(engine, channel)
    QUEUE.dequeue(engine, limit=_BATCH, lease=_HOUR)


def _cancel_ready(engine: Engine, channel: str) -> None:
    [ready, *_] = sorted(QUEUE.messages(engine, channel=channel), key=lambda one: one.due_at)
    QUEUE.resume(engine, channel)
    QUEUE.cancel(engine, ready.message_id)


def _expire(engine: Engine, microseconds: int) -> None:
    """Let each lease end so long from now."""
    with engine.begin() as connection:
        connection.execute(
            text("update fairqueue.fq_lease set expires_at = fairqueue.fq_now() + :left"), {"left": microseconds}
        )


def _share(engine: Engine, **limit: object) -> None:
    QUEUE.configure_limit(engine, "api", **limit)  # type: ignore[arg-type]
    for queue in (QUEUE, _OTHER):
        queue.configure(engine, limits=["api"])
