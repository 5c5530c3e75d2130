"""The model of open transactions: what each has recorded, sent and locked. ``predictions`` says what more would do."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy_fairqueue import ChannelPolicy
from tests.model.books import Books, Message
from tests.model.work import Effects, Wanted, Work


@dataclass(slots=True)
class Plan:
    """What sending work would do. ``tells``: attributes of the error."""

    effects: Effects = field(default_factory=Effects)
    error: type[Exception] | None = None
    tells: dict[str, object] = field(default_factory=dict)
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
        positions = [work.position for work in works if isinstance(work, Wanted)]
        self.furthest = max(positions, default=self.furthest)
        self.settled |= len(positions) < len(works)

    def end_savepoint(self, *, keep: bool) -> None:
        """Release the innermost savepoint, or roll back to it."""
        layer = self.layers.pop()
        if keep:
            self.layers[-1].recorded += layer.recorded
            self.layers[-1].sent.merge(layer.sent)


@dataclass(frozen=True, slots=True)
class Scene:
    """What a transaction that sends work has before it.

    Attributes:
        books: What is committed.
        own: What the transaction has done.
        others: What the other open transactions have done and locked.
        now: The instant at which its first call will look at the clock.
        brought: The policy that its enqueues bring for channels that are new.
        hidden: How many messages of a channel its enqueues cannot know of, for their signals are no part of the sum.
    """

    books: Books
    own: Effects
    others: Effects
    now: int
    brought: ChannelPolicy
    hidden: Mapping[str, int]

    def knows(self, channel: str, found: Plan) -> bool:
        """Whether the transaction sees the channel."""
        return channel in self.books.channels or channel in self.own.made or channel in found.effects.made

    def make(self, channel: str, found: Plan, brought: ChannelPolicy | None = None) -> None:
        """The first use of a channel: a policy that was configured for the queue goes before what the call brings."""
        if self.knows(channel, found):
            return
        own = [*self.own.defaults, *found.effects.defaults]
        configured = own[-1] if own else self.books.defaults
        found.effects.made[channel] = configured or brought or ChannelPolicy()
        found.waits |= channel in self.others.made

    def policy(self, channel: str, found: Plan) -> ChannelPolicy:
        """The policy of a channel, as the transaction's enqueues see it: they come before its configurations."""
        known = self.books.channels.get(channel)
        return known.policy if known is not None else (self.own.made | found.effects.made)[channel]

    def view(self, found: Plan) -> Effects:
        """All that the transaction has done by now."""
        seen = Effects()
        seen.merge(self.own)
        seen.merge(found.effects)
        return seen

    def holder(self, channel: str, key: str, found: Plan) -> Message | Wanted | None:
        """Who holds a key, as the transaction sees it: a message that is committed, or one that it added itself."""
        seen = self.view(found)
        for one in reversed(seen.added):
            if (one.wanted.channel, one.wanted.key) == (channel, key) and one.outcome == "created":
                if one.wanted.number not in seen.purged_new:
                    return one.wanted
                break
        message = self.books.holder_of(channel, key)
        if message is None or message.id in seen.without_key():
            return None
        return message
