"""Predictions of what work does when a transaction sends it while others are open.

``plan`` takes the work and the locks of other transactions. It returns the effects of the work, the error that the
work raises, or that the work would wait for another transaction. The machine never sends work that would wait.
"""

from dataclasses import replace
from typing import Literal

from sqlalchemy_fairqueue import ChannelPolicy, LeaseLost, MessageCancelled
from sqlalchemy_fairqueue.errors import LockOrderError, UnknownGroup
from sqlalchemy_fairqueue.unit_of_work.operations import Verb
from tests.model.administration_model import administer, hold
from tests.model.books import Outcome
from tests.model.enqueue_model import EnqueueModel
from tests.model.transactions import Plan, Scene, Transaction
from tests.model.work import Cancelled, Grouped, Settled, Wanted, Work
from tests.model.world import TICK

Ending = Literal["completed", "dead", "cancelled", "returned"]


def plan(scene: Scene, own: Transaction, works: list[Work]) -> Plan:
    """What sending *works* in transaction *own* does.

    Waits that are predicted: the first use of a channel that another transaction is making; a key whose message another
    transaction has added, ended or changed; a message, or a channel's state, that another transaction has locked.
    """
    found = Plan()
    wanted = [work for work in works if isinstance(work, Wanted)]
    ends = [work for work in works if isinstance(work, Settled | Cancelled)]
    least = min((one.position for one in wanted), default=None)
    if least is not None and (own.settled or (own.furthest is not None and least < own.furthest)):
        found.error = LockOrderError
        return found
    adders = [one.adder.message_id for one in wanted if one.adder is not None]
    later = frozenset([*(one.message_id for one in ends), *adders])
    found.effects.grouped += [one for one in works if isinstance(one, Grouped)]
    held = hold(scene, works, found) if len(works) > 1 else None
    if wanted:
        # Each channel that is made first looks at the clock, and whoever writes its policy does again.
        looks = sum(1 if policy == ChannelPolicy() else 2 for policy in found.effects.made.values())
        scene = replace(scene, now=scene.now + TICK * looks)
        EnqueueModel(scene, found, wanted, later | (held or frozenset()), _cancelled(works)).run()
        if found.error is not None:
            return found
    if held is not None or adders or len({type(work) for work in ends}) > 1:
        # Settlements and cancels, configurations, or members that add some: all of their messages are locked together
        # before one changes.
        found.waits |= bool((later | (held or frozenset())) & scene.others.messages)
    for one in wanted:
        _join(scene, one, found)
    if found.error is None:
        administer(scene, works, found)
        _end(scene, works, found)
    return found


def _end(scene: Scene, works: list[Work], found: Plan) -> None:
    for verb in Verb:
        same = {work.token: work for work in works if isinstance(work, Settled) and work.verb is verb}
        if _settle(scene, same, found):
            found.error = LeaseLost
    for work in works:
        if isinstance(work, Cancelled):
            _cancel(scene, work, found)


def _join(scene: Scene, work: Wanted, found: Plan) -> None:
    """A member adds others to its group, and only while its delivery is its holder's."""
    adder = work.adder
    if adder is None:
        return
    message = scene.books.messages.get(adder.message_id)
    if message is None or (message.lease_id, message.deliveries) != (adder.lease.id, adder.deliveries):
        found.error = LeaseLost
    elif message.group_id != work.group_id:
        found.error = UnknownGroup
    elif message.cancelled:
        found.error = MessageCancelled
    found.effects.messages.add(adder.message_id)


def _cancelled(works: list[Work]) -> dict[int, int]:
    """The messages to cancel, each with how many enqueues were asked for before."""
    found: dict[int, int] = {}
    before = 0
    for work in works:
        if isinstance(work, Wanted):
            before += 1
        elif isinstance(work, Cancelled):
            found.setdefault(work.message_id, before)
    return found


def _settle(scene: Scene, works: dict[tuple[int, int, int], Settled], found: Plan) -> bool:
    lost = False
    done, effects = scene.own, found.effects
    for (message_id, lease_id, deliveries), work in works.items():
        message = scene.books.messages.get(message_id)
        gone = any(message_id in ids for ids in (done.gone(), done.returned, effects.gone(), effects.returned))
        if gone or message is None or (message.lease_id, message.deliveries) != (lease_id, deliveries):
            lost = True
            continue
        found.waits |= message_id in scene.others.messages
        effects.messages.add(message_id)
        ending: Ending = _ending(work.verb, exhausted=message.attempts >= message.max_attempts)
        if ending != "completed" and (message.cancelled or message_id in done.withdrawn | effects.withdrawn):
            ending = "cancelled"
        if ending == "returned":
            effects.returned[message_id] = work
        else:
            effects.ended[message_id] = ending
        effects.attempts[message_id] = _outcome(work.verb, ending)
    return lost


def _ending(verb: Verb, *, exhausted: bool) -> Ending:
    if verb is Verb.COMPLETE:
        return "completed"
    return "dead" if verb is Verb.BURY or (verb is Verb.RETRY and exhausted) else "returned"


def _outcome(verb: Verb, ending: Ending) -> Outcome:
    match ending:
        case "returned":
            return "retried" if verb is Verb.RETRY else "released"
        case "dead":
            return "buried"
    return ending


def _cancel(scene: Scene, work: Cancelled, found: Plan) -> None:
    message = scene.books.messages.get(work.message_id)
    effects, seen = found.effects, scene.view(found)
    if earlier := [told for asked, told in effects.cancels if asked.message_id == work.message_id]:
        effects.cancels.append((work, earlier[0]))
        return
    if message is None or message.id in seen.gone():
        effects.cancels.append((work, "missing"))
        return
    found.waits |= message.id in scene.others.messages
    if message.lease_id is None or message.id in seen.returned:
        effects.returned.pop(message.id, None)
        effects.ended[message.id] = "cancelled"
        effects.cancels.append((work, "cancelled"))
    else:
        effects.cancels.append((work, "leased"))
        effects.withdrawn.add(message.id)
    effects.messages.add(message.id)
