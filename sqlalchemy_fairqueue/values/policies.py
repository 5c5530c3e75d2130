"""Channel policies, changes of them, and the marker for an argument that was not given."""

# ruff: noqa: RUF009 - the calls make fields
from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta  # noqa: TC003 - get_type_hints reads it
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, Unpack, cast

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.values.fields import (
    Choice,
    Count,
    Definition,
    Duration,
    Rate,
    RateOf,
    check_fields,
    definitions,
)

OnFull = Literal["raise", "drop"]

_NEXT_DEQUEUE = "from the next dequeue on"


class Unset(Enum):
    """The type of :data:`UNSET`."""

    UNSET = "unset"

    def __repr__(self) -> str:
        return self.name


UNSET: Final = Unset.UNSET
"""The default of arguments for which None is a value. It means that the argument was not given."""


# Without slots, since ChannelStats has this and another base, and only one of the two may have slots.
@dataclass(frozen=True, kw_only=True)
class PolicyFields:
    """The fields of a policy, for code that checks, sets, stores or shows them. ChannelPolicy explains each field."""

    max_concurrency: int | None = Count(
        help="The most leased messages of a channel at once, kept exactly.", none="no limit", holds=_NEXT_DEQUEUE
    ).field(None)
    max_cost_out: int | None = Count(
        help="The most that a channel's leased messages cost together. A message that costs more goes alone.",
        none="no limit",
        holds=_NEXT_DEQUEUE,
    ).field(None)
    rate: Rate | None = RateOf(
        help="The most messages, or the most cost, of a channel in a time: 10/s, '50/s, burst 10', 1000/min of cost.",
        none="no rate",
        holds=_NEXT_DEQUEUE,
    ).field(None)
    weight: int = Count(
        most=10_000, help="The channel's share beside others: 3 gets three times that of 1.", holds=_NEXT_DEQUEUE
    ).field(1)
    max_backlog: int | None = Count(
        help="The most undelivered messages of a channel, approximately.", none="no bound", refuses=True
    ).field(None)
    on_full: OnFull = Choice(
        words=("raise", "drop"), help="What an enqueue beyond max_backlog does: raise ChannelFull, or drop the message."
    ).field("raise")
    priority_aging: timedelta | None = Duration(
        help="The waiting time that outweighs one step of priority.",
        none="priorities come first",
        holds="for messages that become ready from then on",
    ).field(None)
    max_payload_bytes: int | None = Count(
        most=268_435_456,
        help="Most bytes of an encoded payload; an enqueue of a larger one is a PayloadError.",
        none="256 MB, as for every message",
        refuses=True,
    ).field(None)


POLICY: Final[Mapping[str, Definition]] = definitions(PolicyFields)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelPolicy(PolicyFields):
    """How a channel is served: its weight and its limits. None means no limit unless a field says otherwise.

    Attributes:
        max_concurrency: The most messages of the channel that consumers hold at once; no dequeue exceeds it.
        max_cost_out: The most that the leased messages cost together; the cost charged at delivery counts. A message
            that costs more by itself is delivered when no other message of the channel is leased.
        rate: The most messages, or the most cost, in a time: a :class:`Rate` or its text, such as "50/s".
        weight: The share of the service. While two channels have work, weight 3 gets three times the share of weight 1.
        max_backlog: The most undelivered messages of the channel; on_full decides about enqueues beyond it. Concurrent
            transactions may exceed it by what they enqueue. A full channel still takes back retries and releases.
        on_full: What an enqueue to a full channel does: "raise" ChannelFull; or "drop" and count the message.
        priority_aging: The wait that counts as much as one step of priority, 1 us to 365 days, so that urgent messages
            never starve others. With ten minutes, a message of priority 3 goes before ordinary messages that became
            ready less than 30 minutes before it. A change applies to messages that become ready afterwards. None: a
            higher priority always goes first.
        max_payload_bytes: The most bytes of an encoded payload. A larger one raises PayloadError whatever on_full says;
            on a session the COMMIT fails, and a bulk load fails as a whole. Existing messages stay. None: 256 MB.

    Example:
        >>> policy = ChannelPolicy(weight=3, max_concurrency=4, rate=Rate(10))
        >>> queue.configure_channel(engine, "customer-7", policy)
    """

    if TYPE_CHECKING:

        def __init__(self, **values: Unpack[PolicyChanges]) -> None: ...

    def __post_init__(self) -> None:
        check_fields(self)


class PolicyChanges(TypedDict, total=False):
    """Fields of a :class:`ChannelPolicy` to change; missing ones stay as they are. None lifts a limit."""

    max_concurrency: int | None
    max_cost_out: int | None
    rate: Rate | str | None
    weight: int
    max_backlog: int | None
    on_full: OnFull
    priority_aging: timedelta | None
    max_payload_bytes: int | None


RATE: Final = POLICY["rate"].columns("rate")


def rate_of_columns(columns: Mapping[str, Any]) -> Rate | None:
    rate: Rate | None = POLICY["rate"].value_of("rate", columns)
    return rate


def fields_of_columns(columns: Collection[str]) -> tuple[str, ...]:
    return tuple(name for name, one in POLICY.items() if not set(columns).isdisjoint(one.columns(name)))


def policy_values(columns: Mapping[str, Any]) -> dict[str, Any]:
    return {name: definition.value_of(name, columns) for name, definition in POLICY.items()}


def policy_changes(where: str, policy: object, changes: Mapping[str, Any]) -> PolicyChanges:
    """Return the fields to change: all fields of *policy*, or, if *policy* is None, the fields in *changes*.

    Each field is checked by itself; only the database can check the resulting policy. Errors name the call *where*.
    """
    if policy is None:
        if not changes:
            raise InvalidArgument(
                f"{where} has nothing to set; give the fields to change, such as max_backlog=500, or a ChannelPolicy, "
                "which replaces all of them"
            )
        checked = ChannelPolicy(**changes)
        return cast("PolicyChanges", {name: getattr(checked, name) for name in changes})
    if not isinstance(policy, ChannelPolicy):
        raise InvalidArgument(
            f"policy is {policy!r:.80}; give a ChannelPolicy, or fields of one by their names, such as max_backlog=500"
        )
    if changes:
        name, value = next(iter(changes.items()))
        raise InvalidArgument(
            f"{where} has a ChannelPolicy and {name}={value!r:.80}; a ChannelPolicy replaces all fields: "
            "give it alone, or only the fields to change"
        )
    return cast("PolicyChanges", {name: getattr(policy, name) for name in POLICY})


def reset_fields(where: str, reset: object) -> tuple[str, ...]:
    if reset == "all":
        return tuple(POLICY)
    if isinstance(reset, str) or not isinstance(reset, Collection):
        raise InvalidArgument(f"reset is {reset!r:.80}; give names of fields as a list, such as ['weight'], or 'all'")
    if unknown := [name for name in reset if name not in POLICY]:
        raise TypeError(f"reset of {where} has {unknown[0]!r:.80}, which is none of the fields {', '.join(POLICY)}")
    return tuple(name for name in POLICY if name in reset)
