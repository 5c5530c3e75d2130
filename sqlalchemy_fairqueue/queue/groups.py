"""Groups of messages: a follow-up message is enqueued when the last member of a group has ended."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ParamSpec, Protocol, Self, TypeVar
from uuid import UUID, uuid4

from sqlalchemy_fairqueue.database.messages import Membership, read_groups
from sqlalchemy_fairqueue.errors import InvalidArgument, OutsideGroupWarning, UnknownGroup
from sqlalchemy_fairqueue.queue.base import OPEN_GROUPS, AnySession, Facet, QueueBase, Where, verb
from sqlalchemy_fairqueue.queue.enqueues import EnqueueMethods
from sqlalchemy_fairqueue.queue.signatures import warn
from sqlalchemy_fairqueue.unit_of_work.operations import EnqueueMessage, MakeGroup
from sqlalchemy_fairqueue.unit_of_work.sessions import discard, record, session_of
from sqlalchemy_fairqueue.values.checks import check_count, check_page
from sqlalchemy_fairqueue.values.messages import (
    AFTER_GROUP_HEADER,
    GROUP_HEADER,
    Enqueue,
    GroupCancellation,
    GroupStatus,
    checked_group_id,
)

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType

    from sqlalchemy import Connection
    from sqlalchemy.orm import Session

    from sqlalchemy_fairqueue.database.calls import Target
    from sqlalchemy_fairqueue.values.messages import Delivery, Receipt

P = ParamSpec("P")
R = TypeVar("R")


# Options that a follow-up cannot have, each with its default and the reason.
_NOT_OF_FOLLOWUPS = {
    "coalesce": (False, "and it must be enqueued"),
    "on_duplicate": ("skip", "and your code would not hear of a duplicate, since a worker enqueues it"),
    "cost": (1, "which no group keeps"),
    "unique_for": (None, "and it must be enqueued when the group is finished"),
}


class _Job(Protocol[P]):
    kind: str

    @property
    def queue(self) -> QueueBase: ...

    def prepare(self, /, channel: str, *args: P.args, **kwargs: P.kwargs) -> Enqueue: ...


class _Members:
    id: UUID

    def __init__(self, queue: GroupMethods, session: AnySession | None, adder: Delivery | None) -> None:
        self._queue = queue
        self._session = session
        self._adder = adder

    def enqueue(self, job: _Job[P], /, channel: str, *args: P.args, **kwargs: P.kwargs) -> Receipt:
        """Add a call of a job of this queue to the group. Members may be in many channels.

        Apart from the session, the arguments and errors are those of ``Job.enqueue``.

        Example:
            >>> @queue.job
            ... def parse(context: Context, *, page: int) -> None: ...
            >>> with Session(engine) as session, session.begin(), queue.group(session) as group:
            ...     receipts = [group.enqueue(parse, "customer-7", page=page) for page in (1, 2)]
            >>> queue.groups.status(engine, group.id).pending
            2
        """
        other: object = job.queue
        if other is not self._queue:
            raise InvalidArgument(
                f"job {job.kind!r} is of {job.queue!r}, and the group of {self._queue!r}; make one group a queue"
            )
        return self.enqueue_many([job.prepare(channel, *args, **kwargs)])[0]

    def enqueue_many(self, messages: Iterable[Enqueue]) -> list[Receipt]:
        """Add messages: prepared calls of jobs, or any Enqueue. Each gets a header ``group`` with the group's id.

        Only a message with the outcome "created" becomes a member. A message with its own header ``group`` raises
        InvalidArgument, and so does ``on_duplicate="replace"``, which could rewrite a member of another group.
        """
        session = self._checked_session()
        return self._queue._add_members(session, self.id, messages, self._adder)  # noqa: SLF001 - its other half

    def _checked_session(self) -> AnySession:
        if self._session is None:
            raise InvalidArgument(
                "the handler takes no session, with whose transaction members could be added; let it take one, or give "
                "another by context.group.within(session)"
            )
        return self._session


class Group(_Members):
    """A new group: ``with queue.group(session, then=...) as group: group.enqueue(...)``. Its ``id`` is known at once.

    See Also:
        :meth:`~sqlalchemy_fairqueue.Queue.group`
    """

    def __init__(
        self, queue: GroupMethods, session: AnySession, then: Enqueue | None, on_failure: Enqueue | None
    ) -> None:
        if session_of(session) is None:
            raise InvalidArgument(f"group got {session!r:.80} as session; give a Session or an AsyncSession")
        super().__init__(queue, session, None)
        self.id: UUID = uuid4()
        self._is_open = False
        self._entered: Session | None = None
        self._then = queue._followup("then", then)  # noqa: SLF001 - its other half
        self._on_failure = queue._followup("on_failure", on_failure)  # noqa: SLF001

    def __enter__(self) -> Self:
        session = session_of(self._checked_session())
        assert session is not None  # noqa: S101 - the call of group has checked it
        queue = self._queue
        make = MakeGroup(queue._target, self.id, self._then, self._on_failure, self._close)  # noqa: SLF001
        record(session, [make])
        self._is_open = True
        session.__dict__.setdefault(OPEN_GROUPS, []).append(self)
        self._entered = session
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_open = False
        # A scoped_session may stand for another session by now.
        session, self._entered = self._entered, None
        if session is None:
            return
        session.__dict__[OPEN_GROUPS].remove(self)
        if not session.__dict__[OPEN_GROUPS]:
            del session.__dict__[OPEN_GROUPS]
        if kind is not None:
            discard(session, self.id)

    def enqueue_many(self, messages: Iterable[Enqueue]) -> list[Receipt]:
        """Add messages, under the rules of :meth:`MemberGroup.enqueue_many`. Call this only in the ``with`` block."""
        if not self._is_open:
            raise InvalidArgument(
                f"group {self.id} takes no more members: its block has ended, or its transaction; enqueue within the "
                "block and before the commit, or from the handler of a member by context.group"
            )
        return super().enqueue_many(messages)

    def _close(self) -> None:
        self._is_open = False


class MemberGroup(_Members):
    """The group of the message that a handler works on, as ``context.group``; the handler may add members.

    Members are added with the session of the handler. The session's COMMIT must come while the handler holds the
    message: the COMMIT fails with LeaseLost after a lost lease, and with MessageCancelled after a cancel.

    See Also:
        :meth:`within`
    """

    def __init__(self, queue: GroupMethods, session: AnySession | None, delivery: Delivery, group_id: UUID) -> None:
        super().__init__(queue, session, delivery)
        self._delivery = delivery
        self.id = group_id

    def within(self, session: AnySession) -> MemberGroup:
        """Return the group bound to a session that the handler creates and commits before it returns.

        Example:
            >>> @queue.handler("split")
            ... def split(delivery: Delivery, context: Context) -> None:
            ...     with Session(engine) as session, session.begin():
            ...         context.group.within(session).enqueue_many([Enqueue(channel="customer-7", payload="page")])
            >>> with Session(engine) as session, session.begin(), queue.group(session) as group:
            ...     receipts = group.enqueue_many([Enqueue(channel="customer-7", payload="file", kind="split")])
            >>> Worker(engine, queue, concurrency=1).run(drain=True)
            >>> queue.groups.status(engine, group.id).total
            2
        """
        return MemberGroup(self._queue, session, self._delivery, self.id)


class GroupMethods(EnqueueMethods):
    """The verb ``group``, which creates a group on a session."""

    def group(self, session: AnySession, *, then: Enqueue | None = None, on_failure: Enqueue | None = None) -> Group:
        """Create a group: add its members in a ``with`` block; a follow-up message comes when they have ended.

        The group and its members exist after the session's COMMIT. If the block raises, nothing of the group is
        enqueued. After the commit only handlers of members can add members, by ``context.group``. Other enqueues to
        this queue on the session within the block do not join the group, and give an
        :class:`~sqlalchemy_fairqueue.errors.OutsideGroupWarning`.

        Within about a second after the last member has ended, or after the commit if there are no members, a worker of
        any queue of the installation enqueues the follow-up, exactly once. A member has ended when it is completed,
        dead, cancelled or purged; a retry or the death of a worker does not end it. A redriven dead letter is delivered
        outside of the group. A member that an enqueue with ``on_duplicate="replace"`` rewrites stays a member. The
        follow-up waits while its channel is full. Its handler reads the counts from ``context.after_group``.

        Args:
            session: For an AsyncSession too, use a plain ``with``, since everything is only recorded.
            then: The follow-up: a prepared call of a job, ``then=report.prepare(channel="customer-7", run=1)``, or an
                Enqueue for this queue, without on_duplicate, coalesce, cost and unique_for. None: no message follows.
            on_failure: The follow-up if a member became a dead letter or was cancelled or purged. None: *then* follows.

        Example:
            >>> then = Enqueue(channel="customer-7", payload={"run": 1}, kind="report")
            >>> with Session(engine) as session, session.begin(), queue.group(session, then=then) as group:
            ...     receipts = group.enqueue_many([Enqueue(channel="customer-7", payload=page) for page in (1, 2)])
            >>> queue.groups.status(engine, group.id).pending
            2
        """
        return Group(self, session, then, on_failure)

    def _check_groups(self, groups: Sequence[Group]) -> None:
        found = [one.id for one in groups if one._is_open and one._queue is self]  # noqa: SLF001 - its other half
        if found:
            warn(
                f"a message of queue {self.name!r} is enqueued within the block of group {found[-1]}, and is no member "
                "of it; add it by group.enqueue or group.enqueue_many, or, if the group need not wait for it, enqueue "
                "it before or after the block",
                OutsideGroupWarning,
            )

    def _followup(self, what: str, message: Enqueue | None) -> EnqueueMessage | None:
        if message is None:
            return None
        if not isinstance(message, Enqueue):
            raise InvalidArgument(f"{what} is {message!r:.80}; give a prepared call, like report.prepare(...)")
        for option, (usual, why) in _NOT_OF_FOLLOWUPS.items():
            if (value := getattr(message, option)) != usual:
                raise InvalidArgument(f"{what} has {option}={value!r}, {why}; leave it out")
        if AFTER_GROUP_HEADER in (message.headers or {}):
            raise InvalidArgument(f"{what} has a header {AFTER_GROUP_HEADER!r}, which the group sets; rename it")
        [operation] = self._enqueues([message])
        return operation

    def _add_members(
        self, session: AnySession, group_id: UUID, messages: Iterable[Enqueue], adder: Delivery | None
    ) -> list[Receipt]:
        found = session_of(session)
        if found is None:
            raise InvalidArgument(f"session is {session!r:.80}; give the session of your transaction")
        members = self._enqueues(messages, Membership(group_id, adder))
        for one in members:
            if one.message.on_duplicate == "replace":
                raise InvalidArgument(
                    "a member of a group has on_duplicate='replace'; it would rewrite a message that may belong to "
                    "another group: leave it out, or enqueue the message outside of the group"
                )
            if one.message.headers is not None and GROUP_HEADER in one.message.headers:
                raise InvalidArgument(
                    f"a member of a group has a header {GROUP_HEADER!r}, which the group sets; rename it"
                )
        if members:
            record(found, members)
        return [one.receipt for one in members]


class Groups(Facet[QueueBase]):
    """Groups of a queue, as ``queue.groups``. Calls are sent at once; ``queue.group`` creates groups.

    Example:
        >>> with Session(engine) as session, session.begin(), queue.group(session) as group:
        ...     receipts = group.enqueue_many([Enqueue(channel="customer-7", payload=page) for page in (1, 2)])
        >>> queue.complete(engine, queue.dequeue(engine, limit=1))
        >>> status = queue.groups.status(engine, group.id)
        >>> status.done, status.pending, status.finished_at, len(queue.groups.list(engine, is_open=True))
        (1, 1, None, 1)
        >>> queue.groups.cancel(engine, group.id)
        GroupCancellation(cancelled=1, leased=0)
    """

    @verb
    def status(self, where: Where, group_id: UUID | str) -> GroupStatus:
        """Return the present counts of a group, including members that ended within the last second.

        Groups are kept for seven days after they are finished. An unknown or forgotten group raises UnknownGroup.
        """
        return self._ask(where, self._of_group(group_id, _read))

    @verb
    def list(
        self, where: Where, *, is_open: bool | None = None, limit: int = 1000, before: GroupStatus | None = None
    ) -> builtins.list[GroupStatus]:
        """Return at most *limit* (1 to 100,000) groups, the newest first, with counts as for :meth:`status`.

        *is_open*: True for open groups only, False for finished ones. *before* is the last group of the previous page.
        """
        check_count("limit", limit, 1, 100_000)
        check_page("before", before, GroupStatus)
        asked = partial(read_groups, target=self._target, is_open=is_open)
        return self._ask(where, partial(asked, before=before, limit=limit))

    @verb
    def cancel(self, where: Where, group_id: UUID | str) -> GroupCancellation:
        """Cancel the members of a group that have not ended. Return how many are deleted, and how many are leased.

        Each of these members is cancelled as by ``queue.cancel``, and cannot add members any more. When the leased
        members have ended, the message *on_failure* of ``queue.group`` is enqueued. If there is no *on_failure*, the
        message *then* is enqueued. If both are None, no message follows.

        The call locks the members until the transaction ends, and waits for transactions that have locked one of them.
        The call counts as a settlement in the lock order. So an enqueue that is sent later in its transaction, also by
        a session's COMMIT, raises LockOrderError. An unknown group raises UnknownGroup. In a REPEATABLE READ or
        SERIALIZABLE transaction the call raises IsolationError.
        """
        return self._ask(where, self._of_group(group_id, _cancel), settles=True)

    def _of_group(
        self, group_id: UUID | str, ask: Callable[[Connection, Target, UUID], R | None]
    ) -> Callable[[Connection], R]:
        checked = checked_group_id(group_id)

        def work(connection: Connection) -> R:
            if (found := ask(connection, self._target, checked)) is None:
                raise UnknownGroup(
                    f"queue {self._queue.name!r} has no group {checked}; correct the id, or note that groups are "
                    "forgotten seven days after they are finished",
                    self._queue.name,
                    checked,
                )
            return found

        return work


def _read(connection: Connection, target: Target, group_id: UUID) -> GroupStatus | None:
    return next(iter(read_groups(connection, target, group_id)), None)


def _cancel(connection: Connection, target: Target, group_id: UUID) -> GroupCancellation | None:
    call = target.call("fq_cancel_group", f"cancel group {group_id} of", group_id=str(group_id))
    return next(map(GroupCancellation._make, call.rows(connection)), None)
