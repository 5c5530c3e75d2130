"""The model of what changes how the queue is served: policies, pauses, limits, purges."""

from collections.abc import Iterable
from dataclasses import replace

from tests.model.books import QueueLimits
from tests.model.transactions import Plan, Scene
from tests.model.work import Configured, Defaulted, Limited, Paused, Purged, Recorded, Wanted, Work

Configuration = Configured | Defaulted | Paused | Recorded | Limited | Purged


def hold(scene: Scene, works: list[Work], found: Plan) -> frozenset[int] | None:
    """Say what a transaction with configurations and other work locks first.

    Returns the messages that new limits count; None: there are no configurations.
    """
    configurations = sorted((one for one in works if isinstance(one, Configuration)), key=_lock_order)
    if not configurations:
        return None
    for work in configurations:
        if getattr(work, "channel", None) is None:
            _lock_queue(scene, found)
            if isinstance(work, Defaulted) and not any(isinstance(one, Wanted) for one in works):
                # What is made now takes them.
                found.effects.defaults.append(work.policy)
    for work in configurations:
        _hold_channel(scene, work, works, found)
    counted = frozenset[int]()
    for work in configurations:
        if isinstance(work, Configured) and work.sets_limit:
            counted |= _marked(scene, 1, work.channel)
        elif isinstance(work, Limited) and _limits(scene, work, found).limited:
            counted |= _marked(scene, 2)
    return counted


def _hold_channel(scene: Scene, work: Work, works: list[Work], found: Plan) -> None:
    channel = getattr(work, "channel", None)
    if channel is None:
        return
    if isinstance(work, Configured) or (isinstance(work, Paused) and work.paused):
        filled = any(isinstance(one, Wanted) and one.channel == channel for one in works)
        scene.make(channel, found, scene.brought if isinstance(work, Configured) or filled else None)
    if scene.knows(channel, found):
        _lock_state(scene, channel, found)


def administer(scene: Scene, works: list[Work], found: Plan) -> None:
    """Say what configurations do to the plan: what is the queue's first, then channel by channel, its limit last."""
    configurations = [one for one in works if isinstance(one, Configuration)]
    for work in sorted(configurations, key=_lock_order):
        match work:
            case Configured():
                _configure(scene, work, found)
            case Paused():
                _pause(scene, work, found)
            case Recorded():
                _lock_queue(scene, found)
                found.effects.recorded.append(work)
            case Defaulted():
                _lock_queue(scene, found)
                found.effects.defaults.append(work.policy)
            case Limited():
                _limit(scene, work, found)
            case Purged():
                _purge(scene, work, found)


def _lock_order(work: Work) -> tuple[bool, str]:
    return isinstance(work, Limited), getattr(work, "channel", None) or ""


def _lock_queue(scene: Scene, found: Plan) -> None:
    # Whether a queue without a row waits is not asked: it is left alone while another transaction changes it.
    found.waits |= scene.others.queue
    found.effects.queue = True


def _lock_state(scene: Scene, channel: str, found: Plan) -> None:
    found.waits |= channel in scene.others.states
    found.effects.states.add(channel)


def _configure(scene: Scene, work: Configured, found: Plan) -> None:
    scene.make(work.channel, found, scene.brought)
    _lock_state(scene, work.channel, found)
    out = _marked(scene, 1, work.channel) if work.sets_limit else frozenset[int]()
    out = _mark(scene, (*scene.own.configured, *found.effects.configured), out, found)
    found.effects.configured.append(replace(work, marked=out))


def _marked(scene: Scene, slot: int, channel: str | None = None) -> frozenset[int]:
    """The messages of a channel, or of all, that are out without a slot of that kind, as this transaction sees them."""
    out = (one for one in scene.books.messages.values() if one.lease_id is not None and not one.slots & slot)
    found = frozenset(one.id for one in out if channel in {None, one.channel})
    return found - scene.own.ended.keys() - scene.own.returned.keys() - scene.own.purged


def _mark(scene: Scene, earlier: Iterable[Configured | Limited], out: frozenset[int], found: Plan) -> frozenset[int]:
    """Lock the messages that get a slot, but for those that such work has given one; which they are."""
    out -= {one for each in earlier for one in each.marked}
    found.waits |= bool(out & scene.others.messages)
    found.effects.messages |= out
    return out


def _pause(scene: Scene, work: Paused, found: Plan) -> None:
    if work.channel is None:
        before = [one.paused for one in (*scene.own.paused, *found.effects.paused) if one.channel is None]
        # To resume what is not paused takes no lock.
        if work.paused or [scene.books.paused, *before][-1]:
            _lock_queue(scene, found)
        found.effects.paused.append(work)
    elif work.paused or scene.knows(work.channel, found):
        scene.make(work.channel, found)
        _lock_state(scene, work.channel, found)
        found.effects.paused.append(work)


def _limits(scene: Scene, work: Limited | None, found: Plan) -> QueueLimits:
    """The limits of the queue, after a change if there is one, as the transaction sees them."""
    limits = scene.books.limits
    for each in (*scene.own.limited, *found.effects.limited, *([] if work is None else [work])):
        limits = each.after(limits)
    return limits


def _limit(scene: Scene, work: Limited, found: Plan) -> None:
    found.waits |= scene.others.queue_state
    _lock_queue(scene, found)
    if not _limits(scene, None, found).limited:
        # Without a limit, whoever takes messages has the state of a channel.
        found.waits |= bool(scene.books.channels.keys() & scene.others.states)
        found.effects.states |= scene.books.channels.keys()
    out = _marked(scene, 2) if _limits(scene, work, found).limited else frozenset[int]()
    out = _mark(scene, (*scene.own.limited, *found.effects.limited), out, found)
    found.effects.limited.append(replace(work, marked=out))
    found.effects.queue_state = found.effects.gate = True


def _purge(scene: Scene, work: Purged, found: Plan) -> None:
    if not scene.knows(work.channel, found):
        found.effects.purges.append((work, 0))
        return
    _lock_state(scene, work.channel, found)
    seen = scene.view(found)
    committed = {
        one.id
        for one in scene.books.messages.values()
        if one.channel == work.channel and (one.lease_id is None or one.id in seen.returned)
    }
    committed -= seen.ended.keys() | seen.purged | scene.others.messages
    redriven = {one for one in seen.redriven if scene.books.dead[one].channel == work.channel} - seen.purged
    new = {one.wanted.number for one in seen.added if one.wanted.channel == work.channel and one.outcome == "created"}
    new -= seen.purged_new
    found.effects.purged |= committed | redriven
    found.effects.purged_new |= new
    found.effects.messages |= committed
    found.effects.purges.append((work, len(committed) + len(redriven) + len(new)))
