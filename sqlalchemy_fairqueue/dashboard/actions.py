"""The actions of operators.

A pause or a resume is done at once. So is a retry of messages, a redrive of dead letters, or a run of a schedule. All
other actions ask for a confirmation first. Each action that was done leaves a line in the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse

from sqlalchemy_fairqueue.dashboard.access import check_origin, record
from sqlalchemy_fairqueue.dashboard.base import View, message_id_of
from sqlalchemy_fairqueue.dashboard.pages import BULK
from sqlalchemy_fairqueue.dashboard.policies import (
    LIMITS,
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
from sqlalchemy_fairqueue.values.settings import QueueSettings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from sqlalchemy import Connection
    from starlette.requests import Request
    from starlette.responses import Response

    from sqlalchemy_fairqueue.dashboard.access import Access
    from sqlalchemy_fairqueue.dashboard.pages import Pages
    from sqlalchemy_fairqueue.figures.queues import Figures
    from sqlalchemy_fairqueue.values.reports import SharedLimit

_MOST_BYTES = 65_536
_COUNTED = 100_000
"""The most messages that are counted for a question. From there on, the question says "or more"."""
_NAMED = 100
"""The most characters of a user's name that the dashboard writes into the database."""
_SHOWN = 200
_SUBJECTS = ("state", "kind", "error", "schedule", "plan", "group", "consumer", "limit")
"""The arguments that name what an action is about, besides the channel and the messages."""
_PAGES = {
    **dict.fromkeys(("dead", "schedules", "plans", "workers", "limits", "tenants"), ()),
    "tenant": ("channel",), "plan": ("plan",), "messages": ("channel", "state", "kind"), "group": ("group",),
    "message": ("id",),
}  # fmt: skip
"""The pages that ask for actions, with the arguments that lead back to them."""
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Question:
    """A question before an action.

    Attributes:
        changes: The values that the action changes: name, value before, value after.
        inputs: The names of the form's inputs that are sent again when the operator confirms. None: all inputs. For
            policies, plans and limits, only changed inputs are sent, so that values which others set meanwhile stay.
    """

    words: str
    button: str
    effect: Sequence[str] = ()
    changes: Sequence[tuple[str, str, str]] = ()
    inputs: Collection[str] | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """What an action did.

    Attributes:
        said: A key of the dict ``SAID``. The next page shows the sentence of this key, which may contain *count*.
        outcome: The words for the log.
        to: The address of the next page. None: the page on which the operator chose the action.
    """

    said: str
    outcome: str
    count: int | None = None
    to: str | None = None


