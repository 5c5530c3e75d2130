"""Base class of the machine's rules: the world, the books, and what a commit does to them."""

from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar

from hypothesis import event
from hypothesis.stateful import RuleBasedStateMachine, invariant

from sqlalchemy_fairqueue import ChannelPolicy
from sqlalchemy_fairqueue.unit_of_work.operations import Verb
from tests.model.books import Books, Channel, Group, Message
from tests.model.signals import Signals
from tests.model.turns import Turns
from tests.model.work import QUEUE, Addition, Effects, Grouped, Settled, Wanted
from tests.model.world import World

if TYPE_CHECKING:
    from sqlalchemy_fairqueue import Delivery
    from tests.model.transactions import Transaction


class Stage(RuleBasedStateMachine):
    """State of one example. ``world`` is given by the test that runs the machine."""

    world: ClassVar[World]
    tally: ClassVar[Counter[str]] = Counter()
    programs: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.programs["all"] += 1
        self.reached: set[str] = set()
        self.world.reset()
        self.books = Books()
        self.turns = Turns()
        self.signals = Signals()
        self.sessions: dict[int, Any] = {}
        self.open: dict[int, Transaction] = {}
        self.windows: dict[int, tuple[int, int]] = {}
        self.given: list[Delivery] = []
        self.awaited: set[int] = set()
        self.followups: dict[str, Grouped] = {}
        self.brought = ChannelPolicy()
        self.metered = False
        self.numbers = 0

    @property
    def queue(self) -> Any:
        """The queue through which the application and its administrators act, and the first consumer."""
        return self.world.queues[0]

    def saw(self, what: str) -> None:
        """Count what happened, to know what the programs reach."""
        event(what)
        self.tally[what] += 1
        if what not in self.reached:
            self.reached.add(what)
            self.programs[what] += 1

    def apply(self, effects: Effects) -> None:
        """A commit: the books take what it did, after a look at the rows that it left."""
        due: dict[int, int] = {}
        if effects.returned or effects.redriven:
            due = dict(self.world.rows("select id, dequeue_at from fq_message"))
        for name, policy in effects.made.items():
            self.books.channels[name] = Channel(policy)
        for grouped in effects.grouped:
            self.books.groups[grouped.id] = Group()
            self.followups[grouped.id] = grouped
        self._enqueue(effects)
        for message_id, outcome in effects.attempts.items():
            self.books.record(message_id, outcome)
        for message_id in effects.withdrawn & effects.ended.keys():
            self.books.withdraw(message_id)
        for message_id, how in effects.ended.items():
            self.books.end(message_id, how)
        for message_id, work in effects.returned.items():
            assert message_id in due, f"message {message_id} was to be given back, and is no longer there"
            self._give_back(message_id, work, due[message_id])
        self._redrive(effects, due)
        for message_id in effects.withdrawn & self.books.messages.keys():
            self.books.withdraw(message_id)
            self.books.messages[message_id].key = None
        self._purge(effects)
        self._change(effects)
        for cancelled, told in effects.cancels:
            assert [one.outcome for one in cancelled.told] == [told], f"message {cancelled.message_id} was cancelled"
            self.saw(f"cancel: {told}")

    def _enqueue(self, effects: Effects) -> None:
        for message_id in effects.unkeyed:
            self.books.messages[message_id].key = None
            self.saw("a message that is out gave its key up")
        for addition in effects.added:
            self._add(addition)
            self.saw(f"enqueue: {addition.outcome}")
            if addition.bounded:
                self.saw(f"enqueue to a bounded channel: {addition.outcome}")
        self.signals.committed(effects.added)

    def _add(self, addition: Addition) -> None:
        wanted, receipt, holder = addition.wanted, addition.wanted.receipt, addition.holder
        told = receipt.message_id, receipt.created, receipt.outcome
        if addition.outcome == "created":
            assert receipt.message_id is not None
            assert told[1:] == (True, "created")
            self.books.add(
                Message(
                    *(receipt.message_id, wanted.channel, wanted.number, wanted.key),
                    *(addition.at, addition.now, wanted.max_attempts, wanted.when.priority),
                    promoted_at=addition.promoted_at,
                    group_id=wanted.group_id,
                    of_group={} if wanted.group_id is None else {"group": wanted.group_id},
                    ordering_key=wanted.ordering_key,
                )
            )
            if wanted.number in self.awaited and wanted.on_duplicate == "replace":
                self.saw("a message that was to be replaced had been taken or ended meanwhile")
        elif holder is None:
            assert told == (None, False, "dropped"), f"a full channel told {told}"
            self.books.channels[wanted.channel].dropped += 1
        else:
            first = holder.receipt.message_id if isinstance(holder, Wanted) else holder.id
            assert first is not None
            assert told == (first, False, addition.outcome), f"the key {wanted.key!r} stood already"
            if addition.outcome == "replaced":
                if self.books.messages[first].ordering_key != wanted.ordering_key:
                    self.saw("a message got another ordering key")
                self.books.replace(first, wanted, addition.at, addition.promoted_at)

    def _redrive(self, effects: Effects, due: dict[int, int]) -> None:
        last = 0
        for message_id, (before, after) in effects.redriven.items():
            at = due.get(message_id, 0)
            letter = self.books.dead[message_id]
            if message_id not in effects.purged and at < 0:
                assert at == -(letter.priority or 0), "a dead letter has its priority again"
            elif message_id not in effects.purged:
                since = [
                    at + earlier for earlier in self._outweighed(letter, effects) if before < at + earlier <= after
                ]
                assert since, "a dead letter is due when it is redriven"
                assert max(since) > last, "the oldest death comes first"
                last = max(since)
            self.books.redrive(message_id, at)
        for message_id in effects.purged_letters:
            self.books.purge_letter(message_id)

    def _outweighed(self, letter: Message, effects: Effects) -> list[int]:
        """The waiting that a letter's priority outweighs, by the policies that its transaction may have seen."""
        policies = [self.books.channels[letter.channel].policy]
        policies += [one.after(policies[-1]) for one in effects.configured if one.channel == letter.channel]
        return [-Channel(policy).position(0, letter.priority) for policy in policies]

    def _purge(self, effects: Effects) -> None:
        new = {one.wanted.receipt.message_id for one in effects.added if one.wanted.number in effects.purged_new}
        for message_id in sorted(effects.purged | {one for one in new if one is not None}):
            self.books.end(message_id, "purged")
        for purged, count in effects.purges:
            assert [one.purged for one in purged.told] == [count], f"channel {purged.channel} was purged"
            self.saw("purge of a channel" if count else "purge of nothing")
            left = [one for one in self.books.messages.values() if one.channel == purged.channel]
            if count and any(one.lease_id is None for one in left):
                self.saw("purge left what was locked or came later")
            if count and any(one.lease_id is not None for one in left):
                self.saw("purge left what is out")
            self.turns.configured(purged.channel)

    def _change(self, effects: Effects) -> None:
        for policy in effects.defaults:
            self.books.defaults = policy
        for configured in effects.configured:
            channel = self.books.channels[configured.channel]
            self._mark(configured.marked, 1)
            rate_at = self.world.state(configured.channel).rate_at
            assert rate_at <= channel.cell.rate_at
            if configured.changes is not None:
                self.saw("some fields of a policy")
            channel.configure(configured.after(channel.policy), rate_at)
            self.turns.configured(configured.channel)
        for paused in effects.paused:
            if paused.channel is None:
                self.books.paused = paused.paused
            else:
                self.books.channels[paused.channel].paused = paused.paused
                self.turns.configured(paused.channel)
        for recorded in effects.recorded:
            self.books.records = recorded.history
        for limited in effects.limited:
            self.books.limits = limited.after(self.books.limits)
            self._mark(limited.marked, 2)
        if effects.limited:
            self.follow_queue_rate()

    def follow_queue_rate(self) -> None:
        """The rate of the queue as its state has it, measured anew."""
        [[rate_at]] = self.world.rows("select max(rate_at) from fq_queue_state where queue = %(queue)s", queue=QUEUE)
        self.books.rate.configure(self.books.limits.rate, rate_at or 0)

    def _mark(self, messages: frozenset[int], slot: int) -> None:
        for message_id in messages & self.books.messages.keys():
            if self.books.messages[message_id].lease_id is not None:
                self.books.messages[message_id].slots |= slot

    def _give_back(self, message_id: int, work: Settled, due: int) -> None:
        message = self.books.messages[message_id]
        message.give_back(counted=work.verb is Verb.RETRY)
        if work.delay:
            before, after = self.windows[message_id]
            assert before + work.delay <= due <= after + work.delay, "a delay counts from the call"
            message.dequeue_at = due
            message.promoted_at = None if message.priority is None else due

    @invariant()
    def tables_agree_with_the_books(self) -> None:
        """Every committed message is where the model has it, and the invariants of docs/invariants.md hold."""
        seen = self.world.inspect()
        assert seen.messages == self.books.messages
        assert seen.letters == {id_: one.key for id_, one in self.books.dead.items()}
        assert seen.attempts == sorted(self.books.history), "one row an attempt that began while it was recorded"
        assert seen.results == self.books.results
        groups = {each: one.counts | {"is_finished": one.is_finished} for each, one in self.books.groups.items()}
        assert seen.groups == groups, "the counts of groups"
        self.books.check_balance()
        assert not seen.broken, "\n".join(seen.broken)
        kept = {name: (one.policy, one.paused, one.dropped) for name, one in self.books.channels.items()}
        assert seen.channels == kept, "policies, pauses, and what was dropped"
        self.signals.check(seen.unheard)
