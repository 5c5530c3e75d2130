"""Changes of configuration, and the locks that they share with other work.

A transaction that has a change and further operations locks the rows of queues first, then plans, state rows of
channels, keys, and finally messages by id. Since transactions keep to this order, they do not deadlock.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.database.calls import Call, Target, call
from sqlalchemy_fairqueue.database.configuration import channel_changes_json, policy_json, settings_json
from sqlalchemy_fairqueue.database.schedules import ScheduleDefinition, schedule_call
from sqlalchemy_fairqueue.unit_of_work.operations import CHANGES, ENQUEUES, REMOVALS, SCHEDULES, SETTINGS
from sqlalchemy_fairqueue.values.policies import UNSET, PolicyChanges, Unset

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.unit_of_work.operations import ReceiptUpdate, Share
    from sqlalchemy_fairqueue.values.messages import PurgeReceipt
    from sqlalchemy_fairqueue.values.settings import QueueChanges, QueueLimits

    Send = Callable[[Connection], object]

# The order of locks within a queue and phase: shared limits, plans, the queue and its channels, and finally the
# leased messages of all channels.
_LIMIT, _PLAN, _CHANNEL, _LEASED = range(4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of a queue, a channel, a plan, a shared limit or a schedule.

    Attributes:
        lock_key: Orders the changes of a queue that are sent in one phase. Changes with the same key keep their order.
        used_plan: The plan that a channel shall follow.
        channel: The channel whose state row the change locks.
        makes: If not None, a missing channel is created. The channel gets the queue's defaults or, if the queue has
            none, this policy (JSON).
        limits: Whether the change can set a limit of the channel or queue, so that leased messages must be counted.
    """

    target: Target
    phase: int
    lock_key: tuple[int | str, ...]
    send: Send
    locks_queue: bool = False
    changed_plan: str | None = None
    used_plan: str | None = None
    channel: str | None = None
    makes: str | None = None
    limits: bool = False
    receipt: PurgeReceipt | None = None


def configure(target: Target, changes: QueueChanges) -> Change:
    """Return a change of settings of a queue. For the settings in QueueLimits, call :func:`limit` instead."""
    settings = settings_json(changes)
    return _of(target, None, target.call("fq_set_queue", "configure", settings=settings, policy=target.policy).rows)


def configure_channel(
    target: Target,
    channel: str,
    changes: PolicyChanges,
    *,
    plan: str | Unset | None = UNSET,
    reset: tuple[str, ...] = (),
) -> Change:
    """Return a change of a channel's policy, which creates a missing channel.

    *plan* is the plan that the channel shall follow. None means no plan; UNSET leaves the channel's plan as it is.
    *reset* names the fields that the channel shall take from its plan again or, without a plan, from the defaults.
    """
    call = target.call(
        "fq_configure_channel",
        "configure",
        channel=channel,
        changes=channel_changes_json(changes, plan, reset),
        policy=target.policy,
        notify=target.notify,
    )
    used_plan = plan if isinstance(plan, str) else None
    counted = {"max_concurrency", "max_cost_out"}
    # A field that is changed and reset has the changed value.
    given = {name for name, value in changes.items() if value is not None}.union(set(reset).difference(changes))
    return Change(
        target=target,
        phase=CHANGES,
        lock_key=(_CHANNEL, channel),
        send=call.rows,
        used_plan=used_plan,
        channel=channel,
        makes=target.policy or "{}",
        limits=used_plan is not None or not counted.isdisjoint(given),
    )


def limit(target: Target, changes: QueueLimits) -> Change:
    call = target.call("fq_limit_queue", "limit", changes=settings_json(changes), notify=target.notify)
    return Change(
        target=target,
        phase=CHANGES,
        lock_key=(_LEASED,),
        send=call.rows,
        locks_queue=True,
        limits=any(value is not None for value in changes.values()),
    )


def configure_limit(target: Target, name: str, changes: PolicyChanges | None) -> Change:
    of_limit = partial(Change, target=target, lock_key=(_LIMIT, name))
    if changes is None:
        removal = call(target.schema, "fq_remove_limit", f"remove limit {name!r}", name=name)
        return of_limit(phase=REMOVALS, send=removal.rows)
    limits = policy_json(changes)
    change = call(target.schema, "fq_configure_limit", f"configure limit {name!r}", name=name, changes=limits)
    return of_limit(phase=SETTINGS, send=change.rows)


def configure_plan(target: Target, name: str, changes: PolicyChanges | None) -> Change:
    of_plan = partial(Change, target=target, lock_key=(_PLAN, name), locks_queue=True, changed_plan=name)
    if changes is None:
        removal = target.call("fq_remove_plan", f"remove plan {name!r} of", name=name)
        return of_plan(phase=REMOVALS, send=removal.rows)
    doing, policy = f"configure plan {name!r} of", policy_json(changes)
    change = target.call("fq_configure_plan", doing, name=name, changes=policy, notify=target.notify)
    return of_plan(phase=SETTINGS, send=change.rows)


def pause(target: Target, channel: str | None, *, new: bool = False) -> Change:
    call = target.call("fq_pause", "pause", channel=channel, paused=True, new=new, notify=False)
    return _of(target, channel, call.value, makes="{}" if new else None)


