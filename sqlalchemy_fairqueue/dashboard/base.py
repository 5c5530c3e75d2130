"""The base of all pages: who asks, what every page has, and the tenants in tables."""

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
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from sqlalchemy_fairqueue.dashboard.access import CSRF_COOKIE, access_of, csrf_token
from sqlalchemy_fairqueue.dashboard.rendering import name_text, rendered
from sqlalchemy_fairqueue.dashboard.words import reason_detail, shares_of, waits_words
from sqlalchemy_fairqueue.database.calls import Target
from sqlalchemy_fairqueue.figures import age, figures_now
from sqlalchemy_fairqueue.formats import parse_whole
from sqlalchemy_fairqueue.values.reports import with_waits

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
    from datetime import timedelta

    from sqlalchemy_fairqueue.dashboard.access import Access, Authorize
    from sqlalchemy_fairqueue.dashboard.reading import Reading
    from sqlalchemy_fairqueue.dashboard.words import Share
    from sqlalchemy_fairqueue.figures import Figures, QueueFigures
    from sqlalchemy_fairqueue.values.reports import ChannelDemand, ChannelStats

DONE = {
    "pause": "Paused.",
    "resume": "Resumed.",
    "policy": "The policy was changed.",
    "plan": "The plan was changed.",
    "remove_plan": "The plan was removed.",
    "purge": "Purged {count}.",
    "cancel": "Cancelled.",
    "cancel_asked": "A consumer holds the message: it is told, and the message is gone unless it completes first.",
    "cancel_selected": "Cancelled: {count}. Those that consumers hold are told, and gone unless they complete first.",
    "cancel_missing": "There is nothing to cancel: the message is done, dead or unknown.",
    "move": "Moved.",
    "move_unchanged": "It is there already.",
    "move_leased": "A consumer holds the message: it stays.",
    "move_duplicate": "Another message of that tenant holds its key: it stays.",
    "retry_selected": "Due now: {count}.",
    "retry_due": "It is due now.",
    "retry_unchanged": "It was due already.",
    "retry_redriven": "It had become a dead letter, and was redriven.",
    "retry_leased": "A consumer holds the message already.",
    "retry_duplicate": "It is a dead letter, and another message holds its key: it stays.",
    "retry_missing": "There is nothing to retry: the message is done or unknown.",
    "move_missing": "There is nothing to move: the message is done, dead or unknown.",
    "cancel_group": "Cancelled: {count}. Members that consumers hold are gone unless they complete first.",
    "redrive": "Redriven: {count}.",
    "purge_dead": "Purged for good: {count}.",
    "run_schedule": "Enqueued as message #{count}.",
    "run_schedule_dropped": "Not enqueued: the tenant has as many undelivered messages as it may have.",
    "pause_schedule": "The schedule is paused.",
    "resume_schedule": "The schedule goes on.",
    "stop_worker": "Asked: within seconds it takes no more messages, and it goes when its handlers have ended.",
    "stop_worker_gone": "Asked, but no worker of that name has a lease: it has probably stopped.",
}
"""The sentence after an action, by its name."""


_NAME, _TOKEN = secrets.token_hex(16), secrets.token_hex(16)
"""They stand in a page where each viewer's own name and token come. Nobody can guess them and put them into a name."""
_ACCESS = "fairqueue.access"
QUEUES = 100
"""Most queues that a page goes through."""
_AT_ONCE = 4
"""Queues that a page of several reads at once."""
_LATELY = 4
"""A channel is read with the others of its queue until so many *keep* after a page asked for it."""
_MOST_WANTED = 1_000
_MOST_SHARED_SECONDS = 0.25


class Unread(Exception):
    """The figures are being read for the first time: the page comes when they are there."""


@dataclass(frozen=True, slots=True)
class Row:
    """A tenant in a table, with its queue.

    Attributes:
        queue: Its queue.
        channel: The tenant.
        waits: Its waits in the past in seconds, the oldest first.
        period: The time that these span.
        served: Its part of the messages that were served lately. None: it is not known.
    """

    queue: QueueFigures
    channel: ChannelDemand
    waits: Sequence[float] = ()
    period: timedelta | None = None
    served: float | None = None

    @property
    def waited(self) -> timedelta | None:
        """How long it waits. None: nothing is ready."""
        return self.queue.waited(self.channel)

    @property
    def entitled(self) -> float | None:
        """The part that its weight entitles it to, 0 to 1. None: something of its own holds it back."""
        return self.queue.contention.entitled(self.channel) if self.channel.competes else None

    @property
    def detail(self) -> str:
        """The figures of what holds it up."""
        return reason_detail(self.channel, self.queue)

    @property
    def waits_words(self) -> str:
        """Its waits in the past as a sentence. Empty: there are not two of them."""
        return waits_words(self.waits, self.period)

    @property
    def shares(self) -> Sequence[Share]:
        """Its shares of what the queue shares, that by which it is fair first."""
        return shares_of(self.channel, self.queue, self.served)

    @property
    def completed_per_second(self) -> float | None:
        """Its completions a second, where they are counted."""
        queue = self.queue
        if queue.completed_per_second is None or not queue.completed:
            return queue.completed_per_second
        return queue.completed_by_channel.get(self.channel.channel, 0) / queue.completed * queue.completed_per_second


