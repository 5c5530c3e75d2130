"""The pages of queues, tenants, messages, dead letters, schedules, workers and health."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

from starlette.exceptions import HTTPException

from sqlalchemy_fairqueue.dashboard.base import (
    chosen_queues,
    message_id_of,
    named_queue,
    queue_page,
    suffering_most,
)
from sqlalchemy_fairqueue.dashboard.group_pages import GroupPages
from sqlalchemy_fairqueue.dashboard.plan_pages import PlanPages, values_of
from sqlalchemy_fairqueue.dashboard.policies import EDITOR
from sqlalchemy_fairqueue.dashboard.rendering import payload_text
from sqlalchemy_fairqueue.dashboard.timelines import end_of, ended_timeline, timeline, trace_link
from sqlalchemy_fairqueue.dashboard.words import charts_of, headline, queue_state
from sqlalchemy_fairqueue.database.messages import (
    read_audits,
    read_dead_letter_groups,
    read_message_attempts,
    read_messages,
    read_results,
)
from sqlalchemy_fairqueue.database.stats import consumers_by_queue
from sqlalchemy_fairqueue.errors import NotGranted
from sqlalchemy_fairqueue.figures.queues import SHOWN
from sqlalchemy_fairqueue.formats import end_words
from sqlalchemy_fairqueue.values.checks import check_name
from sqlalchemy_fairqueue.values.reports import MessageState, Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from starlette.requests import Request
    from starlette.responses import Response

    from sqlalchemy_fairqueue.dashboard.access import Access
    from sqlalchemy_fairqueue.figures import Figures, QueueFigures
    from sqlalchemy_fairqueue.values.reports import (
        AttemptPage,
        AuditEntry,
        ChannelDemand,
        DeadLetterGroup,
        MessagePage,
        Trend,
    )
    from sqlalchemy_fairqueue.values.schedules import ScheduleInfo

GROUPED = 10_000
"""Dead letters that are grouped by their errors, the newest."""
BULK = 1_000
"""Dead letters that one action is done on."""

_SUFFERING = 5
_PAGE = 100
_LETTERS = 50
_MESSAGES = 20
_ATTEMPTS = 100
_SHOWN_BYTES = 65_536
_SCHEDULES = 200
_AUDITS = 20
_HELD = 20
_OVER = {"hour": timedelta(hours=1), "day": timedelta(days=1)}
_TREND_SECONDS = 15.0
_ENDS = ("completed", "cancelled")
_STATES = (*get_args(MessageState), *_ENDS)


class Pages(GroupPages, PlanPages):
    """The endpoints that show something. Arguments as of PageBase."""

    async def overview(self, request: Request) -> Response:
        """All queues, and the tenants that wait longest."""
        access, figures = await self.begin(request)
        found = await self.tenants_now(suffering_most(figures.queues.values(), _SUFFERING))
        listed = queue_page(request, list(figures.queues.values()))
        waiting = [each for each in found if each[1].oldest_ready_at is not None]
        health = self.reading.latest_health()
        snapshots = [one for one in health.findings if one.check == "snapshots" and one.level] if health else []
        return self.answer(
            request,
            "overview.html",
            access,
            figures,
            headline=headline(figures, self.reading.figures.past, health),
            queues=[
                {"figures": queue, "state": queue_state(queue, past), "past": past}
                for queue in listed.queues
                for past in [self.reading.figures.past(queue.name)]
            ],
            listed=listed,
            many=len(figures.queues) > 1,
            rows=[self.row(queue, tenant, figures) for queue, tenant in waiting[:_SUFFERING]],
            snapshots=snapshots,
            reasons_at=_newest(found, figures),
        )

    async def tenants(self, request: Request) -> Response:
        """The tenants that wait, the longest wait first, and those that hold messages."""
        access, figures = await self.begin(request)
        name = request.query_params.get("queue")
        chosen = chosen_queues(figures, name)
        found = await self.tenants_now(chosen)
        reasons_at = _newest(found, figures)
        reason = request.query_params.get("reason")
        counts = Counter(tenant.reason for _, tenant in found)
        shown = [(one, counts[one]) for one in Reason if counts[one] or one == reason]
        if reason:
            found = [each for each in found if each[1].reason == reason]
        only = chosen[0] if name is not None or len(chosen) == 1 else None
        return self.answer(
            request, "tenants.html", access, figures,
            **(await self._trend(request, only) if only else {"over": None}),
            chosen=name, reason=reason, reasons=shown, found=len(found),
            rows=[self.row(queue, tenant, figures) for queue, tenant in found[:_PAGE]],
            waiting=sum(queue.contention.waiting for queue in chosen),
            rivals=sum(queue.contention.rivals for queue in chosen), reasons_at=reasons_at,
        )  # fmt: skip

    async def tenant(self, request: Request) -> Response:
        """A tenant: why it waits, its policy, its messages."""
        access, figures = await self.begin(request)
        queue = named_queue(figures, request.query_params.get("queue"))
        channel = request.query_params.get("channel", "")
        check_name("channel", channel)
        # First: all pages of the queue read the reasons of the tenants that one of them asked for.
        stats = await self.channel_stats(queue.name, channel)
        if stats is None:
            raise HTTPException(404, f"Queue {queue.name!r} has no tenant {channel!r}.")
        # At the same time, so that the slowest of them decides.
        (messages, refused), audits, row, plans, trend = await asyncio.gather(
            self._messages(queue.name, channel),
            self.audits(queue.name, channel=channel),
            self.tenant_row(queue, figures, channel),
            self.plans_of(queue.name),
            self._trend(request, queue, channel),
        )
        return self.answer(
            request, "tenant.html", access, figures,
            queue=queue, stats=stats, row=row, messages=messages, refused=refused, plans=plans, fields=EDITOR,
            values=values_of(stats), audits=audits, **trend,
        )  # fmt: skip

    async def _trend(self, request: Request, queue: QueueFigures, channel: str | None = None) -> dict[str, Any]:
        """What a page shows of a queue or a tenant over time. Samples are new once a minute."""
        over = "day" if request.query_params.get("over") == "day" else "hour"
        read = partial(self.reading.queue(queue.name).admin.trend, channel=channel, over=_OVER[over])
        key = ("trend", queue.name, channel, over)
        trend: Trend = await self.reading.shared(key, lambda: self.reading.ask(read), _TREND_SECONDS)
        return {"over": over, "trend": trend, "charts": charts_of(trend), "recorded": queue.records_history}

    async def messages(self, request: Request) -> Response:
        """The messages of a queue or a tenant, by state and kind, page by page."""
        access, figures = await self.begin(request)
        query = request.query_params
        name = query.get("queue") if "queue" in query or len(figures.queues) != 1 else next(iter(figures.queues))
        queue = None if name is None else named_queue(figures, name)
        channel, kind, after = (query.get(one) or None for one in ("channel", "kind", "after"))
        state = query.get("state")
        state = state if state in _STATES else None
        ended = state in _ENDS
        found: MessagePage | AttemptPage | None = None
        refused = None
        if queue is not None:
            of = self.reading.queue(queue.name)
            which: dict[str, Any] = {"channel": channel, "kind": kind, "limit": _PAGE, "after": after}
            try:
                if ended:
                    found = await self.reading.ask(of.admin.recent_attempts, outcome=state, **which)
                else:
                    found = await self.reading.ask(of.messages, state=state, **which)
            except NotGranted as error:
                refused = str(error)
        return self.answer(
            request, "messages.html", access, figures,
            chosen=name, queue=queue, channel=channel, kind=kind, state=state, states=list(_STATES), refused=refused,
            messages=found or (), next=found.next if found is not None else None, ended=ended,
            undelivered=not ended and state != "leased",
        )  # fmt: skip

    async def message(self, request: Request) -> Response:
        """A message: what happened to it, and its payload."""
        access, figures = await self.begin(request)
        queue = named_queue(figures, request.query_params.get("queue"))
        message_id = message_id_of(request.query_params.get("id", ""))
        target = self.target_of(queue.name)
        read = partial(read_messages, target=target, ids=[message_id])
        message = next(iter(await self.reading.read(read)), None)
        letter = None
        if message is None:
            of = self.reading.queue(queue.name)
            letter = next(iter(await self.reading.ask(of.dead_letters.list, message_id)), None)
        one = message or letter
        if one is None:
            return await self._ended(request, access, figures, queue, message_id)
        read_attempts = partial(read_message_attempts, target=target, message_id=message_id, limit=_ATTEMPTS)
        attempts, audits, row = await asyncio.gather(
            self.reading.read(read_attempts),
            self.audits(queue.name, message_id=message_id),
            self.tenant_row(queue, figures, message.channel) if message else asyncio.sleep(0),
        )
        payload = None
        if access.payloads:
            content, size = (message.content, message.content_size) if message else (b"", None)
            if letter:
                content, size = letter.content[:_SHOWN_BYTES], len(letter.content)
            payload = payload_text(content, size)
        return self.answer(
            request, "message.html", access, figures,
            queue=queue, message=message, letter=letter, message_id=message_id, payload=payload, row=row,
            steps=timeline(message, letter, attempts, figures.at), recorded=queue.records_history or bool(attempts),
            trace=trace_link(self.trace_url, one.headers), audits=audits,
        )  # fmt: skip

    async def _ended(
        self, request: Request, access: Access, figures: Figures, queue: QueueFigures, message_id: int
    ) -> Response:
        """A message that has ended: its result, and its attempts in the history, as far as they are kept."""
        target = self.target_of(queue.name)
        read = partial(read_results, target=target, message_ids=[message_id])
        [kept] = await self.reading.read(read)
        read_attempts = partial(read_message_attempts, target=target, message_id=message_id, limit=_ATTEMPTS)
        attempts = await self.reading.read(read_attempts)
        end = end_of(kept, attempts)
        if end is None:
            raise HTTPException(404, f"Queue {queue.name!r} has no message {message_id}: it is done or was purged.")
        result = None
        if access.payloads and kept.state == "completed":
            content = b"null" if kept.content is None else kept.content
            result = payload_text(content[:_SHOWN_BYTES], len(content))
        return self.answer(
            request, "ended.html", access, figures,
            queue=queue, message_id=message_id, kept=kept, last=attempts[-1] if attempts else None, state=end,
            result=result, words=end_words(end[0], kept.finished_at, attempts),
            audits=await self.audits(queue.name, message_id=message_id),
            steps=ended_timeline(attempts, kept), recorded=queue.records_history or bool(attempts),
        )  # fmt: skip

    async def dead(self, request: Request) -> Response:
        """The dead letters of queues by their errors."""
        access, figures = await self.begin(request)
        name = request.query_params.get("queue")
        # Queues with dead letters first: thousands have none.
        chosen = sorted(chosen_queues(figures, name), key=lambda queue: not queue.stats.dead)
        listed = queue_page(request, chosen)
        groups: list[tuple[QueueFigures, DeadLetterGroup]] = []
        refused = None
        try:
            for queue in listed.queues:
                if queue.stats.dead or name is not None:
                    groups += [(queue, group) for group in await self.letter_groups(queue.name)]
        except NotGranted as error:
            refused = str(error)
        return self.answer(
            request, "dead.html", access, figures,
            chosen=name, groups=groups, refused=refused, dead=sum(queue.stats.dead for queue in chosen),
            grouped=GROUPED, bulk=BULK, shown=_LETTERS, listed=listed,
        )  # fmt: skip

    async def schedules(self, request: Request) -> Response:
        access, figures = await self.begin(request)
        name = request.query_params.get("queue")
        listed = queue_page(request, chosen_queues(figures, name))
        found: list[ScheduleInfo] = []
        refused = None
        try:
            for queue in listed.queues:
                found += await self._schedules(queue.name)
        except NotGranted as error:
            refused = str(error)
        return self.answer(
            request, "schedules.html", access, figures,
            chosen=name, schedules=found, refused=refused, most=_SCHEDULES, listed=listed,
        )  # fmt: skip

    async def _schedules(self, queue: str) -> Sequence[ScheduleInfo]:
        of = self.reading.queue(queue)
        return await self.reading.shared(
            ("schedules", queue), lambda: self.reading.ask(of.schedules.list, limit=_SCHEDULES)
        )

    async def workers(self, request: Request) -> Response:
        """The consumers, and what each holds."""
        access, figures = await self.begin(request)
        name = request.query_params.get("queue")
        served = {queue.name: queue for queue in chosen_queues(figures, name) if queue.consumers}
        schema = next((self.target_of(one).schema for one in served), None)
        read = partial(consumers_by_queue, schema=schema, queues=list(served), limit=SHOWN, handlers=_HELD)
        found = await self.reading.shared(("workers", *served), lambda: self.reading.read(read)) if served else {}
        consumers = [(served[queue], consumer) for queue, several in found.items() for consumer in several]
        return self.answer(request, "workers.html", access, figures, chosen=name, consumers=consumers)

    async def audit(self, request: Request) -> Response:
        """What operators did to queues, the last first."""
        access, figures = await self.begin(request)
        name = request.query_params.get("queue")
        listed = queue_page(request, chosen_queues(figures, name))
        found = [(queue, one) for queue in listed.queues for one in await self.audits(queue.name, limit=_PAGE)]
        # What was done to the installation stands with each queue.
        found = list({one.audit_id: (queue, one) for queue, one in found}.values())
        found.sort(key=lambda row: row[1].at, reverse=True)
        return self.answer(request, "audit.html", access, figures, chosen=name, audits=found[:_PAGE], listed=listed)

    async def audits(
        self, queue: str, *, channel: str | None = None, message_id: int | None = None, limit: int = _AUDITS
    ) -> Sequence[AuditEntry]:
        """What operators did to a queue, a channel or a message."""
        read = partial(read_audits, target=self.target_of(queue), channel=channel, message_id=message_id, limit=limit)
        key = ("audits", queue, channel, message_id, limit)
        return await self.reading.shared(key, lambda: self.reading.read(read))

    async def health(self, request: Request) -> Response:
        access, figures = await self.begin(request)
        return self.answer(request, "health.html", access, figures, health=await self.reading.health())

    async def letter_groups(self, queue: str) -> Sequence[DeadLetterGroup]:
        read = partial(read_dead_letter_groups, target=self.target_of(queue), limit=GROUPED, ids=BULK)
        return await self.reading.shared(("letters", queue), lambda: self.reading.read(read))

    async def _messages(self, queue: str, channel: str) -> tuple[Sequence[Any], str | None]:
        read = partial(read_messages, target=self.target_of(queue), channel=channel, limit=_MESSAGES)
        try:
            key = ("messages", queue, channel)
            return await self.reading.shared(key, lambda: self.reading.read(partial(read, content_bytes=0))), None
        except NotGranted as error:
            return (), str(error)


def _newest(found: Iterable[tuple[QueueFigures, ChannelDemand]], figures: Figures) -> datetime | None:
    """When the reasons of tenants were read, where that was after the figures."""
    newest = max((queue.at for queue, _ in found), default=figures.at)
    return newest if newest > figures.at else None
