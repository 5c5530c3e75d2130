"""The base of all pages: finds out who asks, renders what every page has, and reads the tenants that pages list."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from heapq import nsmallest
from operator import itemgetter
from time import monotonic
from typing import TYPE_CHECKING, Any

from markupsafe import escape
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response

from sqlalchemy_fairqueue.dashboard.access import CSRF_COOKIE, access_of, csrf_token
from sqlalchemy_fairqueue.dashboard.rendering import rendered
from sqlalchemy_fairqueue.dashboard.words import SAID, reason_detail, shares_of
from sqlalchemy_fairqueue.database.calls import Target
from sqlalchemy_fairqueue.figures.queues import age, figures_now
from sqlalchemy_fairqueue.formats import parse_whole
from sqlalchemy_fairqueue.texts import clean
from sqlalchemy_fairqueue.values.waits import with_waits

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Sequence
    from datetime import timedelta

    from starlette.requests import Request

    from sqlalchemy_fairqueue.dashboard.access import Access, Authorize
    from sqlalchemy_fairqueue.dashboard.reading import Reading
    from sqlalchemy_fairqueue.dashboard.words import Share
    from sqlalchemy_fairqueue.figures.queues import Figures, QueueFigures
    from sqlalchemy_fairqueue.values.reports import ChannelDemand, ChannelStats

_NAME, _TOKEN = secrets.token_hex(16), secrets.token_hex(16)
"""Placeholders in a page for each viewer's own name and token; nobody can guess them and put them into a name."""
QUEUES = 100
"""The most queues that a page lists, and the most for which it reads anew why their tenants wait."""
_AT_ONCE = 4
"""How many queues a page about several queues reads at once."""
_LATELY = 4
"""A channel that a page asked for stays in the shared readings of its queue for this many times *keep*."""
_MOST_WANTED = 1_000
_MOST_SHARED_SECONDS = 0.25


class Unread(Exception):
    """The figures are still being read for the first time, so the page cannot be made yet."""


@dataclass(frozen=True, slots=True)
class Row:
    """A tenant in a table, with its queue.

    Attributes:
        waited: How long the tenant's oldest ready message has waited. None: nothing is ready.
        detail: A few words about the reason of the tenant's wait, with figures.
        shares: One or two shares of the service, as ``words.shares_of`` returns them.
        entitled: The part to which the tenant's weight entitles it, 0 to 1. None: it does not compete with others now.
    """

    queue: QueueFigures
    channel: ChannelDemand
    waited: timedelta | None
    detail: str
    shares: Sequence[Share]
    entitled: float | None
    completed_per_second: float | None


