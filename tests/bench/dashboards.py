"""Dashboards of the benchmarks: requests of all pages, traffic beside them, and viewers with open pages."""

from __future__ import annotations

import asyncio
import random
import re
import threading
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

import httpx

from sqlalchemy_fairqueue import Enqueue, Queue
from sqlalchemy_fairqueue.dashboard import create_dashboard
from tests.dashboard.conftest import Page, served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlalchemy import Engine

QUEUE = Queue("bench", schema="fairqueue")


@contextmanager
def visited(engine: Engine) -> Iterator[httpx.Client]:
    """A client of a dashboard that has its first figures."""
    with served(create_dashboard(engine, QUEUE)) as address, httpx.Client(base_url=address, timeout=120) as client:
        while client.get("/").status_code == httpx.codes.ACCEPTED:
            pass
        yield client


@contextmanager
def traffic(engine: Engine, channels: int) -> Iterator[None]:
    """Complete messages, and enqueue others to channels at random."""
    stopped = threading.Event()

    def consume() -> None:
        while not stopped.is_set():
            QUEUE.complete(engine, QUEUE.dequeue(engine, limit=50))

    def produce() -> None:
        while not stopped.wait(0.05):
            names = [f"channel-{random.randint(1, channels)}" for _ in range(50)]  # noqa: S311
            QUEUE.enqueue_many(engine, [Enqueue(channel=name, payload=1) for name in names])

    threads = [threading.Thread(target=work) for work in (consume, produce)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopped.set()
        for thread in threads:
            thread.join()


def row_of(html: str, channel: str) -> str:
    """The text of the row of a tenant; empty: the table does not show it."""
    rows = re.findall(r"<tr>.*?</tr>", html, re.DOTALL)
    found = [row for row in rows if f'channel={channel}">' in row.split("</th>")[0]]
    return " ".join(Page(200, found[0]).text.split()) if found else ""


def seconds_until(holds: Callable[[], bool], most: float) -> float:
    """How long it takes until something holds, or *most*."""
    began = monotonic()
    while not holds() and monotonic() - began < most:
        pass
    return monotonic() - began


async def watch(address: str, pages: Sequence[str], until: Callable[[], bool]) -> int:
    """Viewers with a page each open, as browsers have them: they load it anew at each event. Returns the loads."""
    parts = urlsplit(address)
    loads = 0

    async def view(page: str) -> None:
        nonlocal loads
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(b"GET /live HTTP/1.1\r\nhost: x\r\n\r\n")
        pages = await asyncio.open_connection(parts.hostname, parts.port)
        event = asyncio.ensure_future(reader.readuntil(b"event: figures"))
        try:
            while not until():
                await asyncio.wait([event], timeout=0.2)
                if event.done():
                    event.result()
                    event = asyncio.ensure_future(reader.readuntil(b"event: figures"))
                    if pages[0].at_eof():
                        # The server has closed it, since nothing came for long.
                        pages = await asyncio.open_connection(parts.hostname, parts.port)
                    await _load(*pages, page)
                    loads += 1
        finally:
            event.cancel()
            writer.close()
            pages[1].close()

    await asyncio.gather(*map(view, pages))
    return loads


async def _load(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, page: str) -> None:
    writer.write(f"GET /{page} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    await reader.readexactly(int(re.findall(rb"content-length: (\d+)", head)[0]))


def address_of(page: str, **query: object) -> str:
    """The path of a page of the queue."""
    return f"/{page}?{urlencode({'queue': QUEUE.name, **query})}"
