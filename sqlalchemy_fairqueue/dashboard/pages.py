"""The pages: queues, tenants, messages, plans, limits, groups, dead letters, schedules, workers, audits, health."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from starlette.exceptions import HTTPException

from sqlalchemy_fairqueue.dashboard.base import PageBase, message_id_of, suffering_most
from sqlalchemy_fairqueue.dashboard.policies import EDITOR, LIMITS
from sqlalchemy_fairqueue.dashboard.rendering import payload_text
from sqlalchemy_fairqueue.dashboard.timelines import end_of, ended_timeline, timeline, trace_link
from sqlalchemy_fairqueue.dashboard.words import charts_of, headline, queue_state
from sqlalchemy_fairqueue.database.configuration import read_plan_channels
from sqlalchemy_fairqueue.database.messages import (
    read_channel_messages,
    read_dead_letter_groups,
    read_group_members,
    read_message_attempts,
    read_messages,
    read_results,
)
from sqlalchemy_fairqueue.database.stats import consumers_by_queue
from sqlalchemy_fairqueue.errors import InvalidArgument, NotGranted, UnknownGroup
from sqlalchemy_fairqueue.figures.queues import SHOWN, given_back
from sqlalchemy_fairqueue.formats import end_words
from sqlalchemy_fairqueue.values.checks import check_name
from sqlalchemy_fairqueue.values.messages import checked_group_id
from sqlalchemy_fairqueue.values.policies import POLICY, PolicyFields
from sqlalchemy_fairqueue.values.reports import MessageState, Reason

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from datetime import datetime

    from starlette.responses import Response

    from sqlalchemy_fairqueue.dashboard.base import Row, View
    from sqlalchemy_fairqueue.figures.queues import Figures, QueueFigures
    from sqlalchemy_fairqueue.values.messages import GroupStatus
    from sqlalchemy_fairqueue.values.reports import AuditEntry, ChannelDemand, DeadLetterGroup, PlanInfo
    from sqlalchemy_fairqueue.values.schedules import ScheduleInfo

R = TypeVar("R")

GROUPED = 10_000
"""How many of the newest dead letters are grouped by their errors."""
BULK = 1_000
"""The most dead letters that one action redrives or purges."""

_SUFFERING = 5
_PAGE = 100
_SHOWN = 50
_MESSAGES = 20
_ATTEMPTS = 100
_SHOWN_BYTES = 65_536
_SCHEDULES = 200
_AUDITS = 20
_HELD = 20
_MEMBERS = 1000
"""The most members that the page of a group reads, among those that have not ended."""
_OVER = {"hour": timedelta(hours=1), "day": timedelta(days=1)}
_TREND_SECONDS = 15.0
_ENDS = ("completed", "cancelled")
_STATES = (*get_args(MessageState), *_ENDS)
_GROUP_STATES = {"open": True, "finished": False}


class Pages(PageBase):
    """The endpoints that show pages and change nothing."""

    async def overview(self, view: View) -> Response:
        figures = view.figures
        found = await self.tenants_now(suffering_most(figures.queues.values(), _SUFFERING))
        listed = view.listed()
        health = self.reading.latest_health()
        pasts = [(queue, self.reading.figures.past(queue.name)) for queue in listed.queues]
        return view.answer(
            "overview",
            headline=headline(figures, self.reading.figures.past, health),
            queues=[{"figures": queue, "state": queue_state(queue, past), "past": past} for queue, past in pasts],
            listed=listed, rows=self._rows([one for one in found if one[1].oldest_ready_at], _SUFFERING),
            snapshots=[one for one in health.findings if one.check == "snapshots" and one.level] if health else [],
            reasons_at=_newest(found, figures),
        )  # fmt: skip

    async def tenants(self, view: View) -> Response:
        queues, reason = view.queues, view.query.get("reason")
        found = await self.tenants_now(queues)
        counts = Counter(tenant.reason for _, tenant in found)
        shown = [each for each in found if not reason or each[1].reason == reason]
        trend = await self._trend(view, queues[0]) if len(queues) == 1 else {"over": None}
        return view.answer(
            "tenants", **trend, reason=reason, reasons_at=_newest(found, view.figures), found=len(shown),
            reasons=[(one, counts[one]) for one in Reason if counts[one] or one == reason],
            rows=self._rows(shown, _PAGE),
            waiting=sum(queue.contention.waiting for queue in queues),
            rivals=sum(queue.contention.rivals for queue in queues),
        )  # fmt: skip

    async def tenant(self, view: View) -> Response:
        queue, channel = view.queue, view.query.get("channel", "")
        check_name("channel", channel)
        # Read first: a request for a tenant that does not exist must not add it to what all pages of the queue read.
        stats = await self.channel_stats(queue.name, channel)
        if stats is None:
            raise HTTPException(404, f"Queue {queue.name!r} has no tenant {channel!r}.")
        read = partial(read_channel_messages, target=self.target_of(queue.name), channel=channel, limit=_MESSAGES)
        # Read at the same time, so that only the slowest reading counts.
        (messages, refused), audits, row, plans, trend = await asyncio.gather(
            _granted(self.reading.kept(("messages", queue.name, channel), read, content_bytes=0)),
            self._audits(queue.name, channel=channel),
            self.tenant_row(queue, view.figures, channel),
            self._plans(queue.name),
            self._trend(view, queue, channel),
        )
        return view.answer(
            "tenant", queue=queue, stats=stats, row=row, messages=messages, refused=refused, plans=plans, fields=EDITOR,
            values=_values(stats), audits=audits, **trend,
        )  # fmt: skip

    async def _trend(self, view: View, queue: QueueFigures, channel: str | None = None) -> dict[str, Any]:
        over = "day" if view.query.get("over") == "day" else "hour"
        read = partial(self.reading.queue(queue.name).admin.trend, channel=channel, over=_OVER[over])
        trend = await self.reading.kept(("trend", queue.name, channel, over), read, seconds=_TREND_SECONDS)
        return {"over": over, "trend": trend, "charts": charts_of(trend), "recorded": queue.records_history}

    async def messages(self, view: View) -> Response:
        queues = view.queues
        queue = queues[0] if view.chosen is not None or len(queues) == 1 else None
        which: dict[str, Any] = {name: view.query.get(name) or None for name in ("channel", "kind", "after")}
        state = view.query.get("state")
        state = state if state in _STATES else None
        ended = state in _ENDS
        found, refused = None, None
        if queue is not None:
            of = self.reading.queue(queue.name)
            read: Any = partial(of.admin.recent_attempts, outcome=state) if ended else partial(of.messages, state=state)
            found, refused = await _granted(self.reading.read(read, limit=_PAGE, **which))
        return view.answer(
            "messages", chosen=None if queue is None else queue.name, queue=queue, **which, state=state,
            states=_STATES, refused=refused, messages=found or (), next=found.next if found else None, ended=ended,
            undelivered=not ended and state != "leased",
        )  # fmt: skip

    async def message(self, view: View) -> Response:
        queue, message_id = view.queue, message_id_of(view.query.get("id", ""))
        target, read = self.target_of(queue.name), self.reading.read
        message = next(iter(await read(read_messages, target, [message_id])), None)
        letters = self.reading.queue(queue.name).dead_letters
        letter = None if message else next(iter(await read(letters.list, message_id)), None)
        attempts, audits, row = await asyncio.gather(
            read(read_message_attempts, target, message_id, limit=_ATTEMPTS),
            self._audits(queue.name, message_id=message_id),
            self.tenant_row(queue, view.figures, message.channel) if message else asyncio.sleep(0),
        )
        common = {
            "queue": queue, "message_id": message_id, "audits": audits,
            "recorded": queue.records_history or bool(attempts),
        }  # fmt: skip
        one = message or letter
        if one is not None:
            content, size = (message.content, message.content_size) if message else (b"", None)
            if letter:
                content, size = letter.content[:_SHOWN_BYTES], len(letter.content)
            return view.answer(
                "message", **common, message=message, letter=letter, row=row,
                payload=payload_text(content, size) if view.access.payloads else None,
                steps=timeline(message, letter, attempts, view.figures.at),
                trace=trace_link(self.trace_url, one.headers),
                given_back=given_back(message, view.figures.at) if message else None,
            )  # fmt: skip
        # The message has ended: only its result and its attempts in the history are left, as far as they are kept.
        [kept] = await read(read_results, target, [message_id])
        end = end_of(kept, attempts)
        if end is None:
            raise HTTPException(404, f"Queue {queue.name!r} has no message {message_id}: it is done or was purged.")
        content = b"null" if kept.content is None else kept.content
        shown = view.access.payloads and kept.state == "completed"
        return view.answer(
            "ended", **common, kept=kept, last=attempts[-1] if attempts else None, state=end,
            result=payload_text(content[:_SHOWN_BYTES], len(content)) if shown else None,
            words=end_words(end[0], kept.finished_at, attempts), steps=ended_timeline(attempts, kept),
        )  # fmt: skip

    async def plans(self, view: View) -> Response:
        listed = view.listed()
        plans = await _of_each(listed.queues, lambda queue: self._plans(queue.name))
        shown = [(queue, plan, _values(plan.policy)) for queue, plan in plans]
        return view.answer("plans", plans=shown, fields=EDITOR, listed=listed)

    async def plan(self, view: View) -> Response:
        queue, name, after = view.queue, view.query.get("plan", ""), view.query.get("after")
        check_name("plan", name)
        plan = next((one for one in await self._plans(queue.name) if one.name == name), None)
        if plan is None and not view.access.operates:
            raise HTTPException(404, f"Queue {queue.name!r} has no plan {name!r}.")
        last = message_id_of(after) if after else None
        read = partial(read_plan_channels, target=self.target_of(queue.name), name=name, after=last, limit=_PAGE + 1)
        found = await self.reading.read(read) if plan else []
        return view.answer(
            "plan", queue=queue, name=name, plan=plan, fields=EDITOR, followers=found[:_PAGE], after=after,
            values=_values(plan.policy if plan else PolicyFields()), page_size=_PAGE,
            more=found[_PAGE - 1].channel_id if len(found) > _PAGE else None,
        )  # fmt: skip

    async def _plans(self, queue: str) -> Sequence[PlanInfo]:
        return await self.reading.kept(("plans", queue), self.reading.queue(queue).plans.list)

    async def limits(self, view: View) -> Response:
        any_queue = next(iter(view.figures.queues), None)
        read = None if any_queue is None else self.reading.queue(any_queue).limits.list
        shared = await self.reading.kept(("limits",), read) if read else []
        return view.answer("limits", listed=view.listed(), shared=shared, any_queue=any_queue, fields=LIMITS)

    async def groups(self, view: View) -> Response:
        listed, state = view.listed(), view.query.get("state")
        state = state if state in _GROUP_STATES else None

        def read(queue: QueueFigures) -> Awaitable[Sequence[GroupStatus]]:
            of = partial(self.reading.queue(queue.name).groups.list, is_open=_GROUP_STATES.get(state or ""))
            return self.reading.kept(("groups", queue.name, state), of, limit=_PAGE)

        found = await _of_each(listed.queues, read)
        found.sort(key=lambda row: row[1].created_at, reverse=True)
        return view.answer(
            "groups", state=state, states=list(_GROUP_STATES), groups=found[:_PAGE], most=_PAGE, listed=listed
        )

    async def group(self, view: View) -> Response:
        queue, kept = view.queue, self.reading.kept
        try:
            group_id = checked_group_id(view.query.get("group", ""))
            status = await kept(("group", queue.name, group_id), self.reading.queue(queue.name).groups.status, group_id)
        except (InvalidArgument, UnknownGroup) as error:
            raise HTTPException(404, str(error)) from None
        read = partial(read_group_members, target=self.target_of(queue.name), group_id=group_id, limit=_MEMBERS)
        members = await kept(("members", queue.name, group_id), read)
        return view.answer(
            "group", queue=queue, group=status, members=members[:_SHOWN], looked=len(members), most=_MEMBERS,
            counts=Counter(one.state for one in members),
        )  # fmt: skip

    async def dead(self, view: View) -> Response:
        # Queues with dead letters come first, since thousands may have none.
        queues = sorted(view.queues, key=lambda queue: not queue.stats.dead)
        listed = view.listed(queues)
        asked = [queue for queue in listed.queues if queue.stats.dead or view.chosen is not None]
        found, refused = await _granted(_of_each(asked, lambda queue: self.letter_groups(queue.name)))
        return view.answer(
            "dead", groups=found or (), refused=refused, dead=sum(queue.stats.dead for queue in queues),
            grouped=GROUPED, bulk=BULK, listed=listed,
        )  # fmt: skip

    async def letter_groups(self, queue: str) -> Sequence[DeadLetterGroup]:
        read = partial(read_dead_letter_groups, target=self.target_of(queue), limit=GROUPED, ids=BULK)
        return await self.reading.kept(("letters", queue), read)

    async def schedules(self, view: View) -> Response:
        listed = view.listed()

        def read(queue: QueueFigures) -> Awaitable[Sequence[ScheduleInfo]]:
            of = self.reading.queue(queue.name).schedules
            return self.reading.kept(("schedules", queue.name), of.list, limit=_SCHEDULES)

        found, refused = await _granted(_of_each(listed.queues, read))
        schedules = [one for _, one in found or ()]
        return view.answer("schedules", schedules=schedules, refused=refused, most=_SCHEDULES, listed=listed)

    async def workers(self, view: View) -> Response:
        served = {queue.name: queue for queue in view.queues if queue.consumers}
        schema = next((self.target_of(one).schema for one in served), None)
        read = partial(consumers_by_queue, schema=schema, queues=list(served), limit=SHOWN, handlers=_HELD)
        found = await self.reading.kept(("workers", *served), read) if served else {}
        consumers = [(served[queue], consumer) for queue, several in found.items() for consumer in several]
        return view.answer("workers", consumers=consumers)

    async def audit(self, view: View) -> Response:
        listed = view.listed()
        rows = await _of_each(listed.queues, lambda queue: self._audits(queue.name, limit=_PAGE))
        # The list of each queue includes the actions on the installation, which are shown once.
        found = list({one.audit_id: (queue, one) for queue, one in rows}.values())
        found.sort(key=lambda row: row[1].at, reverse=True)
        return view.answer("audit", audits=found[:_PAGE], listed=listed)

    async def _audits(self, queue: str, *, limit: int = _AUDITS, **about: Any) -> Sequence[AuditEntry]:
        read = partial(self.reading.queue(queue).admin.audits, limit=limit, **about)
        return await self.reading.kept(("audits", queue, limit, *about.items()), read)

    async def health(self, view: View) -> Response:
        return view.answer("health", health=await self.reading.health())

    def _rows(self, found: Sequence[tuple[QueueFigures, ChannelDemand]], most: int) -> list[Row]:
        return [self.row(queue, tenant) for queue, tenant in found[:most]]


async def _granted(reading: Awaitable[R]) -> tuple[R | None, str | None]:
    try:
        return await reading, None
    except NotGranted as error:
        return None, str(error)


async def _of_each(
    queues: Iterable[QueueFigures], read: Callable[[QueueFigures], Awaitable[Iterable[R]]]
) -> list[tuple[QueueFigures, R]]:
    return [(queue, one) for queue in queues for one in await read(queue)]


def _values(policy: PolicyFields) -> dict[str, Any]:
    return {name: getattr(policy, name) for name in POLICY}


def _newest(found: Iterable[tuple[QueueFigures, ChannelDemand]], figures: Figures) -> datetime | None:
    """Return when the reasons of the tenants' waits were last read; None if *figures* are at least as new."""
    newest = max((queue.at for queue, _ in found), default=figures.at)
    return newest if newest > figures.at else None
