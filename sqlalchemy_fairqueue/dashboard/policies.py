"""Changes of a tenant's policy: read from a form, shown before they are made, with their effect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.cli.formats import format_duration
from sqlalchemy_fairqueue.dashboard.rendering import percent_text
from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.values import ChannelPolicy, Rate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy_fairqueue.figures import QueueFigures
    from sqlalchemy_fairqueue.values import ChannelStats

_COUNTS = ("max_concurrency", "weight", "max_backlog")


def changed_policy(stats: ChannelStats, form: Mapping[str, str]) -> dict[str, Any]:
    """The fields that a form changes.

    Raises:
        InvalidArgument: A value cannot be kept.
    """
    values: dict[str, Any] = {name: _count(name, form[name]) for name in _COUNTS if name in form}
    if "rate" in form:
        values["rate"] = Rate.parse(form["rate"]) if form["rate"].strip() else None
    if "on_full" in form:
        values["on_full"] = form["on_full"]
    checked = ChannelPolicy(**values)
    return {name: value for name in values if (value := getattr(checked, name)) != getattr(stats, name)}


def _count(name: str, text: str) -> int | None:
    words = text.strip().replace(",", "")
    if not words and name != "weight":
        return None
    if not (words.isascii() and words.isdecimal()):
        raise InvalidArgument(
            f"{name} is {text!r:.40}; give a whole number" + ("" if name == "weight" else ", or nothing")
        )
    return int(words)


def changes_shown(stats: ChannelStats, changes: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Each field with its value before and after."""
    return [(name, _text(getattr(stats, name)), _text(value)) for name, value in changes.items()]


def _text(value: object) -> str:
    return "no limit" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def effect(queue: QueueFigures, stats: ChannelStats, changes: Mapping[str, Any]) -> list[str]:
    """What the changes do now, in sentences."""
    said = []
    if "weight" in changes:
        others = max(queue.contention.rival_weight - stats.weight, 0) if _competes(queue, stats) else (
            queue.contention.rival_weight
        )  # fmt: skip
        before, after = stats.weight / (others + stats.weight), changes["weight"] / (others + changes["weight"])
        said.append(
            f"While it competes as now, the share that it is entitled to goes from {percent_text(before)} to "
            f"{percent_text(after)}."
        )
    if "max_concurrency" in changes:
        most = changes["max_concurrency"]
        if most is None:
            said.append("Its own limit no longer holds it up.")
        elif stats.current_concurrency >= most:
            said.append(
                f"{stats.current_concurrency:,} of its messages are out: no more are delivered until fewer than "
                f"{most:,} are."
            )
        else:
            said.append(f"{most - stats.current_concurrency:,} more of its messages may be out than are now.")
    if "rate" in changes:
        rate = changes["rate"]
        if rate is None:
            said.append("No rate holds it up any more.")
        elif stats.ready:
            said.append(
                f"Its {stats.ready:,} ready messages take at least {format_duration(stats.ready * rate.interval)}."
            )
    if changes.get("max_backlog") is not None and stats.backlog >= changes["max_backlog"]:
        said.append(f"It has {stats.backlog:,} undelivered messages: further enqueues are refused or dropped at once.")
    return said


def _competes(queue: QueueFigures, stats: ChannelStats) -> bool:
    return any(one.channel == stats.channel and one.entitled is not None for one in queue.tenants)
