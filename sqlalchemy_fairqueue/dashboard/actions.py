"""The actions of operators: each is asked to be confirmed where it cannot be undone, and leaves a line in the log."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse

from sqlalchemy_fairqueue.dashboard.access import check_origin, record
from sqlalchemy_fairqueue.dashboard.base import message_id_of
from sqlalchemy_fairqueue.dashboard.pages import BULK
from sqlalchemy_fairqueue.dashboard.policies import (
    change_of,
    changed_fields,
    changes_shown,
    differences,
    effect,
    fields_shown,
    policy_after,
)
from sqlalchemy_fairqueue.dashboard.rendering import link
from sqlalchemy_fairqueue.database.configuration import queue_settings
from sqlalchemy_fairqueue.formats import parse_whole, plural
from sqlalchemy_fairqueue.texts import clean
from sqlalchemy_fairqueue.values.checks import check_name
from sqlalchemy_fairqueue.values.policies import ChannelPolicy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from sqlalchemy import Connection
    from starlette.requests import Request
    from starlette.responses import Response

    from sqlalchemy_fairqueue.dashboard.access import Access
    from sqlalchemy_fairqueue.dashboard.pages import Pages

_MOST_BYTES = 65_536
_COUNTED = 100_000
"""Messages that a question counts one by one."""
_NAMED = 100
"""Characters of a user's name that the database keeps."""
_SHOWN = 200
_SUBJECTS = ("state", "kind", "error", "schedule", "plan", "consumer", "group")
"""What an action may be about, apart from a channel and messages."""
R = TypeVar("R")


