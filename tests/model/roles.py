"""Rules of roles: calls of a role do what they do for the owner within its grants, and change nothing beyond them."""

from collections.abc import Collection
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from sqlalchemy.exc import ProgrammingError

from sqlalchemy_fairqueue import ChannelPolicy
from sqlalchemy_fairqueue.errors import NotGranted
from sqlalchemy_fairqueue.unit_of_work.operations import Verb
from tests.model.administration import POLICIES
from tests.model.books import QueueLimits
from tests.model.business import CHANNELS, MESSAGES, VERBS
from tests.model.consumers import LEASES
from tests.model.stories import Stories
from tests.model.work import QUEUE, Cancelled, Configured, Limited, Paused, Purged, When, Work
from tests.model.world import GRANTS

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.values.messages import OnDuplicate

Change = Literal["configure", "pause", "purge", "limit"]
_OWN = -2


ROLES = st.sampled_from(list(GRANTS))


class Granted(Stories):
    """What roles other than the owner do."""

    @rule(role=ROLES, messages=st.lists(MESSAGES, min_size=1, max_size=3))
    def enqueue_as(self, role: str, messages: list[tuple[str, str | None, When, "OnDuplicate"]]) -> None:
        """A transaction is refused as a whole if one of its channels is not the role's."""
        wanted = [self.wanted(*message) for message in messages]
        refusal = self._refusal(role, {"producer"}, {one.channel for one in wanted})
        with self.world.acting(role):
            if refusal is None:
                self.commit_messages(wanted)
                return
            for one in wanted:
                self.record(_OWN, one)
            self._is_refused(refusal, self.sessions[_OWN].commit)
            self.roll_back(_OWN, close=True)

    @rule(role=ROLES, which=st.integers(0, 8), verb=VERBS)
    @precondition(lambda self: self.given)
    def settle_as(self, role: str, which: int, verb: Verb) -> None:
        """Who knows a delivery settles nothing by that alone."""
        hands = self.hands()
        delivery = hands[which % len(hands)]
        refusal = self._refusal(role, {"consumer"})
        with self.world.acting(role):
            if refusal is None:
                self.settle_in(None, [delivery], verb, timedelta(), now=True)
            else:
                perform = getattr(self.queue, verb.value)
                self._is_refused(refusal, partial(perform, self.world.engine, [delivery]))

    @rule(role=ROLES, which=st.integers(0, 20))
    @precondition(lambda self: self.books.messages)
    def cancel_as(self, role: str, which: int) -> None:
        """A producer withdraws messages of its channels, also those of other producers, and no others."""
        ids = sorted(self.books.messages)
        message = self.books.messages[ids[which % len(ids)]]
        perform = partial(self.queue.cancel, message_id=message.id)
        self._change_as(role, {"producer", "operator"}, Cancelled(message.id), perform, {message.channel})

    @rule(role=ROLES, what=st.sampled_from(["configure", "pause", "purge", "limit"]), channel=CHANNELS, policy=POLICIES)
    def administer_as(self, role: str, what: Change, channel: str, policy: ChannelPolicy) -> None:
        """Policies, pauses, purges and limits are an operator's."""
        policy = self.told(policy)
        work: Work
        match what:
            case "configure":
                work = Configured(channel, policy)
                perform: Any = partial(self.queue.configure_channel, channel=channel, policy=policy)
            case "pause":
                work, perform = Paused(channel, paused=True), partial(self.queue.pause, channel=channel, new=True)
            case "purge":
                work, perform = Purged(channel), partial(self.queue.purge, channel=channel)
            case _:
                most = policy.max_concurrency
                work, perform = Limited(QueueLimits(most)), partial(self.queue.configure, max_concurrency=most)
        self._change_as(role, {"operator"}, work, perform)

    @rule(role=ROLES, limit=st.integers(1, 5), lease=LEASES)
    @precondition(lambda self: self.books.messages)
    def dequeue_as(self, role: str, limit: int, lease: timedelta) -> None:
        """Messages are a consumer's."""
        refusal = self._refusal(role, {"consumer"})
        with self.world.acting(role):
            if refusal is None:
                self.take(0, limit, lease)
            else:
                self._is_refused(refusal, partial(self.queue.dequeue, self.world.engine, limit=limit))

    def _change_as(
        self, role: str, kinds: set[str], work: Work, perform: Any, channels: Collection[str] | None = None
    ) -> None:
        refusal = self._refusal(role, kinds, channels)
        with self.world.acting(role):
            if refusal is None:
                self.change(None, work, perform, now=True)
            else:
                self._is_refused(refusal, partial(perform, self.world.engine))

    def _refusal(
        self, role: str, kinds: set[str], channels: Collection[str] | None = None
    ) -> type[NotGranted | ProgrammingError] | None:
        """The error of a call that only such kinds of work may make, in these channels; None: it is allowed."""
        grants = [one for one in GRANTS[role] if one.kinds & kinds]
        if not grants:
            return ProgrammingError
        if not any(one.covers(QUEUE, channels or ()) for one in grants):
            return NotGranted
        self.saw("done as a role")
        return None

    def _is_refused(self, error: type[NotGranted | ProgrammingError], perform: Any) -> None:
        """The invariants that are checked after each step say that nothing changed."""
        with pytest.raises(error) as refused:
            perform()
        if error is ProgrammingError:
            assert "permission denied" in str(refused.value)
        self.saw(f"{error.__name__} of a role")
