"""Arguments of a queue's configuration, checked and converted to what operations record.

The methods of the queue document these arguments. Nothing here calls the database.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, cast

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.values import (
    UNSET,
    ChannelPolicy,
    Unset,
    check_choice,
    check_duration,
    check_field_names,
    check_name,
    policy_changes,
    policy_fields,
)

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.values import FairBy, PolicyChanges, QueueLimits, QueueSettings, Rate


def checked_plan(plan: object) -> str | None:
    """The plan of a channel or queue."""
    if plan is None:
        return None
    if not isinstance(plan, str):
        raise InvalidArgument(f"plan is {plan!r:.80}; give the name of a plan, or None for none")
    check_name("plan", plan)
    return plan


def queue_limits(
    max_concurrency: int | Unset | None, rate: Rate | str | Unset | None, limits: Collection[str] | Unset | None
) -> QueueLimits:
    """The limits of a queue that are given."""
    own: PolicyChanges = {}
    if max_concurrency is not UNSET:
        own["max_concurrency"] = max_concurrency
    if rate is not UNSET:
        own["rate"] = rate
    wanted = cast("QueueLimits", policy_changes("configure", None, own) if own else {})
    if limits is not UNSET:
        wanted["limits"] = _limit_names(limits)
    return wanted


def reset_fields(call: str, reset: object) -> tuple[str, ...]:
    """The fields of a policy to reset, in their order."""
    if reset == "all":
        return policy_fields()
    if isinstance(reset, str) or not isinstance(reset, Collection):
        raise InvalidArgument(f"reset is {reset!r:.80}; give names of fields as a list, such as ['weight'], or 'all'")
    check_field_names(f"reset of {call}", dict.fromkeys(map(str, reset)))
    return tuple(name for name in policy_fields() if name in reset)


def _limit_names(limits: object) -> list[str] | None:
    if limits is None:
        return None
    if isinstance(limits, str) or not isinstance(limits, Collection):
        raise InvalidArgument(f"limits is {limits!r:.80}; give the names of shared limits as a list, or None for none")
    names = list(limits)
    for name in names:
        check_name("limit", name)
    return names or None


def changed_defaults(defaults: object) -> PolicyChanges:
    """The fields of new channels that are given."""
    if isinstance(defaults, ChannelPolicy):
        return policy_changes("defaults", defaults, {})
    if not isinstance(defaults, Mapping):
        raise InvalidArgument(f"defaults is {defaults!r:.80}; give a ChannelPolicy, or a dict of the fields to change")
    return policy_changes("defaults", None, defaults)


def queue_settings(
    *,
    history: object,
    history_retention: timedelta | Unset | None,
    dead_letter_retention: object,
    results: timedelta | Unset | None,
    forget_channels_after: timedelta | Unset | None,
    fair_by: FairBy | None,
    default_plan: object,
) -> QueueSettings:
    """The settings of a queue that are given."""
    settings: QueueSettings = {}
    if history is not None:
        if not isinstance(history, bool):
            raise InvalidArgument(f"history is {history!r:.80}; say True or False")
        settings["history"] = history
    if not isinstance(history_retention, Unset):
        settings["history_retention"] = _checked_time("history_retention", history_retention, timedelta(days=1))
    if not isinstance(dead_letter_retention, Unset):
        settings |= _dead_letter_settings(dead_letter_retention)
    if not isinstance(results, Unset):
        settings["result_retention"] = _checked_time("results", results)
    if not isinstance(forget_channels_after, Unset):
        settings["forget_channels_after"] = _checked_time("forget_channels_after", forget_channels_after)
    if fair_by is not None:
        check_choice("fair_by", fair_by, ("messages", "cost", "seconds"))
        settings["fair_by"] = fair_by
    if not isinstance(default_plan, Unset):
        settings["default_plan"] = checked_plan(default_plan)
    return settings


def _checked_time(
    argument: str, value: timedelta | None, least: timedelta = timedelta(microseconds=1)
) -> timedelta | None:
    """For how long something is kept; None: as :meth:`Queue.configure` says of the argument."""
    return None if value is None else check_duration(argument, value, least)


def _dead_letter_settings(given: object) -> QueueSettings:
    """For how long dead letters are kept: of all kinds, or of the kinds of a mapping, where None means the others."""
    if not isinstance(given, Mapping):
        return {"dead_letter_retention": _checked_time("dead_letter_retention", cast("timedelta | None", given))}
    by_kind: dict[str, timedelta | None] = {}
    settings: QueueSettings = {"dead_letter_retention_by_kind": by_kind}
    for kind, retention in given.items():
        checked = _checked_time(f"dead_letter_retention of kind {kind!r:.80}", retention)
        if kind is None:
            settings["dead_letter_retention"] = checked
        else:
            check_name("kind of dead_letter_retention", kind)
            by_kind[kind] = checked
    return settings
