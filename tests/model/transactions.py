"""The model of open transactions: what each has recorded and sent, what it has locked, what sending more would do.

``plan`` is the whole of it: given work and who has locked what, it says what the work does (effects), which error it
raises, or that it would wait for another transaction. The machine never does what would wait.
"""

from dataclasses import dataclass, field
from typing import Literal

from sqlalchemy_fairqueue import LeaseLost, LockOrderError
from sqlalchemy_fairqueue.unit_of_work import Verb
from tests.model.books import Books, Outcome
from tests.model.work import Addition, Cancelled, Configured, Effects, Limited, Paused, Recorded, Settled, Wanted, Work

Ending = Literal["completed", "dead", "cancelled", "returned"]


@dataclass(slots=True)
class Plan:
    """What sending work would do."""

    effects: Effects = field(default_factory=Effects)
    error: type[Exception] | None = None
    waits: bool = False


@dataclass(slots=True)
class Layer:
    """A transaction or savepoint."""

    recorded: list[Work] = field(default_factory=list)
    sent: Effects = field(default_factory=Effects)


@dataclass(slots=True)
class Transaction:
    """An open transaction: itself and its savepoints, and how far it is in the lock order."""

    layers: list[Layer] = field(default_factory=lambda: [Layer()])
    furthest: tuple[str, str] | None = None
    settled: bool = False

    @property
    def recorded(self) -> list[Work]:
        """All that waits for the commit."""
        return [work for layer in self.layers for work in layer.recorded]

    @property
    def sent(self) -> Effects:
        """All that was done."""
        found = Effects()
        for layer in self.layers:
            found.merge(layer.sent)
        return found

    def note_sent(self, works: list[Work], effects: Effects) -> None:
        """Work was sent at once."""
        self.layers[-1].sent.merge(effects)
        places = [work.position for work in works if isinstance(work, Wanted)]
        self.furthest = max(places, default=self.furthest)
        self.settled |= len(places) < len(works)

    def end_savepoint(self, *, keep: bool) -> None:
        """Release the innermost savepoint, or roll back to it."""
        layer = self.layers.pop()
        if keep:
            self.layers[-1].recorded += layer.recorded
            self.layers[-1].sent.merge(layer.sent)


def plan(books: Books, own: Transaction, others: Effects, works: list[Work], version: int) -> Plan:
    """What sending *works* in transaction *own* does while *others* are open.

    Waits that are predicted: the first use of a channel that another transaction is making; a key whose message another
    transaction has added, ended or changed; a message, or a channel's state, that another transaction has locked.
    """
    found, done = Plan(), own.sent
    wanted = [work for work in works if isinstance(work, Wanted)]
    least = min((one.position for one in wanted), default=None)
    if least is not None and (own.settled or (own.furthest is not None and least < own.furthest)):
        found.error = LockOrderError
        return found
    _enqueue(books, done, others, wanted, found)
    for work in works:
        _set(books, done, others, work, found)
    ends = [w for w in works if isinstance(w, Settled | Cancelled)]
    if version > 1 and len({type(w) for w in ends}) > 1:
        # Settlements and cancels: all of their messages are locked together before one changes.
        found.waits |= any(one.message_id in others.messages for one in ends)
    for verb in Verb:
        lost = _settle(
            books, done, others, {w.token: w for w in works if isinstance(w, Settled) and w.verb is verb}, found
        )
        if lost:
            found.error = LeaseLost
    for work in works:
        if isinstance(work, Cancelled):
            _cancel(books, done, others, work, found, flags=version > 1)
    return found


def _enqueue(books: Books, done: Effects, others: Effects, wanted: list[Wanted], found: Plan) -> None:
    keyed = any(one.key is not None for one in wanted)
    for ordinal, one in enumerate(wanted, 1):
        if one.channel not in books.channels and one.channel not in done.made:
            found.effects.made.add(one.channel)
            found.waits |= one.channel in others.made
        existing: int | Wanted | None = None
        if one.key is not None:
            earlier = [a.wanted for a in (*done.added, *found.effects.added) if a.existing is None]
            existing = next((w for w in earlier if (w.channel, w.key) == (one.channel, one.key)), None)
            holder = books.holder_of(one.channel, one.key)
            if existing is None and holder is not None:
                existing = None if holder.id in done.ended or holder.id in done.withdrawn else holder.id
            found.waits |= others.touches_key(books, one.channel, one.key)
        found.effects.added.append(Addition(one, ordinal, len(wanted), keyed, existing))