class Actions:
    """The endpoint that changes something.

    What is to be changed is in the query of the address, whose bytes no browser alters; values that somebody entered
    are in the form.
    """

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._reading = pages.reading
        self._actions: dict[str, Callable[[_Call], Awaitable[Response]]] = {
            "pause": self._pause,
            "resume": self._resume,
            "policy": self._policy,
            "plan": self._plan,
            "remove_plan": self._remove_plan,
            "purge": self._purge,
            "cancel": self._cancel,
            "move": self._move,
            "retry": self._retry,
            "cancel_group": self._cancel_group,
            "redrive": self._redrive,
            "purge_dead": self._purge_dead,
            "run_schedule": self._run_schedule,
            "pause_schedule": self._pause_schedule,
            "resume_schedule": self._resume_schedule,
            "stop_worker": self._stop_worker,
        }

    async def act(self, request: Request) -> Response:
        """Do one of the actions, or ask whether it is meant."""
        access = await self._pages.access(request)
        form = await _form(request)
        check_origin(request, form)
        if not access.operates:
            raise HTTPException(403, f"{access.name} is a viewer: ask an operator.")
        queue = request.query_params.get("queue", "")
        figures = await self._reading.figures.aget()
        action = self._actions.get(request.query_params.get("action", ""))
        if action is None or queue not in figures.queues:
            raise HTTPException(404, "There is no such action or queue.")
        return await action(_Call(request, access, queue, form))

    async def _pause(self, call: _Call) -> Response:
        of = self._reading.queue(call.queue)
        await self._act(call, of.pause, call.channel)
        return self._done(call, "pause", "paused")

    async def _resume(self, call: _Call) -> Response:
        of = self._reading.queue(call.queue)
        await self._act(call, of.resume, call.channel)
        return self._done(call, "resume", "resumed")

    async def _policy(self, call: _Call) -> Response:
        of = self._reading.queue(call.queue)
        found = await self._reading.call(of.channels, call.channel)
        if not found:
            raise HTTPException(404, f"Queue {call.queue!r} has no tenant {call.channel!r}.")
        [stats] = found
        change = change_of(stats, call.form)
        if not change:
            return call.back(None)
        plans = {plan.name: plan for plan in await self._reading.call(of.plans.list)}
        after = policy_after(stats, change, plans, await self._reading.read(partial(self._defaults, call.queue)))
        shown = changes_shown(stats, change, after)
        if not call.confirmed:
            figures = await self._reading.figures.aget()
            return await self._confirm(
                call, f"Change the policy of {call.channel!r}?", "Change the policy",
                changes=shown, effect=effect(figures.queues[call.queue], stats, differences(stats, after)),
            )  # fmt: skip
        await self._act(call, of.configure_channel, call.channel, **change.arguments)
        return self._changed(call, "policy", shown)

    async def _plan(self, call: _Call) -> Response:
        of = self._reading.queue(call.queue)
        name = call.plan
        found = await self._reading.call(of.plans.list, name)
        before = found[0].policy if found else ChannelPolicy()
        changes = changed_fields(before, call.form)
        if found and not changes:
            return call.back(None)
        shown = fields_shown(before, changes) or [("plan", "none", "a policy without limits")]
        if not call.confirmed:
            followers = found[0].channels if found else 0
            words = f"It holds for the {plural(followers, 'tenant')} that follow it, but for what is their own."
            return await self._confirm(
                call, f"Change the plan {name!r}?" if found else f"Make the plan {name!r}?",
                "Change the plan" if found else "Make the plan", changes=shown, effect=[words] if followers else [],
            )  # fmt: skip
        policy = () if found else (ChannelPolicy(**changes),)
        named = changes if found else {}
        await self._reading.call(of.plans.configure, name, *policy, **named)
        await self._act(call, lambda _, **__: None, **changes)
        return self._changed(call, "plan", shown)

    async def _remove_plan(self, call: _Call) -> Response:
        of = self._reading.queue(call.queue)
        if not call.confirmed:
            return await self._confirm(call, f"Remove the plan {call.plan!r}?", "Remove the plan")
        await self._act(call, of.plans.remove, call.plan)
        return self._done(call, "remove_plan", "removed")

    def _changed(self, call: _Call, done: str, shown: Sequence[tuple[str, str, str]]) -> Response:
        call.record(done, ", ".join(f"{name}: {old} -> {new}" for name, old, new in shown))
        self._reading.forget()
        return call.back(done)

    def _defaults(self, queue: str, connection: Connection) -> ChannelPolicy | None:
        found = queue_settings(connection, self._reading.schema).get(queue)
        return found.defaults if found else None

    async def _purge(self, call: _Call) -> Response:
        of = self._reading.queue(call.queue)
        channel = call.needed_channel
        query = call.request.query_params
        which: dict[str, Any] = {name: query[name] for name in ("state", "kind") if name in query}
        if not call.confirmed:
            found = await self._reading.call(of.channels, channel)
            count = sum(stats.undelivered for stats in found)
            if which:
                count = await self._reading.call(of.admin.count_undelivered, channel, limit=_COUNTED, **which)
            words = f"Delete {count:,}{' or more' if which and count == _COUNTED else ''} undelivered messages"
            words += f" of kind {which['kind']!r}" if "kind" in which else ""
            words += f" that are {which['state']}" if "state" in which else ""
            return await self._confirm(call, f"{words} of {channel!r} for good?", "Delete them")
        receipt = await self._act(call, of.purge, channel, **which)
        return self._done(call, "purge", f"purged {receipt.purged}", count=receipt.purged)

    async def _cancel(self, call: _Call) -> Response:
        of = self._reading.queue(call.queue)
        if call.selects:
            return await self._cancel_selected(call)
        [message_id] = call.ids or [0]
        if not call.confirmed:
            return await self._confirm(call, f"Cancel message {message_id}?", "Cancel the message")
        receipt = await self._act(call, of.cancel, message_id)
        outcome = str(receipt.outcome)
        done = {"cancelled": "cancel", "leased": "cancel_asked"}.get(outcome, "cancel_missing")
        return self._done(call, done, outcome, to=link("tenant", queue=call.queue, channel=call.channel))

    async def _cancel_selected(self, call: _Call) -> Response:
        of = self._reading.queue(call.queue)
        if call.ids and not call.confirmed:
            words = f"Cancel {plural(len(call.ids), 'message')}?"
            effect = ["Those that consumers hold are gone unless they complete first."]
            return await self._confirm(call, words, "Cancel them", effect=effect)
        outcomes = [(await self._act(call, of.cancel, one)).outcome for one in call.ids]
        counts = f"{outcomes.count('cancelled')} cancelled, {outcomes.count('leased')} out"
        return self._done(call, "cancel_selected", f"{counts} of {call.ids}", count=len(outcomes))

    async def _move(self, call: _Call) -> Response:
        of = self._reading.queue(call.queue)
        [message_id], to = call.ids or [0], call.form.get("to", "")
        check_name("channel", to)
        if not call.confirmed:
            found = await self._reading.call(of.channels, to)
            words = f"Give message {message_id} to {to!r}?"
            new = [] if found else ["There is no such tenant yet: it is made."]
            return await self._confirm(call, words, "Move the message", effect=new)
        outcome = await self._act(call, of.admin.move, message_id, to)
        done = "move" if outcome == "moved" else f"move_{outcome}"
        return self._done(call, done, f"{outcome} to {to!r}")

    async def _retry(self, call: _Call) -> Response:
        of = self._reading.queue(call.queue)
        if call.selects:
            outcomes = [await self._act(call, of.admin.retry_now, one) for one in call.ids]
            due = sum(outcome in {"due", "redriven"} for outcome in outcomes)
            return self._done(call, "retry_selected", f"{due} due of {call.ids}", count=due)
        [message_id] = call.ids or [0]
        outcome = await self._act(call, of.admin.retry_now, message_id)
        return self._done(call, f"retry_{outcome}", outcome)

    async def _redrive(self, call: _Call) -> Response:
        of = self._reading.queue(call.queue)
        ids = await self._letters(call)
        outcomes = await self._act(call, of.dead_letters.redrive, ids) if ids else {}
        count = sum(outcome == "redriven" for outcome in outcomes.values())
        return self._done(call, "redrive", f"redriven {count} of {len(ids)}", count=count)

    async def _purge_dead(self, call: _Call) -> Response:
        of = self._reading.queue(call.queue)
        ids = await self._letters(call)
        if not call.confirmed:
            words = f"Delete {len(ids):,} dead letters of queue {call.queue!r} for good?"
            return await self._confirm(call, words, "Delete them")
        count = await self._act(call, of.dead_letters.purge, ids) if ids else 0
        return self._done(call, "purge_dead", f"purged {count}", count=count)

    async def _run_schedule(self, call: _Call) -> Response:
        of = self._reading.queue(call.queue)
        name, channel = call.schedule, call.needed_channel
        message_id = await self._act(call, of.schedules.run, name, channel=channel)
        if message_id is None:
            return self._done(call, "run_schedule_dropped", "dropped")
        return self._done(call, "run_schedule", f"message {message_id}", count=message_id)

    async def _pause_schedule(self, call: _Call) -> Response:
        of = self._reading.queue(call.queue)
        await self._act(call, of.schedules.pause, call.schedule, channel=call.needed_channel)
        return self._done(call, "pause_schedule", "paused")

    async def _resume_schedule(self, call: _Call) -> Response:
        of = self._reading.queue(call.queue)
        await self._act(call, of.schedules.resume, call.schedule, channel=call.needed_channel)
        return self._done(call, "resume_schedule", "resumed")

    async def _stop_worker(self, call: _Call) -> Response:
        of = self._reading.queue(call.queue)
        consumer = call.consumer
        if not call.confirmed:
            effect = [
                "It takes no more messages, gives back what no handler has begun, and lets its handlers finish.",
                "It stops for all of its queues, and so does every other worker of this name.",
            ]
            return await self._confirm(call, f"Ask worker {consumer!r} to stop?", "Ask it to stop", effect=effect)
        alive = await self._act(call, of.admin.stop_worker, consumer, by=call.by)
        return self._done(call, "stop_worker" if alive else "stop_worker_gone", "asked" if alive else "no lease")

    async def _cancel_group(self, call: _Call) -> Response:
        of = self._reading.queue(call.queue)
        status = await self._reading.call(of.groups.status, call.group)
        if not call.confirmed:
            words = f"Cancel the {plural(status.pending, 'member')} of group {status.id} that have not ended?"
            return await self._confirm(call, words, "Cancel them", effect=["What follows the group is enqueued then."])
        found = await self._act(call, of.groups.cancel, call.group)
        outcome = f"cancelled {found.cancelled}, {found.leased} out"
        return self._done(call, "cancel_group", outcome, count=found.cancelled)

    async def _act(self, call: _Call, verb: Callable[..., R], *arguments: Any, **named: Any) -> R:
        """Call a verb of a queue in a transaction that records who did it; ids of messages are its first argument."""
        of = self._reading.queue(call.queue)
        query = call.request.query_params
        about = {name: clean(query[name])[:_SHOWN] for name in _SUBJECTS if name in query}
        ids = next((one for one in arguments[:1] if isinstance(one, (int, list, tuple))), None)

        def work(connection: Connection) -> R:
            answer = verb(connection, *arguments, **named)
            of.admin.record_audit(
                connection, query["action"].replace("_", " "), by=call.by, channel=call.channel, message_ids=ids,
                details=(about | named) or None,
            )  # fmt: skip
            return answer

        return await self._reading.act(work)

    async def _letters(self, call: _Call) -> Sequence[int]:
        """The dead letters that an action is about: one that is named, or the newest of a group."""
        if call.ids:
            return call.ids
        query = call.request.query_params
        wanted = (query.get("kind"), query.get("reason"), query.get("error"))
        for group in await self._pages.letter_groups(call.queue):
            if (group.kind, group.reason, group.error) == wanted:
                return group.message_ids[:BULK]
        return ()

    async def _confirm(self, call: _Call, question: str, button: str, **values: Any) -> Response:
        figures = await self._reading.figures.aget()
        page = self._pages.answer(
            call.request, "confirm.html", call.access, figures,
            question=question, button=button, address=link("act", **dict(call.request.query_params)),
            back=call.page, fields=[(name, text) for name, text in call.form.items() if name != "csrf"],
            changes=values.get("changes"), effect=values.get("effect"),
        )  # fmt: skip
        return self._pages.personal(call.request, call.access, page)

    def _done(
        self, call: _Call, done: str, outcome: str, *, count: int | None = None, to: str | None = None
    ) -> Response:
        call.record(call.request.query_params["action"], outcome)
        self._reading.forget()
        return call.back(done, count=count, to=to)


