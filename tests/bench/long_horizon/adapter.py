"""One process that enqueues at the rate it is told, works off, and reports its figures as lines of JSON.

It imports nothing but the library, so that the file can be copied into the harness. Environment variables say what to
do, lines ``ENQUEUE <n>`` on the standard input when to enqueue, and SIGTERM when to end. The harness' guide for
adapters defines all of them.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from itertools import count
from pathlib import Path
from time import monotonic, time
from typing import TYPE_CHECKING, Any

from sqlalchemy import create_engine, make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from sqlalchemy_fairqueue import AsyncWorker, Delivery, Enqueue, Queue, install_fairqueue

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sqlalchemy import URL
    from sqlalchemy.ext.asyncio import AsyncEngine

MANIFEST = json.loads(Path(__file__).with_name("adapter.json").read_text())
_WINDOW = 30.0
_AGAIN = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the environment asks for.

    Attributes:
        url: The database.
        instance: The number of this process; the first one observes.
        paced: Whether the standard input says when to enqueue.
        target_depth: Keep as many messages ready; None: enqueue at the rate.
        rate: Messages a second, unless the file that *rate_file* names has another number.
        batch: Most messages of one call.
        tick: Seconds between two calls.
        channels: Tenants, which are served in turn.
        concurrency: Handlers at once.
        payload_bytes: Size of a payload.
        work: Seconds that a handler takes.
        sample_every: Seconds between two reports.
    """

    url: URL
    instance: int
    paced: bool
    target_depth: int | None
    rate: float
    rate_file: str | None
    batch: int
    tick: float
    channels: int
    concurrency: int
    payload_bytes: int
    work: float
    sample_every: float

    @classmethod
    def from_environment(cls) -> Settings:
        """Read them."""

        def number(name: str, default: float) -> float:
            return float(os.environ.get(name, default))

        to_depth = os.environ.get("PRODUCER_MODE", "fixed") == "depth-target"
        return cls(
            url=make_url(os.environ["DATABASE_URL"]).set(drivername="postgresql+psycopg"),
            instance=int(number("BENCH_INSTANCE_ID", 0)),
            paced=not to_depth and os.environ.get("PRODUCER_PACING") == "harness",
            target_depth=int(number("TARGET_DEPTH", 1000)) if to_depth else None,
            rate=number("PRODUCER_RATE", 800),
            rate_file=os.environ.get("PRODUCER_RATE_CONTROL_FILE"),
            batch=int(number("PRODUCER_BATCH_MAX", 128)),
            tick=number("PRODUCER_BATCH_MS", 25) / 1000,
            channels=int(number("BENCH_CHANNELS", 16)),
            concurrency=int(number("WORKER_COUNT", 32)),
            payload_bytes=int(number("JOB_PAYLOAD_BYTES", 256)),
            work=number("JOB_WORK_MS", 1) / 1000,
            sample_every=number("SAMPLE_EVERY_S", 5),
        )

    def current_rate(self) -> float:
        """Messages a second, as asked now."""
        if self.rate_file is not None:
            with suppress(OSError, ValueError):
                return float(Path(self.rate_file).read_text())
        return self.rate


