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
    check_duration,
    check_field_names,
    check_name,
    policy_changes,
    policy_fields,
)

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.values import PolicyChanges, QueueLimits, Rate

_DAY = timedelta(days=1)
_MICROSECOND = timedelta(microseconds=1)
_DEFAULT_RETENTION = timedelta(days=30)


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


def checked_history_retention(given: timedelta | Unset | None) -> timedelta | None:
    """The time to keep the history; None: as it is."""
    # The database takes None for: as it is.
    if given is UNSET:
        return None
    if given is None:
        return _DEFAULT_RETENTION
    return check_duration("history_retention", given, _DAY)


def check_history(history: object) -> None:
    """Check that *history* is a bool or None."""
    if history is not None and not isinstance(history, bool):
        raise InvalidArgument(f"history is {history!r:.80}; say True or False")


def checked_results(retention: timedelta | None) -> timedelta | None:
    """For how long results are kept; None: not at all."""
    return None if retention is None else check_duration("results", retention, _MICROSECOND)


def checked_idle_time(after: timedelta | None) -> timedelta | None:
    """The idle time after which channels are forgotten; None: never."""
    return None if after is None else check_duration("forget_channels_after", after, _MICROSECOND)


def dead_letter_retentions(given: object) -> list[tuple[str | None, timedelta | None]]:
    """Retentions by kind, in the order of the kinds; kind None: of all kinds without one."""
    if not isinstance(given, Mapping):
        if given is not None:
            check_duration("dead_letter_retention", given, _MICROSECOND)
        return [(None, cast("timedelta | None", given))]
    for kind, retention in given.items():
        if kind is not None:
            check_name("kind of dead_letter_retention", kind)
        if retention is not None:
            check_duration(f"dead_letter_retention of kind {kind!r:.80}", retention, _MICROSECOND)
    return sorted(given.items(), key=lambda item: item[0] or "")