class Call(View):
    """A requested action.

    The address, not the form, names the channel or plan to act on: browsers alter line ends in the values of a form.
    """

    def __init__(
        self, pages: Pages, request: Request, access: Access, figures: Figures, form: Mapping[str, str]
    ) -> None:
        super().__init__(pages, request, access, figures)
        self.reading = pages.reading
        self.letter_groups = pages.letter_groups
        self.form = form
        self.of = self.reading.queue(self.queue.name)
        self.channel = self.query.get("channel")
        if self.channel is not None:
            check_name("channel", self.channel)
        self.selects = self.query.get("from") == "messages"
        found = self.query.get("id")
        selected = [name.removeprefix("id.") for name in form if self.selects and name.startswith("id.")]
        self.ids = [message_id_of(text) for text in ([found] if found is not None else selected)]
        self.about = {name: self.query[name] for name in _SUBJECTS if name in self.query}
        self.confirmed = form.get("confirmed") == "yes"
        self.by = clean(access.name)[:_NAMED] or None

    def need(self, name: str, word: str | None = None) -> str:
        if not (found := self.query.get(name)):
            raise HTTPException(404, f"The action needs a {word or name}.")
        return found

    async def act(self, verb: Callable[..., R], *arguments: Any, **named: Any) -> R:
        """Call a verb and audit it in one transaction; an int, list or tuple as first argument must be message ids."""
        about = {name: clean(text)[:_SHOWN] for name, text in self.about.items()}
        ids = next((one for one in arguments[:1] if isinstance(one, (int, list, tuple))), None)

        def work(connection: Connection) -> R:
            answer = verb(connection, *arguments, **named)
            self.of.admin.record_audit(
                connection, self.query["action"].replace("_", " "), by=self.by, channel=self.channel, message_ids=ids,
                details=(about | named) or None,
            )  # fmt: skip
            return answer

        return await self.reading.act(work)

    async def letters(self) -> Sequence[int]:
        """Return ids of dead letters: the requested ids, or else the newest of the requested kind, reason and error."""
        wanted = tuple(self.query.get(name) for name in ("kind", "reason", "error"))
        groups = [] if self.ids else await self.letter_groups(self.queue.name)
        found = (group.message_ids[:BULK] for group in groups if (group.kind, group.reason, group.error) == wanted)
        return self.ids or next(found, ())

    async def settings(self) -> QueueSettings:
        found = await self.reading.read(queue_settings, self.reading.schema, self.queue.name)
        return found.get(self.queue.name) or QueueSettings()

    @property
    def page(self) -> str:
        page = self.query.get("from", "")
        if page not in _PAGES:
            return "./"
        return link(page, queue=self.queue.name, **{name: self.query.get(name) for name in _PAGES[page]})

    def back(self, done: Done | None) -> Response:
        page = (done and done.to) or self.page
        said = link("", done=done.said, count=done.count) if done else ""
        return RedirectResponse(page + (said.replace("?", "&") if "?" in page else said), 303)

    def record(self, done: Done) -> None:
        ids = self.ids[0] if self.ids and not self.selects else None
        about = {"channel": self.channel, "message_id": ids, **self.about}
        record(self.access, self.query["action"], self.queue.name, done.outcome, **about)