@dataclass(slots=True)
class Figures:
    """Counts, and the latencies of the last seconds: at most 32,768 of each sort.

    Attributes:
        enqueued: Messages that were enqueued.
        completed: Messages whose handler returned.
        ready: Messages that were ready when it was last asked.
        leased: Messages that consumers held then.
        latencies: By sort, when it was measured and the milliseconds.
    """

    enqueued: int = 0
    completed: int = 0
    ready: int = 0
    leased: int = 0
    latencies: dict[str, deque[tuple[float, float]]] = field(
        default_factory=lambda: {sort: deque(maxlen=2**15) for sort in ("producer", "claim", "end_to_end")}
    )

    def took(self, sort: str, seconds: float) -> None:
        """Note a latency."""
        self.latencies[sort].append((monotonic(), seconds * 1000))

    def percentiles(self, sort: str) -> dict[str, float]:
        """Percentiles of the window, by the names of the harness."""
        since = monotonic() - _WINDOW
        recent = sorted(value for at, value in self.latencies[sort] if at >= since)
        if not recent:
            return {}
        return {f"{sort}_p{part}_ms": recent[(len(recent) - 1) * part // 100] for part in (50, 95, 99)}


def emit(settings: Settings, **record: Any) -> None:
    """Write one record."""
    sys.stdout.write(json.dumps({"system": MANIFEST["system"], "instance_id": settings.instance, **record}) + "\n")
    sys.stdout.flush()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


async def _paces(settings: Settings, figures: Figures) -> AsyncIterator[int]:
    """How many messages to enqueue, again and again."""
    if settings.paced:
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        async for line in reader:
            verb, _, number = line.decode().strip().partition(" ")
            if verb == "ENQUEUE":
                yield int(number)
        await asyncio.Future()
    credit, before = 0.0, monotonic()
    while True:
        await asyncio.sleep(settings.tick)
        now = monotonic()
        if settings.target_depth is None:
            credit += settings.current_rate() * (now - before)
            before = now
            yield int(credit)
            credit %= 1
        else:
            yield max(0, settings.target_depth - figures.ready)


async def produce(queue: Queue, engine: AsyncEngine, settings: Settings, figures: Figures) -> None:
    """Enqueue as the pace says; what the database refuses is sent again."""
    padding = "x" * max(0, settings.payload_bytes - 64)
    channels = (f"tenant-{number % settings.channels}" for number in count())
    async for wanted in _paces(settings, figures):
        for first in range(0, wanted, settings.batch):
            size = min(settings.batch, wanted - first)
            names = [next(channels) for _ in range(size)]
            while True:
                began, at = monotonic(), time()
                messages = [Enqueue(channel=name, payload={"at": at, "padding": padding}) for name in names]
                try:
                    await queue.aenqueue_many(engine, messages)
                except DBAPIError:
                    await asyncio.sleep(_AGAIN)
                else:
                    figures.took("producer", (monotonic() - began) / size)
                    figures.enqueued += size
                    break


async def observe(queue: Queue, engine: AsyncEngine, figures: Figures) -> None:
    """Ask how much is ready, once a second."""
    while True:
        with suppress(DBAPIError):
            stats = await queue.astats(engine)
            figures.ready, figures.leased = stats.ready, stats.leased
        await asyncio.sleep(1)


async def report(settings: Settings, figures: Figures) -> None:
    """Write the figures at each full interval of the clock."""
    before, enqueued, completed = monotonic(), figures.enqueued, figures.completed
    while True:
        await asyncio.sleep(settings.sample_every - time() % settings.sample_every)
        now = monotonic()
        found = {
            "enqueue_rate": (figures.enqueued - enqueued) / (now - before),
            "completion_rate": (figures.completed - completed) / (now - before),
        }
        windows = dict.fromkeys(found, settings.sample_every)
        before, enqueued, completed = now, figures.enqueued, figures.completed
        for sort in figures.latencies:
            percentiles = figures.percentiles(sort)
            found |= percentiles
            windows |= dict.fromkeys(percentiles, _WINDOW)
        if settings.instance == 0:
            found |= {"queue_depth": figures.ready, "running_depth": figures.leased}
            found |= {"total_backlog": figures.ready + figures.leased, "producer_target_rate": settings.current_rate()}
        at = _now()
        for metric, value in found.items():
            record = {"kind": "adapter", "subject_kind": "adapter", "subject": "", "metric": metric}
            emit(settings, t=at, **record, value=round(value, 3), window_s=windows.get(metric, 0))


async def main() -> None:
    """Produce, work and report until SIGTERM."""
    settings, figures, queue = Settings.from_environment(), Figures(), Queue("long_horizon")
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)

    @queue.handler
    async def work(delivery: Delivery) -> None:
        figures.took("claim", time() - delivery.payload["at"])
        if settings.work:
            await asyncio.sleep(settings.work)
        figures.took("end_to_end", time() - delivery.payload["at"])
        figures.completed += 1

    admin = create_engine(settings.url)
    install_fairqueue(admin)
    admin.dispose()
    emit(
        settings,
        kind="descriptor",
        event_tables=MANIFEST["event_tables"],
        extensions=MANIFEST["extensions"],
        version=version("sqlalchemy-fairqueue"),
        schema_version=version("sqlalchemy-fairqueue"),
        db_name=settings.url.database,
        started_at=_now(),
    )
    engine = create_async_engine(settings.url, pool_pre_ping=True)
    async with AsyncWorker(engine, queue, concurrency=settings.concurrency, grace=timedelta(seconds=2)):
        parts = [produce(queue, engine, settings, figures), report(settings, figures)]
        if settings.instance == 0:
            parts.append(observe(queue, engine, figures))
        tasks = [asyncio.create_task(part) for part in (stop.wait(), *parts)]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        failed = [task for task in tasks if task.done() and task.exception() is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    await engine.dispose()
    for task in failed:
        task.result()


if __name__ == "__main__":
    asyncio.run(main())
