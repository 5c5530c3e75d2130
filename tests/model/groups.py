"""The machine of groups: the rules of the machine, and groups that are made, joined by members, cancelled, followed."""

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from sqlalchemy import text

from sqlalchemy_fairqueue import Enqueue
from sqlalchemy_fairqueue.testing import make_context
from sqlalchemy_fairqueue.unit_of_work.operations import Verb
from tests.model.books import Channel, Group, Message
from tests.model.business import CHANNELS, MESSAGES, TRANSACTIONS, arguments
from tests.model.consumers import LEASES
from tests.model.faces import own
from tests.model.machine import FairQueueMachine
from tests.model.turns import cost_of
from tests.model.work import NOW, Addition, Effects, Grouped, Wanted, When

if TYPE_CHECKING:
    from sqlalchemy_fairqueue import Delivery
    from sqlalchemy_fairqueue.values.messages import OnDuplicate

    Asked = tuple[str, str | None, When, OnDuplicate]

FOLLOWED = st.sampled_from(["then", "then", "both", "failure", "nothing"])
ENDS = st.none() | st.sampled_from([Verb.COMPLETE, Verb.COMPLETE, Verb.RETRY, Verb.BURY])
MEMBERS = st.lists(MESSAGES, min_size=1, max_size=3)
_MAKER, _HANDLER = 5, 6
_ALL = 1000
# What follows a group is tried again after a second at the earliest.
_AGAIN = 1_000_000
_ROWS = """
select g.group_id::text as id, g.finished_at, g.message_id, g.due_at, g.problem, m.dequeue_at, m.enqueued_at
from fq_group g
left join fq_message m on m.id = g.message_id
"""