def _set(books: Books, done: Effects, others: Effects, work: Work, found: Plan) -> None:
    match work:
        case Configured():
            _configure(books, done, others, work, found)
        case Paused():
            _pause(books, done, others, work, found)
        case Recorded():
            found.waits |= others.queue
            found.effects.queue = True
            found.effects.recorded.append(work)
        case Limited():
            _limit(books, done, others, work, found)


def _configure(books: Books, done: Effects, others: Effects, work: Configured, found: Plan) -> None:
    if work.channel not in books.channels and work.channel not in done.made | found.effects.made:
        found.effects.made.add(work.channel)
        found.waits |= work.channel in others.made
    found.waits |= work.channel in others.states
    out: frozenset[int] = frozenset()
    if work.policy.max_concurrency is not None:
        marked = {one for earlier in (*done.configured, *found.effects.configured) for one in earlier.marked}
        out = _marked(books, done, 1) - marked
        out = frozenset(one for one in out if books.messages[one].channel == work.channel)
        found.waits |= bool(out & others.messages)
    found.effects.configured.append(Configured(work.channel, work.policy, out))
    found.effects.states.add(work.channel)
    found.effects.messages |= out


def _marked(books: Books, done: Effects, slot: int) -> frozenset[int]:
    """The messages that are out without a slot of that kind, as this transaction sees them."""
    out = (one.id for one in books.messages.values() if one.lease_id is not None and not one.slots & slot)
    return frozenset(out) - done.ended.keys() - done.returned.keys()


def _pause(books: Books, done: Effects, others: Effects, work: Paused, found: Plan) -> None:
    if work.channel is None:
        # Whether a queue without a row waits is not asked: it is left alone while another transaction changes it.
        found.waits |= others.queue
        found.effects.queue = True
        found.effects.paused.append(work)
        return
    known = work.channel in books.channels or work.channel in done.made | found.effects.made
    if not known and not work.paused:
        return
    if not known:
        found.effects.made.add(work.channel)
        found.waits |= work.channel in others.made
    found.waits |= work.channel in others.states
    found.effects.states.add(work.channel)
    found.effects.paused.append(work)


def _limit(books: Books, done: Effects, others: Effects, work: Limited, found: Plan) -> None:
    found.waits |= others.queue or others.queue_state
    out: frozenset[int] = frozenset()
    if work.most is not None:
        out = _marked(books, done, 2) - {one for earlier in done.limited for one in earlier.marked}
        found.waits |= bool(out & others.messages)
    found.effects.limited.append(Limited(work.most, out))
    found.effects.queue = found.effects.queue_state = found.effects.gate = True
    found.effects.messages |= out


def _settle(
    books: Books, done: Effects, others: Effects, works: dict[tuple[int, int, int], Settled], found: Plan
) -> bool:
    lost = False
    for (message_id, lease_id, deliveries), work in works.items():
        message = books.messages.get(message_id)
        effects = found.effects
        gone = any(message_id in ids for ids in (done.ended, done.returned, effects.ended, effects.returned))
        if gone or message is None or (message.lease_id, message.deliveries) != (lease_id, deliveries):
            lost = True
            continue
        found.waits |= message_id in others.messages
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


def _cancel(books: Books, done: Effects, others: Effects, work: Cancelled, found: Plan, *, flags: bool) -> None:
    message = books.messages.get(work.message_id)
    effects = found.effects
    view = Effects()
    view.merge(done)
    view.merge(effects)
    if message is None or message.id in view.ended:
        return
    if message.lease_id is None or message.id in view.returned:
        effects.returned.pop(message.id, None)
        effects.ended[message.id] = "cancelled"
    elif flags:
        effects.withdrawn.add(message.id)
    else:
        return
    found.waits |= message.id in others.messages
    effects.messages.add(message.id)