def resume(target: Target, channel: str | None) -> Change:
    call = target.call("fq_pause", "resume", channel=channel, paused=False, new=False, notify=target.notify)
    return _of(target, channel, call.value)


def purge(target: Target, channel: str, which: Mapping[str, Any], receipt: PurgeReceipt) -> Change:
    call = target.call("fq_purge_channel", "purge", limit=None, **which)
    return _of(target, channel, call.value, receipt=receipt)


def set_schedule(target: Target, definition: ScheduleDefinition) -> Change:
    send = schedule_call(target, definition).rows
    return _of_schedule(target, definition.message.message.channel, definition.name, send)


def remove_schedule(target: Target, channel: str, name: str) -> Change:
    removal = target.call("fq_remove_schedule", f"remove schedule {name!r} of", channel=channel, name=name)
    return _of_schedule(target, channel, name, removal.rows)


def pause_schedule(target: Target, channel: str, name: str, *, paused: bool) -> Change:
    doing = f"{'pause' if paused else 'resume'} schedule {name!r} of"
    call = target.call("fq_pause_schedule", doing, channel=channel, name=name, paused=paused)
    return _of_schedule(target, channel, name, call.rows)


def _of(
    target: Target,
    channel: str | None,
    send: Send,
    makes: str | None = None,
    receipt: PurgeReceipt | None = None,
) -> Change:
    if channel is None:
        return Change(target=target, phase=SETTINGS, lock_key=(_CHANNEL,), send=send, locks_queue=True)
    key = (_CHANNEL, channel)
    return Change(target=target, phase=CHANGES, lock_key=key, send=send, channel=channel, makes=makes, receipt=receipt)


def _of_schedule(target: Target, channel: str, name: str, send: Send) -> Change:
    return Change(target=target, phase=SCHEDULES, lock_key=(channel, name), send=send)


def send_changes(shares: Sequence[Share], phase: int) -> list[ReceiptUpdate]:
    updates: list[ReceiptUpdate] = []
    for share in shares:
        for change in sorted(share.phases.get(phase, ()), key=lambda change: change.lock_key):
            answer = change.send(share.link.connection)
            if change.receipt is not None:
                updates.append(partial(setattr, change.receipt, "purged", answer))
    return updates


def changes_of(share: Share) -> list[Change]:
    """Return all changes of a queue, except the changes of schedules."""
    return [change for phase in (SETTINGS, CHANGES, REMOVALS) for change in share.phases.get(phase, ())]


def lock_queues(shares: Sequence[Share]) -> None:
    """Lock queues whose settings, limits or plans change. Then lock each plan that is changed, removed or assigned."""
    for share in shares:
        if any(change.locks_queue for change in changes_of(share)):
            share.target.call("fq_lock_queue", "lock", deliveries=False).rows(share.link.connection)
    for share in shares:
        changes = changes_of(share)
        changed = [change.changed_plan for change in changes if change.changed_plan is not None]
        used = [change.used_plan for change in changes if change.used_plan is not None]
        if changed or used:
            share.target.call("fq_lock_plans", "lock plans of", removed=changed, used=used).rows(share.link.connection)


def lock_channels(shares: Sequence[Share]) -> None:
    """Keep dequeues out of queues with new limits. Then lock each change's channel; ``makes`` creates a missing one."""
    for share in shares:
        if any(change.limits and change.channel is None for change in share.phases.get(CHANGES, ())):
            share.target.call("fq_lock_queue", "stop", deliveries=True).rows(share.link.connection)
        channels: dict[str, str | None] = {}
        for change in share.phases.get(CHANGES, ()):
            # If several changes would create the channel, the first one's policy wins.
            if change.channel is not None and channels.get(change.channel) is None:
                channels[change.channel] = change.makes
        enqueues = share.phases.get(ENQUEUES, [])
        for channel in {enqueue.message.channel for enqueue in enqueues}:
            # The enqueues are sent before the changes, so a new channel gets the policy of the enqueues.
            if channels.get(channel) is not None:
                channels[channel] = enqueues[0].target.policy or "{}"
        if channels:
            doing, policies = f"lock {len(channels)} channels of", list(channels.values())
            call = share.target.call("fq_lock_channels", doing, names=list(channels), policies=policies)
            call.rows(share.link.connection)


def leased_messages(share: Share) -> list[int]:
    """Return ids of leased messages that new limits count. First call :func:`lock_channels`, which stops dequeues."""
    connection, target = share.link.connection, share.target
    limits = [change for change in share.phases.get(CHANGES, ()) if change.limits]
    found: list[int] = []
    if limited := [change.channel for change in limits if change.channel is not None]:
        found += _leased_without_slot(target, slot=1, channels=limited).value(connection)
    if len(limited) < len(limits):
        found += _leased_without_slot(target, slot=2, channels=None).value(connection)
    return found


def _leased_without_slot(target: Target, *, slot: int, channels: list[str] | None) -> Call:
    return target.call("fq_leased_without_slot", "find the leased messages of", slot=slot, channels=channels)