class _Call:
    """An action as it was asked for."""

    def __init__(self, request: Request, access: Access, queue: str, form: Mapping[str, str]) -> None:
        self.request = request
        self.access = access
        self.queue = queue
        self.form = form
        self.channel = request.query_params.get("channel")
        if self.channel is not None:
            check_name("channel", self.channel)
        found = request.query_params.get("id")
        self.selects = request.query_params.get("from") == "messages"
        selected = [name.removeprefix("id.") for name in form if self.selects and name.startswith("id.")]
        self.ids = [message_id_of(text) for text in ([found] if found is not None else selected)]

    @property
    def by(self) -> str | None:
        """The name of the user for the database."""
        return clean(self.access.name)[:_NAMED] or None

    @property
    def confirmed(self) -> bool:
        """Whether the question was answered with yes."""
        return self.form.get("confirmed") == "yes"

    @property
    def needed_channel(self) -> str:
        if not self.channel:
            raise HTTPException(404, "The action needs a tenant.")
        return self.channel

    @property
    def schedule(self) -> str:
        name = self.request.query_params.get("schedule")
        if not name:
            raise HTTPException(404, "The action needs a schedule.")
        return name

    @property
    def plan(self) -> str:
        name = self.request.query_params.get("plan")
        if not name:
            raise HTTPException(404, "The action needs a plan.")
        return name

    @property
    def group(self) -> str:
        return self.request.query_params.get("group", "")

    @property
    def consumer(self) -> str:
        name = self.request.query_params.get("consumer")
        if not name:
            raise HTTPException(404, "The action needs a worker.")
        return name

    @property
    def page(self) -> str:
        """The page that the action was asked for on."""
        query = self.request.query_params
        given: dict[str, object] = {}
        match page := query.get("from"):
            case "dead" | "schedules" | "plans" | "workers":
                pass
            case "tenant":
                given = {"channel": self.channel}
            case "messages":
                given = {"channel": self.channel, "state": query.get("state"), "kind": query.get("kind")}
            case "plan":
                given = {"plan": self.plan}
            case "group":
                given = {"group": self.group}
            case "message":
                given = {"id": self.ids[0] if self.ids else None}
            case _:
                return "./"
        return link(page, queue=self.queue, **given)

    def back(self, done: str | None, *, count: int | None = None, to: str | None = None) -> Response:
        """Go back to the page, which says what was done."""
        page = to or self.page
        said = link("", done=done, count=count).removeprefix("?") if done else ""
        joined = f"{page}{'&' if '?' in page else '?'}{said}" if said else page
        return RedirectResponse(joined, 303)

    def record(self, action: str, outcome: str) -> None:
        """Write the line of the log."""
        ids = self.ids[0] if self.ids and not self.selects else None
        query = self.request.query_params
        record(
            self.access, action, self.queue, outcome,
            channel=self.channel, message_id=ids, kind=query.get("kind"), error=query.get("error"),
            schedule=query.get("schedule"), plan=query.get("plan"), group=query.get("group"),
            consumer=query.get("consumer"),
        )  # fmt: skip


async def _form(request: Request) -> dict[str, str]:
    try:
        fits = parse_whole(request.headers.get("content-length", "")) <= _MOST_BYTES
    except ValueError:
        fits = False
    if not fits:
        raise HTTPException(413, "The form is too large.")
    return dict(parse_qsl((await request.body()).decode("utf-8", "replace"), keep_blank_values=True))
