"""Reads changes of policies from a form, and shows them before they are made, with their effect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.dashboard.rendering import percent_text
from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.formats import format_duration
from sqlalchemy_fairqueue.values.fields import Choice, Count, Definition
from sqlalchemy_fairqueue.values.policies import POLICY, UNSET, ChannelPolicy
from sqlalchemy_fairqueue.values.settings import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy_fairqueue.figures.queues import QueueFigures
    from sqlalchemy_fairqueue.values.policies import PolicyFields, Unset
    from sqlalchemy_fairqueue.values.reports import ChannelStats, PlanInfo

NO_PLAN = "-"
"""The value by which a form chooses no plan; the value for a plan is its name after ``plan:``."""
_PLAN = "plan:"
_RESET = "reset."
# The page shows in figures what a change of one of these fields would do.
_COUNTED = {"weight", "max_concurrency", "rate", "max_backlog"}


@dataclass(frozen=True, slots=True)
class EditorField:
    """A field of a policy in an editor."""

    name: str
    definition: Definition

    @property
    def label(self) -> str:
        return self.name.replace("_", " ").capitalize()

    @property
    def hint(self) -> str:
        return self.definition.help + (f" Empty: {self.definition.none}." if self.definition.none else "")

    @property
    def choices(self) -> tuple[str, ...]:
        return self.definition.words if isinstance(self.definition, Choice) else ()

    @property
    def numeric(self) -> bool:
        return isinstance(self.definition, Count)

    def text(self, value: object) -> str:
        return "" if value is None else self.definition.text(value)

    def shown(self, value: object) -> str:
        return self.definition.shown(value)

    def read(self, text: str) -> Any:
        try:
            return self.definition.parsed(text if text.strip() or not self.definition.none else "none")
        except ValueError as error:
            raise InvalidArgument(f"{self.name}: {error}") from None


EDITOR = tuple(EditorField(name, definition) for name, definition in POLICY.items())
LIMITS = tuple(EditorField(name, SETTINGS[name]) for name in ("max_concurrency", "max_cost_out", "rate"))
"""The fields of a limit, of one queue or of several that share it."""
_FIELDS = {field.name: field for field in EDITOR}


@dataclass(frozen=True, slots=True)
class Change:
    """The change that a form requests.

    Attributes:
        plan: The plan to follow; None: no plan; UNSET: the same as before.
        reset: Fields that lose their own value. The plan decides them, or without a plan, the queue's defaults do.
    """

    fields: Mapping[str, Any]
    plan: str | Unset | None = UNSET
    reset: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.inputs)

    @property
    def inputs(self) -> set[str]:
        plan = () if self.plan is UNSET else ("plan",)
        return {*self.fields, *plan, *(f"{_RESET}{name}" for name in self.reset)}

    @property
    def arguments(self) -> dict[str, Any]:
        return {**self.fields, "plan": self.plan, "reset": self.reset}


def changed_fields(before: object, form: Mapping[str, str], fields: Sequence[EditorField] = EDITOR) -> dict[str, Any]:
    """Return the new values of the *fields* that a form changes; raise InvalidArgument if a value is refused."""
    # Texts are compared, not values: the form shows some values rounded, and sends the rounded text if nobody edits it.
    given = {
        field.name: field.read(form[field.name])
        for field in fields
        if field.name in form and form[field.name].strip() != field.text(getattr(before, field.name))
    }
    checked = ChannelPolicy(**given)
    return {name: value for name in given if (value := getattr(checked, name)) != getattr(before, name)}


def change_of(stats: ChannelStats, form: Mapping[str, str]) -> Change:
    """Return a form's change; raise InvalidArgument if a value is wrong, or if a field is both changed and reset."""
    fields = changed_fields(stats, form)
    reset = tuple(name for name in POLICY if f"{_RESET}{name}" in form and name in stats.overridden)
    if both := [name for name in reset if name in fields]:
        raise InvalidArgument(f"{both[0]} is both changed and reset; do one of them")
    wanted = form.get("plan", "")
    plan = None if wanted == NO_PLAN else wanted.removeprefix(_PLAN) if wanted.startswith(_PLAN) else stats.plan
    return Change(fields, UNSET if plan == stats.plan else plan, reset)


def policy_after(
    stats: ChannelStats, change: Change, plans: Mapping[str, PlanInfo], defaults: ChannelPolicy | None
) -> ChannelPolicy:
    """Return the policy that a tenant would have after a change; raise InvalidArgument if *plans* lack the new plan.

    Without a plan, the fields that the change resets get the values of *defaults*; None stands for ``ChannelPolicy()``.
    """
    plan = plans.get((stats.plan if change.plan is UNSET else change.plan) or "")
    if isinstance(change.plan, str) and plan is None:
        raise InvalidArgument(f"queue {stats.queue!r} has no plan {change.plan!r}; make it first")
    own = {*stats.overridden, *change.fields} - {*change.reset}
    values = {name: getattr(stats, name) for name in POLICY}
    if plan is not None:
        values |= {name: getattr(plan.policy, name) for name in values if name not in own}
    else:
        values |= {name: getattr(defaults or ChannelPolicy(), name) for name in change.reset}
    return ChannelPolicy(**values | dict(change.fields))


def differences(before: PolicyFields, after: PolicyFields) -> dict[str, Any]:
    return {name: getattr(after, name) for name in _FIELDS if getattr(before, name) != getattr(after, name)}


def changes_shown(stats: ChannelStats, change: Change, after: ChannelPolicy) -> list[tuple[str, str, str]]:
    shown = []
    if change.plan is not UNSET:
        shown.append(("plan", stats.plan or "none", change.plan or "none"))
    changed = differences(stats, after)
    shown += fields_shown(stats, changed)
    decides = "by the plan" if (stats.plan if change.plan is UNSET else change.plan) else "as the queue says"
    return shown + [(name, "its own", decides) for name in change.reset if name not in changed]


def fields_shown(before: object, changed: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    return [(name, _FIELDS[name].shown(getattr(before, name)), _FIELDS[name].shown(changed[name])) for name in changed]


def effect(queue: QueueFigures, stats: ChannelStats, changes: Mapping[str, Any]) -> list[str]:
    said = []
    if "weight" in changes:
        competes = any(one.channel == stats.channel and one.competes for one in queue.contention.channels)
        others = max(queue.contention.rival_weight - (stats.weight if competes else 0), 0)
        before, after = stats.weight / (others + stats.weight), changes["weight"] / (others + changes["weight"])
        said.append(
            f"While it competes as now, the share that it is entitled to goes from {percent_text(before)} to "
            f"{percent_text(after)}."
        )
    if "max_concurrency" in changes:
        most = changes["max_concurrency"]
        if most is None:
            said.append("Its own limit no longer holds it up.")
        elif stats.leased >= most:
            said.append(
                f"{stats.leased:,} of its messages are out: no more are delivered until fewer than {most:,} are."
            )
        else:
            said.append(f"{most - stats.leased:,} more of its messages may be out than are now.")
    if "rate" in changes:
        rate = changes["rate"]
        if rate is None:
            said.append("No rate holds it up any more.")
        elif stats.ready and rate.of == "messages":
            said.append(
                f"Its {stats.ready:,} ready messages take at least {format_duration(stats.ready * rate.interval)}."
            )
    if changes.get("max_backlog") is not None and stats.backlog >= changes["max_backlog"]:
        said.append(f"It has {stats.backlog:,} undelivered messages: further enqueues are refused or dropped at once.")
    said += [f"{_FIELDS[name].label} holds {POLICY[name].holds}." for name in changes if name not in _COUNTED]
    return said