@dataclass(frozen=True, slots=True)
class QueuePage:
    """The queues that a page goes through, a part of thousands.

    Attributes:
        queues: Those queues.
        found: How many there are in all.
        number: The number of the part, from 1.
        find: What their names contain.
    """

    queues: Sequence[QueueFigures]
    found: int
    number: int = 1
    find: str = ""

    @property
    def parts(self) -> int:
        """How many parts there are."""
        return max(1, -(-self.found // QUEUES))


class PageBase:
    """The base of classes of pages.

    Args:
        reading: What they show.
        authorize: Who may see them.
        trace_url: Where traces are shown, with ``{trace_id}`` in it. None: nowhere.
    """

    def __init__(self, reading: Reading, authorize: Authorize | None, trace_url: str | None = None) -> None:
        self.reading = reading
        self.authorize = authorize
        self.trace_url = trace_url
        self._wanted: dict[str, dict[str, float]] = {}
        self._together: dict[str, frozenset[str]] = {}  # the channels of the reading that pages of a queue share

    async def tenant_row(self, queue: QueueFigures, figures: Figures, channel: str) -> Row | None:
        """A tenant with the reason of its wait, also one that the figures do not list.

        Where the figures are kept for longer than *keep*, the reason is read with those of the other pages.
        """
        if self.reading.figures.are_kept_longer:
            queue = await self._queue_now(queue, [channel])
        listed = next((one for one in queue.contention.channels if one.channel == channel), None)
        if listed is not None:
            return self.row(queue, listed, figures)
        stats = await self.channel_stats(queue.name, channel)
        if stats is None:
            return None
        [found] = with_waits(queue.stats, queue.contention, queue.limits, [stats], figures.at)
        return self.row(queue, found, figures)

    async def tenants_now(self, queues: Iterable[QueueFigures]) -> list[tuple[QueueFigures, ChannelDemand]]:
        """The tenants that queues list, with the reasons of this moment, read once for all viewers.

        Those that wait come first, the longest first, then the others, the most messages out first. Where the figures
        are kept for no longer than *keep*, the reasons are theirs, and so are those of further queues than a page goes
        through, whose tenants wait less long.
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
            # Further ones have messages of the queue, and nothing else is known of them.
            found += [(queue, one) for one in queue.contention.channels if one.channel in listed]
        return sorted(found, key=lambda one: suffering(*one))

    async def _queue_now(self, queue: QueueFigures, channels: Sequence[str]) -> QueueFigures:
        """Figures of a queue that are of this moment for some channels.

        All open pages of the queue have one reading: it has the channels that were asked for lately. The first request
        for others reads these alone, at once: it does not wait for a reading that lacks them.
        """
        if not channels:
            return queue
        together, alone = ("reasons", queue.name), ("reasons", queue.name, tuple(channels))
        if not self.reading.is_at_hand(together):
            self._together[queue.name] = frozenset(self._wanted_with(queue.name, channels))
        elif not self._together[queue.name].issuperset(channels):
            self._wanted_with(queue.name, channels)
            return await self.reading.shared(alone, self._reader(queue, channels), self._moment, always=True)
        names = list(self._together[queue.name])
        return await self.reading.shared(together, self._reader(queue, names), self._moment, always=True)

    def _reader(self, queue: QueueFigures, channels: Sequence[str]) -> Callable[[], Awaitable[QueueFigures]]:
        read = partial(figures_now, queue=self.reading.queue(queue.name), figures=queue, channels=channels)
        return lambda: self.reading.read(read)

    def _wanted_with(self, queue: str, channels: Sequence[str]) -> list[str]:
        """The channels of a queue that pages asked for lately, with these."""
        wanted, now = self._wanted.get(queue, {}), monotonic()
        lately = now - _LATELY * self.reading.keep.total_seconds()
        found = {channel: at for channel, at in wanted.items() if at >= lately}
        for channel in channels:
            found.pop(channel, None)
            found[channel] = now
        self._wanted[queue] = dict(list(found.items())[-_MOST_WANTED:])
        return list(self._wanted[queue])

    def row(self, queue: QueueFigures, channel: ChannelDemand, figures: Figures) -> Row:
        shared = self.reading.figures
        waits = shared.past_waits(queue.name, channel.channel)
        points = shared.past(queue.name)[-len(waits) :] if waits else ()
        served = shared.served(queue.name, channel.channel)
        return Row(queue, channel, waits, figures.at - points[0].at if points else None, served)

    async def channel_stats(self, queue: str, channel: str) -> ChannelStats | None:
        """A tenant, a moment old at most."""
        of = self.reading.queue(queue)
        found = await self.reading.shared(
            ("channel", queue, channel),
            lambda: self.reading.ask(of.channels, channel),
            self._moment,
        )
        return found[0] if found else None

    async def access(self, request: Request) -> Access:
        known: Access | None = request.scope.get(_ACCESS)
        return await access_of(request, self.authorize) if known is None else known

    def page(
        self, make: Callable[[Request], Awaitable[Response]], *, shared: bool = False
    ) -> Callable[[Request], Awaitable[Response]]:
        """The endpoint of a page.

        Args:
            make: Makes the page for the rights of a viewer, with their name and token left out.
            shared: Viewers with the same rights who ask for it within a moment get the same one, with their own name
                and token: what all open pages request at once is made once.
        """

        async def endpoint(request: Request) -> Response:
            access = await self.access(request)
            nameless = replace(access, name=_NAME)
            asked = Request({**request.scope, _ACCESS: nameless})
            if not shared:
                return self.personal(request, access, await make(asked))
            # Not request.url: it cannot be made of every Host that somebody sends.
            key = ("page", request.scope["path"], request.scope["query_string"], nameless)
            # Its reasons were kept before: both together are new within *keep*.
            seconds = min(self._moment / 2, _MOST_SHARED_SECONDS)
            answer = await self.reading.shared(key, lambda: make(asked), seconds, always=True)
            return self.personal(request, access, answer)

        return endpoint

    def personal(self, request: Request, access: Access, answer: Response) -> Response:
        """A page with the name and the token of its viewer."""
        token = csrf_token(request)
        name = escape(name_text(access.name)).encode()
        body = bytes(answer.body).replace(_TOKEN.encode(), token.encode()).replace(_NAME.encode(), name)
        page = HTMLResponse(body, answer.status_code)
        secure = request.scope["scheme"] == "https"
        page.set_cookie(CSRF_COOKIE, token, httponly=True, samesite="strict", secure=secure)
        return page

    def answer(
        self, request: Request, template: str, access: Access, figures: Figures, *, status: int = 200, **values: Any
    ) -> Response:
        """A page with what every page has; :meth:`personal` gives it the name and the token of its viewer."""
        done = request.query_params.get("done", "")
        with self.reading.spending():
            page = rendered(
                template,
                page=template.removesuffix(".html"),
                access=access,
                figures=figures,
                at=figures.at,
                csrf=_TOKEN,
                done=DONE[done].format(count=_count_of(request)) if done in DONE else None,
                ago=lambda instant: age(instant, figures.at),
                **{"reasons_at": None} | values,
            )
        return HTMLResponse(page, status)

    async def begin(self, request: Request) -> tuple[Access, Figures]:
        """The user that sends the request, and the figures.

        Raises:
            Unread: There are none yet.
        """
        access = await self.access(request)
        figures = await self.reading.figures_at_hand()
        if figures is None:
            raise Unread
        return access, figures

    @property
    def _moment(self) -> float:
        """How long a single tenant is kept, in seconds: a reason is on its page within *keep*, whatever comes first."""
        return self.reading.keep.total_seconds() / 4

    def target_of(self, queue: str) -> Target:
        return Target(self.reading.schema, queue)


def suffering(queue: QueueFigures, channel: ChannelDemand) -> tuple[bool, float, int, str]:
    """The key by which tenants are sorted."""
    waited = queue.waited(channel)
    return waited is None, -(waited.total_seconds() if waited else 0.0), -channel.leased, channel.channel


def suffering_most(queues: Collection[QueueFigures], most: int) -> Collection[QueueFigures]:
    """The queues of so many tenants that wait longest, or all queues if they are few."""
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


def queue_page(request: Request, queues: Sequence[QueueFigures]) -> QueuePage:
    """The part of the queues that the address asks for, by its number and by what their names contain."""
    find = request.query_params.get("find", "").strip()
    found = [queue for queue in queues if find.casefold() in queue.name.casefold()] if find else queues
    text = request.query_params.get("page", "1")
    number = 0
    with suppress(ValueError):
        number = parse_whole(text)
    if not number:
        raise HTTPException(404, f"There is no page {text[:40]!r}.")
    # Queues may have gone since the link was made.
    number = min(number, QueuePage((), len(found)).parts)
    return QueuePage(found[(number - 1) * QUEUES : number * QUEUES], len(found), number, find)


def chosen_queues(figures: Figures, name: str | None) -> Sequence[QueueFigures]:
    """The queue of that name; None: all."""
    return [named_queue(figures, name)] if name is not None else list(figures.queues.values())


def named_queue(figures: Figures, name: str | None) -> QueueFigures:
    """The queue of that name, or the answer that there is none."""
    # Browsers send the line feed of a hidden field as two characters.
    found = figures.queues.get(name or "") or figures.queues.get((name or "").replace("\r\n", "\n"))
    if found is None:
        raise HTTPException(404, f"There is no queue {name!r}.")
    return found


def _count_of(request: Request) -> int:
    """What an action was done on, as the address of the page after it says; 0 if it does not."""
    with suppress(ValueError):
        return parse_whole(request.query_params.get("count", ""))
    return 0


def message_id_of(text: str) -> int:
    """An id of a message from its text, or the answer that it is none."""
    with suppress(ValueError):
        if found := parse_whole(text):
            return found
    raise HTTPException(404, f"{text[:40]!r} is no id of a message.")