@dataclass(frozen=True, slots=True)
class QueuePage:
    """A page of a list of queues.

    Attributes:
        found: How many queues the whole list has.
        find: The text that the names of all listed queues contain.
    """

    queues: Sequence[QueueFigures]
    found: int
    number: int = 1
    find: str = ""

    @property
    def parts(self) -> int:
        return max(1, -(-self.found // QUEUES))


class View:
    """A request for a page: who asks, and the figures that the page shows."""

    def __init__(self, pages: PageBase, request: Request, access: Access, figures: Figures) -> None:
        self.pages = pages
        self.access = access
        self.figures = figures
        self.query = request.query_params

    @property
    def chosen(self) -> str | None:
        """The queue that the address names; None: all."""
        return self.query.get("queue")

    @property
    def queue(self) -> QueueFigures:
        name = self.chosen or ""
        # Browsers send the line feed of a hidden field as two characters.
        found = self.figures.queues.get(name) or self.figures.queues.get(name.replace("\r\n", "\n"))
        if found is None:
            raise HTTPException(404, f"There is no queue {self.chosen!r}.")
        return found

    @property
    def queues(self) -> Sequence[QueueFigures]:
        return list(self.figures.queues.values()) if self.chosen is None else [self.queue]

    def listed(self, queues: Sequence[QueueFigures] | None = None) -> QueuePage:
        queues, find = self.queues if queues is None else queues, self.query.get("find", "").strip()
        found = [queue for queue in queues if find.casefold() in queue.name.casefold()] if find else queues
        text = self.query.get("page", "1")
        number = whole_of(text)
        if not number:
            raise HTTPException(404, f"There is no page {text[:40]!r}.")
        # Queues may be gone since the link was made, so the number may be too high.
        number = min(number, QueuePage((), len(found)).parts)
        return QueuePage(found[(number - 1) * QUEUES : number * QUEUES], len(found), number, find)

    def answer(self, template: str, **values: Any) -> Response:
        said = SAID.get(self.query.get("done", ""))
        common = {
            "page": template, "access": self.access, "figures": self.figures, "at": self.figures.at, "csrf": _TOKEN,
            "done": said and said.format(count=whole_of(self.query.get("count", ""))), "reasons_at": None,
            "ago": lambda instant: age(instant, self.figures.at), "chosen": self.chosen,
            "many": self.chosen is None and len(self.figures.queues) > 1,
        }  # fmt: skip
        with self.pages.reading.spending():
            return HTMLResponse(rendered(f"{template}.html", **common | values))


class PageBase:
    """The base class of the pages; *trace_url* is where traces are shown, with ``{trace_id}`` in it."""

    def __init__(self, reading: Reading, authorize: Authorize | None, trace_url: str | None = None) -> None:
        self.reading = reading
        self.authorize = authorize
        self.trace_url = trace_url
        self._wanted: dict[str, dict[str, float]] = {}
        self._together: dict[str, frozenset[str]] = {}  # the channels of the reading that pages of a queue share

    async def tenant_row(self, queue: QueueFigures, figures: Figures, channel: str) -> Row | None:
        if self.reading.figures.are_kept_longer:
            queue = await self._queue_now(queue, [channel])
        listed = next((one for one in queue.contention.channels if one.channel == channel), None)
        if listed is not None:
            return self.row(queue, listed)
        stats = await self.channel_stats(queue.name, channel)
        if stats is None:
            return None
        [found] = with_waits(queue.stats, queue.contention, queue.limits, [stats], figures.at)
        return self.row(queue, found)

    async def tenants_now(self, queues: Iterable[QueueFigures]) -> list[tuple[QueueFigures, ChannelDemand]]:
        """Return the tenants in the figures of *queues*, each with the reason of its wait, sorted by ``suffering``.

        Figures that take long to read are kept for long, so the reasons of waits in them grow old. In that case, the
        reasons of up to ``QUEUES`` queues are read anew.
        """
        chosen = list(queues)
        read_again = {queue.name for queue in suffering_most(chosen, QUEUES)}
        limited = asyncio.Semaphore(_AT_ONCE)

        async def read(queue: QueueFigures, names: Sequence[str]) -> QueueFigures:
            if queue.name not in read_again:
                return queue
            async with limited:
                return await self._queue_now(queue, names)

        names = [[one.channel for one in queue.contention.channels] for queue in chosen]
        now = chosen
        if self.reading.figures.are_kept_longer:
            now = await asyncio.gather(*map(read, chosen, names))
        found = []
        for queue, listed in zip(now, map(frozenset, names), strict=True):
            # Leave out tenants that a new reading adds: only their leased messages are known.
            found += [(queue, one) for one in queue.contention.channels if one.channel in listed]
        return sorted(found, key=lambda one: suffering(*one))

    async def _queue_now(self, queue: QueueFigures, channels: Sequence[str]) -> QueueFigures:
        """Return the figures of a queue. The figures of *channels* are at most about ``_moment`` seconds old.

        All open pages of the queue share one reading of the channels that the pages asked for lately. If the shared
        reading lacks one of *channels*, a separate reading fetches *channels*. The next shared reading includes them.
        """
        if not channels:
            return queue
        together, alone = ("reasons", queue.name), ("reasons", queue.name, tuple(channels))
        key: Hashable = together
        if not self.reading.is_at_hand(together):
            self._together[queue.name] = frozenset(self._wanted_with(queue.name, channels))
        elif not self._together[queue.name].issuperset(channels):
            self._wanted_with(queue.name, channels)
            key = alone
        names = channels if key == alone else list(self._together[queue.name])
        read = partial(self.reading.read, figures_now, self.reading.queue(queue.name), queue, names)
        return await self.reading.shared(key, read, self._moment, always=True)

    def _wanted_with(self, queue: str, channels: Sequence[str]) -> list[str]:
        wanted, now = self._wanted.get(queue, {}), monotonic()
        lately = now - _LATELY * self.reading.keep.total_seconds()
        found = {channel: at for channel, at in wanted.items() if at >= lately}
        for channel in channels:
            found.pop(channel, None)
            found[channel] = now
        self._wanted[queue] = dict(list(found.items())[-_MOST_WANTED:])
        return list(self._wanted[queue])

    def row(self, queue: QueueFigures, channel: ChannelDemand) -> Row:
        rate = queue.completed_per_second
        if rate and queue.completed:
            rate *= queue.completed_by_channel.get(channel.channel, 0) / queue.completed
        return Row(
            queue, channel, queue.waited(channel), reason_detail(channel, queue), shares_of(channel, queue),
            queue.contention.entitled(channel) if channel.competes else None, rate,
        )  # fmt: skip

    async def channel_stats(self, queue: str, channel: str) -> ChannelStats | None:
        of, key = self.reading.queue(queue), ("channel", queue, channel)
        found = await self.reading.kept(key, of.channels, channel, seconds=self._moment)
        return found[0] if found else None

    async def access(self, request: Request) -> Access:
        return await access_of(request, self.authorize)

    def page(
        self, make: Callable[[View], Awaitable[Response]], *, shared: bool = False
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return an endpoint that puts the viewer's name and form token into the page that *make* renders.

        If *shared*, a page is rendered once for all viewers with the same rights who request it within a moment.
        """

        async def endpoint(request: Request) -> Response:
            access = await self.access(request)
            nameless = replace(access, name=_NAME)

            async def made() -> Response:
                figures = await self.reading.figures_at_hand()
                if figures is None:
                    raise Unread
                return await make(View(self, request, nameless, figures))

            if not shared:
                return self.personal(request, access, await made())
            # Not request.url, which raises an error for some values of the header Host.
            key = ("page", request.scope["path"], request.scope["query_string"], nameless)
            # When a page is made, its reasons may be ``_moment`` old, so it is kept for less than the rest of *keep*.
            seconds = min(self._moment / 2, _MOST_SHARED_SECONDS)
            return self.personal(request, access, await self.reading.shared(key, made, seconds, always=True))

        return endpoint

    def personal(self, request: Request, access: Access, answer: Response) -> Response:
        token = csrf_token(request)
        name = escape(clean(access.name)).encode()
        body = bytes(answer.body).replace(_TOKEN.encode(), token.encode()).replace(_NAME.encode(), name)
        page = HTMLResponse(body, answer.status_code)
        secure = request.scope["scheme"] == "https"
        page.set_cookie(CSRF_COOKIE, token, httponly=True, samesite="strict", secure=secure)
        return page

    @property
    def _moment(self) -> float:
        """The seconds for which a reading of tenants is kept."""
        return self.reading.keep.total_seconds() / 4

    def target_of(self, queue: str) -> Target:
        return Target(self.reading.schema, queue)


def suffering(queue: QueueFigures, channel: ChannelDemand) -> tuple[bool, float, int, str]:
    waited = queue.waited(channel)
    return waited is None, -(waited.total_seconds() if waited else 0.0), -channel.leased, channel.channel


def suffering_most(queues: Collection[QueueFigures], most: int) -> Collection[QueueFigures]:
    """Return up to *most* queues: all of them, or if there are more, the queues of the tenants that wait longest."""
    if len(queues) <= most:
        return queues
    waiting = (
        (suffering(queue, one), queue)
        for queue in queues
        for one in queue.contention.channels
        if one.oldest_ready_at is not None
    )
    longest = nsmallest(most, waiting, key=itemgetter(0))
    return {queue.name: queue for _, queue in longest}.values()


def whole_of(text: str) -> int:
    with suppress(ValueError):
        return parse_whole(text)
    return 0


def message_id_of(text: str) -> int:
    if found := whole_of(text):
        return found
    raise HTTPException(404, f"{text[:40]!r} is no id of a message.")