class GroupsMachine(FairQueueMachine):
    """Groups and their members: none is lost, counts are exact, and each group is followed exactly once."""

    @initialize(members=MEMBERS, followed=FOLLOWED, channel=CHANNELS)
    def begin_with_group(self, members: "list[Asked]", followed: str, channel: str) -> None:
        """There is a group from the beginning."""
        self.make_group(None, members, followed, channel)

    @rule(tx=st.none() | TRANSACTIONS, members=MEMBERS | st.just([]), followed=FOLLOWED, channel=CHANNELS)
    def make_group(self, tx: int | None, members: "list[Asked]", followed: str, channel: str) -> None:
        """A transaction makes a group with members, and commits at once or goes on."""
        number = _MAKER if tx is None else tx
        self._make(number, members, followed, channel)
        if tx is None:
            self.commit_or_roll_back(number)

    @rule(
        tx=st.none() | TRANSACTIONS,
        which=st.integers(0, 8),
        members=MEMBERS,
        end=ENDS,
    )
    @precondition(lambda self: any((one.headers or {}).get("group") for one in self.given))
    def add_members(self, tx: int | None, which: int, members: "list[Asked]", end: Verb | None) -> None:
        """The handler of a member adds further ones, and may end its delivery in the same transaction."""
        adders = [one for one in self.hands() if (one.headers or {}).get("group")]
        self._add_by(_HANDLER if tx is None else tx, adders[which % len(adders)], members, end)
        if tx is None:
            self.commit_or_roll_back(_HANDLER)

    @rule(which=st.integers(0, 5))
    @precondition(lambda self: self.books.groups)
    def cancel_group(self, which: int) -> None:
        """All members that have not ended are withdrawn, at once."""
        group_id = list(self.books.groups)[which % len(self.books.groups)]
        members = [self.books.messages[one] for one in sorted(self.books.groups[group_id].pending)]
        if self.others().messages & {one.id for one in members}:
            return
        gone = [one.id for one in members if one.lease_id is None]
        newly = {one.id for one in members if one.lease_id is not None and not one.cancelled}
        told = self.queue.groups.cancel(self.world.engine, group_id)
        assert told == (len(gone), len(newly))
        self.saw("cancel of a group")
        self.apply(Effects(ended=dict.fromkeys(gone, "cancelled"), withdrawn=newly))

    @rule(limit=st.sampled_from([1, 2, _ALL]), most=st.sampled_from([1, _ALL]))
    @precondition(lambda self: self.books.groups)
    def fold(self, limit: int, most: int) -> None:
        """A worker counts what has become of members, and follows the groups whose members have all ended."""
        before = self.world.now()
        hidden = self.world.hidden(None)
        with self.world.engine.begin() as connection:
            asked = {"limit": limit, "groups": most}
            found = connection.execute(text("select more from fq_fold_groups(:limit, :groups, true)"), asked).all()
        [[more]] = found
        self._note_folded(before, hidden, more=more)

    @rule(which=st.integers(0, 5))
    @precondition(lambda self: self.books.groups)
    def look_at_group(self, which: int) -> None:
        """What a group is said to be is what has become of its members, also if no worker has counted it yet."""
        group_id = list(self.books.groups)[which % len(self.books.groups)]
        group = self.books.groups[group_id]
        status = self.queue.groups.status(self.world.engine, group_id)
        counts = {name: getattr(status, name) for name in group.counts}
        assert counts == group.counts
        assert (status.pending, status.finished_at is not None) == (len(group.pending), group.is_finished)

    @rule(
        members=MEMBERS,
        followed=FOLLOWED,
        channel=CHANNELS,
        lease=LEASES,
        ends=st.lists(ENDS, min_size=1, max_size=4),
        added=MEMBERS,
        adds=st.booleans(),
        cancels=st.sampled_from([False, False, False, True]),
    )
    def live_through_group(
        self,
        members: "list[Asked]",
        followed: str,
        channel: str,
        *,
        lease: timedelta,
        ends: list[Verb | None],
        added: "list[Asked]",
        adds: bool,
        cancels: bool,
    ) -> None:
        """A group is made, members of it are taken, add others and end, or are cancelled, and a worker counts."""
        urgent = [(where, key, When(priority=9), how) for where, key, _, how in members]
        self._make(_MAKER, urgent, followed, channel)
        self.commit_or_roll_back(_MAKER)
        for end in ends:
            batch = [one for one in self.take(0, 2, lease) if (one.headers or {}).get("group")]
            if cancels and self.books.groups:
                self.cancel_group(len(self.books.groups) - 1)
            for delivery in batch:
                self._add_by(_HANDLER, delivery, added if adds else [], end)
                self.commit_or_roll_back(_HANDLER)
        self.fold(_ALL, _ALL)

    def _make(self, tx: int, members: "list[Asked]", followed: str, channel: str) -> None:
        session, transaction = self.session(tx)
        then = self._followup(channel) if followed in {"then", "both"} else None
        alarm = self._followup(channel) if followed in {"failure", "both"} else None
        made = self.queue.group(
            session,
            then=None if then is None else Enqueue(**arguments(then)),
            on_failure=None if alarm is None else Enqueue(**arguments(alarm)),
        )
        self.numbers += 1
        # One that is no matter of chance: a program must mean the same each time.
        made.id = UUID(int=self.numbers)
        with made as group:
            transaction.layers[-1].recorded.append(Grouped(str(group.id), then, alarm, self.brought))
            self._join(tx, group, members, None)

    def _followup(self, channel: str) -> Wanted:
        """What follows a group, of a number whose messages cost 1."""
        while cost_of(self.numbers + 1) != 1:
            self.numbers += 1
        return self.wanted(channel, None, NOW, max_attempts=3)

    def _add_by(self, tx: int, delivery: "Delivery", members: "list[Asked]", end: Verb | None) -> None:
        session, transaction = self.session(tx)
        if any(isinstance(one, Wanted) and one.adder is not None for one in transaction.recorded):
            # A session is one handler's.
            return
        group = make_context(delivery, queue=own(self.queue)).with_session(own(session)).group
        assert group is not None
        self._join(tx, group, members, delivery)
        if end is not None:
            self.settle_in(tx, [delivery], end, timedelta(), now=False)

    def _join(self, tx: int, group: Any, members: "list[Asked]", adder: "Delivery | None") -> None:
        """Record messages as members of a group; none of them replaces another message."""
        for channel, key, when, on_duplicate in members:
            wanted = self.wanted(channel, key, when, "skip" if on_duplicate == "replace" else on_duplicate)
            [receipt] = group.enqueue_many([Enqueue(**arguments(wanted))])
            found = replace(wanted, receipt=receipt, group_id=str(group.id), adder=adder)
            self.open[tx].layers[-1].recorded.append(found)
            self.saw("a member was added by a transaction" if adder is None else "a member was added by a member")

    def _note_folded(self, before: int, hidden: dict[str, int], *, more: bool) -> bool:
        """Take what follows groups into the books; whether any group has been finished."""
        rows = {row.id: row for row in self.world.rows(_ROWS)}
        finished = [
            (each, group)
            for each, group in self.books.groups.items()
            if not group.is_finished and rows[each].finished_at is not None
        ]
        for each, group in finished:
            assert not group.pending, f"group {each} is finished before its members {group.pending} have ended"
            group.is_finished = True
            self._follow(each, group, rows[each], before)
        waited = False
        for each, group in self.books.groups.items():
            if not group.is_finished and not group.pending and rows[each].problem is not None:
                waited = True
                if rows[each].due_at <= before + _AGAIN:
                    # It was tried by an earlier call, and what it met then may be gone.
                    continue
                self._check_problem(each, group, rows[each].problem, hidden)
        for each, group in self.books.groups.items():
            due = not group.is_finished and not group.pending and rows[each].problem is None
            assert more or waited or not due, f"group {each} has ended, and was not followed"
        return bool(finished)

    def _follow(self, each: str, group: Group, row: Any, before: int) -> None:
        wanted = self._wanted_after(each, group)
        if wanted is None:
            assert row.message_id is None, (
                f"group {each} is followed by message {row.message_id}, and by none was asked"
            )
            self.saw("a group ended, and nothing follows")
            return
        assert row.message_id is not None, f"nothing follows group {each}"
        if wanted.channel not in self.books.channels:
            policy = self.books.defaults or self.followups[each].brought
            self.books.channels[wanted.channel] = Channel(policy)
        bounded = self.books.channels[wanted.channel].policy.max_backlog is not None
        assert before < row.dequeue_at <= self.world.now(), "what follows a group is due at once"
        self.books.add(
            Message(
                *(row.message_id, wanted.channel, wanted.number, None, row.dequeue_at, row.enqueued_at),
                *(wanted.max_attempts,),
                of_group={"after_group": {"id": each, **group.counts}},
            )
        )
        self.signals.committed([Addition(wanted, "created", None, row.dequeue_at, row.enqueued_at, bounded)])
        self.saw("a group was followed")
        if wanted is self.followups[each].on_failure:
            self.saw("a group was followed by what its failure asks for")

    def _wanted_after(self, each: str, group: Group) -> Wanted | None:
        asked = self.followups[each]
        return asked.on_failure if asked.on_failure and group.failed + group.cancelled else asked.then

    def _check_problem(self, each: str, group: Group, problem: str, hidden: dict[str, int]) -> None:
        """What follows a group waits only while its channel is full, or is made by somebody else."""
        wanted = self._wanted_after(each, group)
        assert wanted is not None, f"group {each}: {problem}"
        known = self.books.channels.get(wanted.channel)
        most = None if known is None else known.policy.max_backlog
        waiting = len(self.books.of_channel(wanted.channel)) - hidden.get(wanted.channel, 0)
        is_full = most is not None and waiting >= most
        assert is_full or wanted.channel in self.others().made, f"group {each}: {problem}"
        self.saw("what follows a group waited")

    def _drain(self) -> None:
        """All groups are followed when all of their members have ended."""
        super()._drain()
        while self._follow_all():
            super()._drain()
        assert all(one.is_finished for one in self.books.groups.values()), f"never followed: {self.books.groups}"

    def _follow_all(self) -> bool:
        """Count all and follow what can be followed, with no transaction open; whether any group was finished."""
        known = sum(one.is_finished for one in self.books.groups.values())
        if known < len(self.books.groups):
            # A follow-up that found its channel full is tried again a second later.
            self.world.advance(timedelta(seconds=2))
            self.fold(_ALL, _ALL)
            self.tables_agree_with_the_books()
        return known < sum(one.is_finished for one in self.books.groups.values())
