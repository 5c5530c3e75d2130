"""The model of one call of enqueue: what becomes of each message, who is passed over, replaced, turned away."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy_fairqueue import ChannelFull, DuplicateMessage
from sqlalchemy_fairqueue.values.messages import EnqueueOutcome
from tests.model.books import Channel, Message
from tests.model.transactions import Plan, Scene
from tests.model.work import Addition, Holder, Wanted


@dataclass(slots=True)
class EnqueueModel:
    """The messages of a call, in their two passes: those that replace come last, all of them locked together.

    ``later``: the messages that the transaction ends after this call. ``cancelled``: those of them that it was asked to
    cancel, each with how many of the messages were asked for before.
    """

    scene: Scene
    found: Plan
    wanted: list[Wanted]
    later: frozenset[int]
    cancelled: Mapping[int, int] = field(default_factory=dict)
    rooms: dict[str, int | None] = field(default_factory=dict)
    postponed: list[tuple[int, Wanted]] = field(default_factory=list)
    spread: bool = False
    failed: tuple[tuple[str, str], int] | None = None

    def run(self) -> None:
        """Say what the call does to the plan."""
        for one in self.wanted:
            self.scene.make(one.channel, self.found, self.scene.brought)
            if one.key is not None:
                self.found.waits |= self.scene.others.touches_key(self.scene.books, one.channel, one.key)
        prioritised = any(one.when.priority is not None for one in self.wanted)
        self.spread = any(
            one.key is not None
            or self._room(one.channel) is not None
            or (prioritised and self.scene.policy(one.channel, self.found).priority_aging is not None)
            for one in self.wanted
        )
        in_order = sorted(enumerate(self.wanted, 1), key=lambda numbered: (*numbered[1].position, numbered[0]))
        for ordinal, one in in_order:
            self._first(ordinal, one)
        if self.postponed:
            self.found.waits |= bool(self.later & self.scene.others.messages)
        for ordinal, one in self.postponed:
            self._second(ordinal, one)

    def _room(self, channel: str) -> int | None:
        if channel not in self.rooms:
            most = self.scene.policy(channel, self.found).max_backlog
            waiting = len(self.scene.books.of_channel(channel))
            waiting += sum(one.wanted.channel == channel and one.outcome == "created" for one in self.scene.own.added)
            self.rooms[channel] = None if most is None else most - waiting + self.scene.hidden.get(channel, 0)
        return self.rooms[channel]

    def _first(self, ordinal: int, one: Wanted) -> None:
        holder = None if one.key is None else self.scene.holder(one.channel, one.key, self.found)
        if holder is None:
            self._add(ordinal, one)
        elif one.on_duplicate == "replace" or (self.postponed and self.postponed[-1][1].position == one.position):
            self.postponed.append((ordinal, one))
        else:
            self._note(ordinal, one, "duplicate", holder)

    def _second(self, ordinal: int, one: Wanted) -> None:
        assert one.key is not None
        holder = self.scene.holder(one.channel, one.key, self.found)
        assert holder is not None
        effects = self.found.effects
        if isinstance(holder, Message):
            effects.messages.add(holder.id)
        if one.on_duplicate != "replace":
            self._note(ordinal, one, "duplicate", holder)
        elif isinstance(holder, Wanted) or holder.lease_id is None:
            self._note(ordinal, one, "replaced", holder)
        else:
            room = self._room(one.channel)
            if room is None or room > 0:
                effects.unkeyed.add(holder.id)
            self._add(ordinal, one)

    def _add(self, ordinal: int, one: Wanted) -> None:
        room = self._room(one.channel)
        if room is None or room > 0:
            self._note(ordinal, one, "created", None)
            self.rooms[one.channel] = None if room is None else room - 1
            return
        policy = self.scene.policy(one.channel, self.found)
        if policy.on_full == "drop":
            self._note(ordinal, one, "dropped", None)
        else:
            self._fail(ordinal, one, ChannelFull, channel=one.channel, max_backlog=policy.max_backlog)

    def _note(self, ordinal: int, one: Wanted, outcome: EnqueueOutcome, holder: Holder) -> None:
        if outcome == "duplicate" and one.on_duplicate == "raise":
            known = {} if isinstance(holder, Wanted) or holder is None else {"message_id": holder.id}
            self._fail(ordinal, one, DuplicateMessage, channel=one.channel, key=one.key, **known)
            return
        if isinstance(holder, Message) and outcome != "created" and ordinal > self.cancelled.get(holder.id, ordinal):
            told = {"channel": one.channel, "key": one.key, "message_id": holder.id, "cancelled": True}
            self._fail(ordinal, one, DuplicateMessage, **told)
            return
        at = self.scene.now + one.when.delay
        if not one.when.delay:
            at += ordinal - len(self.wanted) if self.spread else 0
            at = Channel(self.scene.policy(one.channel, self.found)).position(at, one.when.priority)
        bounded = self._room(one.channel) is not None
        self.found.effects.added.append(Addition(one, outcome, holder, at, self.scene.now, bounded))

    def _fail(self, ordinal: int, one: Wanted, error: type[Exception], **tells: object) -> None:
        # Of several the first by channel and key is told, whichever pass found it.
        place = (one.position, ordinal)
        if self.failed is None or place < self.failed:
            self.failed = place
            self.found.error, self.found.tells = error, tells