class Actions:
    """The endpoint of all actions: checks who asks, and performs the action that the address names."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._reading = pages.reading

    async def act(self, request: Request) -> Response:
        access = await self._pages.access(request)
        form = await _form(request)
        check_origin(request, form)
        if not access.operates:
            raise HTTPException(403, f"{access.name} is a viewer: ask an operator.")
        figures = await self._reading.figures.aget()
        action = _ACTIONS.get(request.query_params.get("action", ""))
        if action is None or request.query_params.get("queue", "") not in figures.queues:
            raise HTTPException(404, "There is no such action or queue.")
        call = Call(self._pages, request, access, figures, form)
        done = await action(call)
        if isinstance(done, Question):
            inputs = form.keys() - {"csrf"} if done.inputs is None else done.inputs
            page = call.answer(
                "confirm", question=done, address=link("act", **dict(call.query)), back=call.page,
                fields=[(name, text) for name, text in form.items() if name in inputs],
            )  # fmt: skip
            return self._pages.personal(request, access, page)
        if done is not None:
            call.record(done)
            self._reading.forget()
        return call.back(done)


async def pause(call: Call) -> Done:
    await call.act(call.of.pause, call.channel)
    return Done("pause", "paused")


async def resume(call: Call) -> Done:
    await call.act(call.of.resume, call.channel)
    return Done("resume", "resumed")


async def policy(call: Call) -> Question | Done | None:
    found = await call.reading.read(call.of.channels, call.channel)
    if not found:
        raise HTTPException(404, f"Queue {call.queue.name!r} has no tenant {call.channel!r}.")
    [stats] = found
    change = change_of(stats, call.form)
    if not change:
        return None
    plans = {plan.name: plan for plan in await call.reading.read(call.of.plans.list)}
    after = policy_after(stats, change, plans, (await call.settings()).defaults)
    shown = changes_shown(stats, change, after)
    if not call.confirmed:
        effects = effect(call.queue, stats, differences(stats, after))
        return Question(f"Change the policy of {call.channel!r}?", "Change the policy", effects, shown, change.inputs)
    await call.act(call.of.configure_channel, call.channel, **change.arguments)
    return Done("policy", _changes(shown))


async def plan(call: Call) -> Question | Done | None:
    name = call.need("plan")
    found = next(iter(await call.reading.read(call.of.plans.list, name)), None)
    before = found.policy if found else ChannelPolicy()
    changes = changed_fields(before, call.form)
    if found and not changes:
        return None
    shown = fields_shown(before, changes) or [("plan", "none", "a policy without limits")]
    if not call.confirmed:
        words = "Change the plan" if found else "Make the plan"
        followers = plural(found.channels, "tenant") if found and found.channels else ""
        effects = [f"It holds for the {followers} that follow it, but for what is their own."] if followers else []
        return Question(f"{words} {name!r}?", words, effects, shown, changes)
    # Given an engine, configure copies the plan to its channels at once; given a connection, dequeues do.
    new = () if found else (ChannelPolicy(**changes),)
    await call.reading.call(call.of.plans.configure, name, *new, **(changes if found else {}))
    await call.act(lambda _, **__: None, **changes)
    return Done("plan", _changes(shown))


async def limit(call: Call) -> Question | Done | None:
    name = call.query.get("limit")
    if name is None:
        before: QueueSettings | SharedLimit | None = await call.settings()
    else:
        before = next(iter(await call.reading.read(call.of.limits.list, name)), None)
    if before is None:
        raise HTTPException(404, f"There is no shared limit {name!r}.")
    changes = changed_fields(before, call.form, LIMITS)
    if not changes:
        return None
    shown = fields_shown(before, changes)
    if not call.confirmed:
        whose = f"limit of queue {call.queue.name!r}" if name is None else f"shared limit {name!r}"
        return Question(f"Change the {whose}?", "Change the limit", (), shown, changes)
    if name is None:
        await call.act(call.of.configure, **changes)
    else:
        await call.act(call.of.limits.configure, name, **changes)
    return Done("limit", _changes(shown))


def _changes(shown: Sequence[tuple[str, str, str]]) -> str:
    return ", ".join(f"{name}: {old} -> {new}" for name, old, new in shown)


async def remove_plan(call: Call) -> Question | Done:
    name = call.need("plan")
    if not call.confirmed:
        return Question(f"Remove the plan {name!r}?", "Remove the plan")
    await call.act(call.of.plans.remove, name)
    return Done("remove_plan", "removed")


async def purge(call: Call) -> Question | Done:
    channel = call.need("channel", "tenant")
    which: dict[str, Any] = {name: call.query[name] for name in ("state", "kind") if name in call.query}
    if not call.confirmed:
        if which:
            count = await call.reading.read(call.of.admin.count_undelivered, channel, limit=_COUNTED, **which)
        else:
            count = sum(stats.undelivered for stats in await call.reading.read(call.of.channels, channel))
        words = f"Delete {count:,}{' or more' if which and count == _COUNTED else ''} undelivered messages"
        words += f" of kind {which['kind']!r}" if "kind" in which else ""
        words += f" that are {which['state']}" if "state" in which else ""
        return Question(f"{words} of {channel!r} for good?", "Delete them")
    receipt = await call.act(call.of.purge, channel, **which)
    return Done("purge", f"purged {receipt.purged}", receipt.purged)


async def cancel(call: Call) -> Question | Done:
    if call.selects:
        if call.ids and not call.confirmed:
            effects = ["Those that consumers hold are gone unless they complete first."]
            return Question(f"Cancel {plural(len(call.ids), 'message')}?", "Cancel them", effects)
        outcomes = [(await call.act(call.of.cancel, one)).outcome for one in call.ids]
        counts = f"{outcomes.count('cancelled')} cancelled, {outcomes.count('leased')} out"
        return Done("cancel_selected", f"{counts} of {call.ids}", len(outcomes) - outcomes.count("missing"))
    [message_id] = call.ids or [0]
    if not call.confirmed:
        return Question(f"Cancel message {message_id}?", "Cancel the message")
    outcome = str((await call.act(call.of.cancel, message_id)).outcome)
    said = {"cancelled": "cancel", "leased": "cancel_asked"}.get(outcome, "cancel_missing")
    return Done(said, outcome, to=link("tenant", queue=call.queue.name, channel=call.channel))


async def move(call: Call) -> Question | Done:
    [message_id], to = call.ids or [0], call.form.get("to", "")
    check_name("channel", to)
    if not call.confirmed:
        new = [] if await call.reading.read(call.of.channels, to) else ["There is no such tenant yet: it is made."]
        return Question(f"Give message {message_id} to {to!r}?", "Move the message", new)
    outcome = await call.act(call.of.admin.move, message_id, to)
    return Done("move" if outcome == "moved" else f"move_{outcome}", f"{outcome} to {to!r}")


async def retry(call: Call) -> Done:
    ids = call.ids if call.selects else call.ids or [0]
    outcomes = [await call.act(call.of.admin.retry_now, one) for one in ids]
    if call.selects:
        due = sum(outcome in {"due", "redriven"} for outcome in outcomes)
        return Done("retry_selected", f"{due} due of {call.ids}", due)
    return Done(f"retry_{outcomes[0]}", outcomes[0])


async def redrive(call: Call) -> Done:
    ids = await call.letters()
    outcomes = await call.act(call.of.dead_letters.redrive, ids) if ids else {}
    count = list(outcomes.values()).count("redriven")
    return Done("redrive", f"redriven {count} of {len(ids)}", count)


async def purge_dead(call: Call) -> Question | Done:
    ids = await call.letters()
    if not call.confirmed:
        return Question(f"Delete {len(ids):,} dead letters of queue {call.queue.name!r} for good?", "Delete them")
    count = await call.act(call.of.dead_letters.purge, ids) if ids else 0
    return Done("purge_dead", f"purged {count}", count)


async def run_schedule(call: Call) -> Done:
    found = await _on_schedule(call, call.of.schedules.run)
    return Done("run_schedule", f"message {found}", found) if found else Done("run_schedule_dropped", "dropped")


async def pause_schedule(call: Call) -> Done:
    await _on_schedule(call, call.of.schedules.pause)
    return Done("pause_schedule", "paused")


async def resume_schedule(call: Call) -> Done:
    await _on_schedule(call, call.of.schedules.resume)
    return Done("resume_schedule", "resumed")


async def _on_schedule(call: Call, verb: Callable[..., R]) -> R:
    return await call.act(verb, call.need("schedule"), channel=call.need("channel", "tenant"))


async def stop_worker(call: Call) -> Question | Done:
    consumer = call.need("consumer", "worker")
    if not call.confirmed:
        effects = [
            "It takes no more messages, gives back what no handler has begun, and lets its handlers finish.",
            "It stops for all of its queues, and so does every other worker of this name.",
        ]
        return Question(f"Ask worker {consumer!r} to stop?", "Ask it to stop", effects)
    is_there = await call.act(call.of.admin.stop_worker, consumer, by=call.by)
    return Done("stop_worker", "asked") if is_there else Done("stop_worker_gone", "no lease")


async def cancel_group(call: Call) -> Question | Done:
    group = call.query.get("group", "")
    status = await call.reading.read(call.of.groups.status, group)
    if not call.confirmed:
        words = f"Cancel the {plural(status.pending, 'member')} of group {status.id} that have not ended?"
        return Question(words, "Cancel them", ["What follows the group is enqueued then."])
    found = await call.act(call.of.groups.cancel, group)
    return Done("cancel_group", f"cancelled {found.cancelled}, {found.leased} out", found.cancelled)


_ACTIONS: dict[str, Callable[[Call], Awaitable[Question | Done | None]]] = {
    action.__name__: action
    for action in (
        pause, resume, policy, plan, limit, remove_plan, purge, cancel, move, retry, redrive, purge_dead, run_schedule,
        pause_schedule, resume_schedule, stop_worker, cancel_group,
    )
}  # fmt: skip


async def _form(request: Request) -> dict[str, str]:
    try:
        fits = parse_whole(request.headers.get("content-length", "")) <= _MOST_BYTES
    except ValueError:
        fits = False
    if not fits:
        raise HTTPException(413, "The form is too large.")
    return dict(parse_qsl((await request.body()).decode("utf-8", "replace"), keep_blank_values=True))
