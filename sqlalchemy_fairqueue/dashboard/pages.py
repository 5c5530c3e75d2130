"""The pages."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse

from sqlalchemy_fairqueue import database
from sqlalchemy_fairqueue.dashboard.access import CSRF_COOKIE, access_of, csrf_token
from sqlalchemy_fairqueue.dashboard.policies import EDITOR
from sqlalchemy_fairqueue.dashboard.reading import seconds_ago
from sqlalchemy_fairqueue.dashboard.rendering import payload_text, rendered
from sqlalchemy_fairqueue.dashboard.timelines import timeline, trace_link
from sqlalchemy_fairqueue.dashboard.words import headline, queue_state, reason_detail
from sqlalchemy_fairqueue.database import Target
from sqlalchemy_fairqueue.errors import NotGranted
from sqlalchemy_fairqueue.figures import Reason
from sqlalchemy_fairqueue.values import PolicyFields, check_name, policy_fields, tenant_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from sqlalchemy_fairqueue.dashboard.access import Access, Authorize
    from sqlalchemy_fairqueue.dashboard.reading import Reading
    from sqlalchemy_fairqueue.figures import Figures, QueueFigures, Tenant
    from sqlalchemy_fairqueue.values import ChannelStats, DeadLetterGroup, PlanInfo, ScheduleInfo

GROUPED = 10_000
"""Dead letters that are grouped by their errors, the newest."""
BULK = 1_000
"""Dead letters that one action is done on."""

_SUFFERING = 5
_PAGE = 100
_LETTERS = 50
_MESSAGES = 20
_ATTEMPTS = 100
_SCHEDULES = 200

DONE = {
    "pause": "Paused.",
    "resume": "Resumed.",
    "policy": "The policy was changed.",
    "plan": "The plan was changed.",
    "remove_plan": "The plan was removed.",
    "purge": "Purged {count}.",
    "cancel": "Cancelled.",
    "cancel_asked": "A consumer holds the message: it is told, and the message is gone unless it completes first.",
    "cancel_missing": "There is nothing to cancel: the message is done, dead or unknown.",
    "move": "Moved.",
    "move_unchanged": "It is there already.",
    "move_leased": "A consumer holds the message: it stays.",
    "move_duplicate": "Another message of that tenant holds its key: it stays.",
    "move_missing": "There is nothing to move: the message is done, dead or unknown.",
    "redrive": "Redriven: {count}.",
    "purge_dead": "Purged for good: {count}.",
    "run_schedule": "Enqueued as message #{count}.",
    "run_schedule_dropped": "Not enqueued: the tenant has as many undelivered messages as it may have.",
    "pause_schedule": "The schedule is paused.",
    "resume_schedule": "The schedule goes on.",
}
"""The sentence after an action, by its name."""


@dataclass(frozen=True, slots=True)
class Row:
    """A tenant in a table, with its queue."""

    queue: QueueFigures
    tenant: Tenant

    @property
    def detail(self) -> str:
        """The figures of what holds it up."""
        return reason_detail(self.tenant, self.queue)

    @property
    def completed_per_second(self) -> float | None:
        """Its completions a second, where they are counted."""
        queue = self.queue
        if queue.completed_per_second is None or not queue.completed:
            return queue.completed_per_second
        return queue.completed_by_channel.get(self.tenant.channel, 0) / queue.completed * queue.completed_per_second


class Pages:
    """The endpoints that show something.

    Args:
        reading: What they show.
        authorize: Who may see them.
        trace_url: Where traces are shown, with ``{trace_id}`` in it. None: nowhere.
    """

    def __init__(self, reading: Reading, authorize: Authorize | None, trace_url: str | None = None) -> None:
        self.reading = reading
        self.authorize = authorize
        self.trace_url = trace_url

    async def overview(self, request: Request) -> Response:
        """All queues, and the tenants that wait longest."""
        access, figures = await self._begin(request)
        rows = _rows(figures.queues.values())
        health = self.reading.latest_health()
        snapshots = [one for one in health.findings if one.check == "snapshots" and one.level] if health else []
        return self.answer(
            request,
            "overview.html",
            access,
            figures,
            headline=headline(figures),
            queues=[
                {"figures": queue, "state": queue_state(queue), "past": self.reading.figures.past(queue.name)}
                for queue in figures.queues.values()
            ],
            rows=[row for row in rows if row.tenant.wait is not None][:_SUFFERING],
            snapshots=snapshots,
        )

    async def tenants(self, request: Request) -> Response:
        """The tenants that wait, the longest wait first, and those that hold messages."""
        access, figures = await self._begin(request)
        name = request.query_params.get("queue")
        chosen = [_queue(figures, name)] if name is not None else list(figures.queues.values())
        rows = _rows(chosen)
        reason = request.query_params.get("reason")
        counts = Counter(row.tenant.reason for row in rows)
        shown = [(one, counts[one]) for one in Reason if counts[one] or one == reason]
        if reason:
            rows = [row for row in rows if row.tenant.reason == reason]
        return self.answer(
            request, "tenants.html", access, figures,
            chosen=name, reason=reason, reasons=shown, rows=rows[:_PAGE], found=len(rows),
            waiting=sum(queue.contention.waiting for queue in chosen),
            rivals=sum(queue.contention.rivals for queue in chosen),
        )  # fmt: skip

    async def tenant(self, request: Request) -> Response:
        """A tenant: why it waits, its policy, its messages."""
        access, figures = await self._begin(request)
        queue = _queue(figures, request.query_params.get("queue"))
        channel = request.query_params.get("channel", "")
        stats = await self._channel(queue.name, channel)
        if stats is None:
            raise HTTPException(404, f"Queue {queue.name!r} has no tenant {channel!r}.")
        messages, refused = await self._messages(queue.name, channel)
        return self.answer(
            request, "tenant.html", access, figures,
            queue=queue, stats=stats, row=await self.tenant_row(queue, figures, channel), messages=messages,
            refused=refused, plans=await self.plans_of(queue.name), fields=EDITOR, values=values_of(stats),
        )  # fmt: skip

    async def tenant_row(self, queue: QueueFigures, figures: Figures, channel: str) -> Row | None:
        """A tenant with the reason of its wait, also one that the figures do not list."""
        listed = next((one for one in queue.tenants if one.channel == channel), None)
        if listed is not None:
            return Row(queue, listed)
        stats = await self._channel(queue.name, channel)
        if stats is None:
            return None
        return Row(queue, tenant_of(queue.stats, queue.contention, queue.limits, stats, figures.at))

    async def _channel(self, queue: str, channel: str) -> ChannelStats | None:
        of = self.reading.queue(queue)
        found = await self.reading.shared(
            ("channel", queue, channel), lambda: self.reading.call(of.channels, of.achannels, channel)
        )
        return found[0] if found else None

    async def message(self, request: Request) -> Response:
        """A message: what happened to it, and its payload."""
        access, figures = await self._begin(request)
        queue = _queue(figures, request.query_params.get("queue"))
        message_id = _id(request.query_params.get("id", ""))
        target = self._target(queue.name)
        read = partial(database.message_details, target=target, ids=[message_id])
        message = next(iter(await self.reading.read(read)), None)
        letter = None
        if message is None:
            of = self.reading.queue(queue.name)
            letter = next(iter(await self.reading.call(of.dead_letters, of.adead_letters, message_id)), None)
        one = message or letter
        if one is None:
            raise HTTPException(404, f"Queue {queue.name!r} has no message {message_id}: it is done or was purged.")
        tenant = await self.tenant_row(queue, figures, one.channel) if message else None
        read_attempts = partial(database.message_attempts, target=target, message_id=message_id, limit=_ATTEMPTS)
        attempts = await self.reading.read(read_attempts)
        payload = None
        if access.payloads:
            content, size = (message.content, message.content_size) if message else (b"", None)
            if letter:
                content, size = letter.content[:65_536], len(letter.content)
            payload = payload_text(content, size)
        return self.answer(
            request, "message.html", access, figures,
            queue=queue, message=message, letter=letter, message_id=message_id, payload=payload, row=tenant,
            steps=timeline(message, letter, attempts, figures.at), recorded=queue.records_history or bool(attempts),
            trace=trace_link(self.trace_url, one.headers),
        )  # fmt: skip

    async def dead(self, request: Request) -> Response:
        """The dead letters of queues by their errors."""
        access, figures = await self._begin(request)
        name = request.query_params.get("queue")
        chosen = [_queue(figures, name)] if name is not None else [
            queue for queue in figures.queues.values() if queue.stats.dead
        ]  # fmt: skip
        groups: list[tuple[QueueFigures, DeadLetterGroup]] = []
        refused = None
        try:
            for queue in chosen:
                groups += [(queue, group) for group in await self.groups(queue.name)]
        except NotGranted as error:
            refused = str(error)
        return self.answer(
            request, "dead.html", access, figures,
            chosen=name, groups=groups, refused=refused, dead=sum(queue.stats.dead for queue in chosen),
            grouped=GROUPED, bulk=BULK, shown=_LETTERS,
        )  # fmt: skip

    async def schedules(self, request: Request) -> Response:
        """The schedules of queues."""
        access, figures = await self._begin(request)
        name = request.query_params.get("queue")
        chosen = [_queue(figures, name)] if name is not None else list(figures.queues.values())
        found: list[ScheduleInfo] = []
        refused = None
        try:
            for queue in chosen:
                found += await self._schedules(queue.name)
        except NotGranted as error:
            refused = str(error)
        return self.answer(
            request, "schedules.html", access, figures, chosen=name, schedules=found, refused=refused, most=_SCHEDULES
        )

    async def _schedules(self, queue: str) -> Sequence[ScheduleInfo]:
        of = self.reading.queue(queue)
        return await self.reading.shared(
            ("schedules", queue), lambda: self.reading.call(of.schedules, of.aschedules, limit=_SCHEDULES)
        )

    async def workers(self, request: Request) -> Response:
        """The consumers, and what each holds."""
        access, figures = await self._begin(request)
        name = request.query_params.get("queue")
        chosen = [_queue(figures, name)] if name is not None else list(figures.queues.values())
        consumers = [(queue, consumer) for queue in chosen for consumer in queue.consumers]
        return self.answer(request, "workers.html", access, figures, chosen=name, consumers=consumers)

    async def health(self, request: Request) -> Response:
        """The findings of doctor."""
        access, figures = await self._begin(request)
        return self.answer(request, "health.html", access, figures, health=await self.reading.health())

    async def plans(self, request: Request) -> Response:
        """The plans of queues."""
        access, figures = await self._begin(request)
        name = request.query_params.get("queue")
        chosen = [_queue(figures, name)] if name is not None else list(figures.queues.values())
        plans = [(queue, plan, values_of(plan.policy)) for queue in chosen for plan in await self.plans_of(queue.name)]
        return self.answer(
            request, "plans.html", access, figures,
            chosen=name, plans=plans, fields=EDITOR, many=name is None and len(figures.queues) > 1,
        )  # fmt: skip

    async def plan(self, request: Request) -> Response:
        """A plan: its policy, and the tenants that follow it."""
        access, figures = await self._begin(request)
        queue = _queue(figures, request.query_params.get("queue"))
        name = request.query_params.get("plan", "")
        check_name("plan", name)
        plan = next((one for one in await self.plans_of(queue.name) if one.name == name), None)
        if plan is None and not access.operates:
            raise HTTPException(404, f"Queue {queue.name!r} has no plan {name!r}.")
        after = request.query_params.get("after")
        read = partial(
            database.plan_channels, target=self._target(queue.name), name=name, after=_id(after) if after else None,
            limit=_PAGE + 1,
        )  # fmt: skip
        found = await self.reading.read(read) if plan else []
        return self.answer(
            request, "plan.html", access, figures,
            queue=queue, name=name, plan=plan, fields=EDITOR, values=values_of(plan.policy if plan else PolicyFields()),
            followers=found[:_PAGE], more=found[_PAGE - 1].channel_id if len(found) > _PAGE else None,
            after=after, page_size=_PAGE,
        )  # fmt: skip

    async def plans_of(self, queue: str) -> Sequence[PlanInfo]:
        """The plans of a queue by name."""
        of = self.reading.queue(queue)
        return await self.reading.shared(("plans", queue), lambda: self.reading.call(of.plans, of.aplans))

    async def groups(self, queue: str) -> Sequence[DeadLetterGroup]:
        """The groups of dead letters of a queue."""
        read = partial(database.dead_letter_groups, target=self._target(queue), limit=GROUPED, ids=BULK)
        return await self.reading.shared(("groups", queue), lambda: self.reading.read(read))

    async def access(self, request: Request) -> Access:
        """The user that sends the request."""
        return await access_of(request, self.authorize)

    def answer(
        self, request: Request, template: str, access: Access, figures: Figures, *, status: int = 200, **values: Any
    ) -> Response:
        """A page with what every page has."""
        token = csrf_token(request)
        done = request.query_params.get("done", "")
        count = request.query_params.get("count", "")
        page = rendered(
            template,
            page=template.removesuffix(".html"),
            access=access,
            figures=figures,
            at=figures.at,
            csrf=token,
            done=DONE[done].format(count=int(count) if count.isdecimal() else 0) if done in DONE else None,
            ago=lambda instant: seconds_ago(instant, figures.at),
            **values,
        )
        answer = HTMLResponse(page, status)
        secure = request.url.scheme == "https"
        answer.set_cookie(CSRF_COOKIE, token, httponly=True, samesite="strict", secure=secure)
        return answer

    async def _begin(self, request: Request) -> tuple[Access, Figures]:
        access = await self.access(request)
        return access, await self.reading.figures.aget()

    async def _messages(self, queue: str, channel: str) -> tuple[Sequence[Any], str | None]:
        read = partial(database.message_details, target=self._target(queue), channel=channel, limit=_MESSAGES)
        try:
            key = ("messages", queue, channel)
            return await self.reading.shared(key, lambda: self.reading.read(partial(read, content_bytes=0))), None
        except NotGranted as error:
            return (), str(error)

    def _target(self, queue: str) -> Target:
        return Target(self.reading.schema, queue)


def _rows(queues: Any) -> list[Row]:
    """The tenants of queues: those that wait, the longest first, then the others, the most messages out first."""
    rows = [Row(queue, tenant) for queue in queues for tenant in queue.tenants]
    return sorted(
        rows,
        key=lambda row: (
            row.tenant.wait is None,
            -(row.tenant.wait.total_seconds() if row.tenant.wait else 0.0),
            -row.tenant.demand.leased,
            row.tenant.channel,
        ),
    )


def _queue(figures: Figures, name: str | None) -> QueueFigures:
    # Browsers send the line feed of a hidden field as two characters.
    found = figures.queues.get(name or "") or figures.queues.get((name or "").replace("\r\n", "\n"))
    if found is None:
        raise HTTPException(404, f"There is no queue {name!r}.")
    return found


def values_of(policy: PolicyFields) -> dict[str, Any]:
    """The fields of a policy by their names."""
    return {name: getattr(policy, name) for name in policy_fields()}


def _id(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or not 0 < int(text) < 2**63:
        raise HTTPException(404, f"{text[:40]!r} is no id of a message.")
    return int(text)
