"""Configuration methods of a queue."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.queue.base import QueueBase
from sqlalchemy_fairqueue.unit_of_work import Configure, Limit, Pause, RecordHistory
from sqlalchemy_fairqueue.values import UNSET, ChannelPolicy, Unset, check_count, check_duration, check_name

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

    from sqlalchemy_fairqueue.database.asynchronous import AsyncConnection, AsyncEngine
    from sqlalchemy_fairqueue.queue.base import AnySession
    from sqlalchemy_fairqueue.unit_of_work import Operation

_DAY = timedelta(days=1)


class ConfigurationMethods(QueueBase):
    """configure, configure_channel, pause and resume: recorded on a session, sent at once on a Connection or Engine."""

    def configure(
        self,
        where: AnySession | Connection | Engine,
        *,
        defaults: ChannelPolicy | None = None,
        max_concurrency: int | Unset | None = UNSET,
        history: bool | None = None,
        history_retention: timedelta | None = None,
    ) -> None:
        """Set what is the queue's own. What is not given stays as it is.

        Args:
            where: As for the class.
            defaults: The policy that channels made from now on start with, whatever ``Queue(defaults=...)`` says.
                Channels that exist keep theirs.
            max_concurrency: Most messages of the whole queue that consumers hold at once, exactly, beside the limits of
                its channels. None: no limit. Messages that are out are counted; while more are out than a new limit
                allows, none is delivered.
            history: Whether attempts are recorded in ``fq_history``: those that begin from the commit on.
            history_retention: With history: for how long they are kept, at least a day, since days are dropped whole.
                None: 30 days.

        Locks the queue's row until the transaction ends; waits for another configuration of the same queue. With
        max_concurrency also the messages that consumers hold: it waits for transactions that are settling one, and
        until the transaction ends the queue is not served. Keep such transactions short and apart from others.

        Raises:
            InvalidArgument: A bad value, or nothing to set.
            IsolationError: max_concurrency in a REPEATABLE READ or SERIALIZABLE transaction.
        """
        self._perform(where, self._changes(defaults, max_concurrency, history, history_retention))

    def configure_channel(self, where: AnySession | Connection | Engine, channel: str, policy: ChannelPolicy) -> None:
        """Set the policy of one channel, made if it is new.

        It takes effect on the next dequeue after the commit and breaks no limit.

        Locks the channel's state and, when it sets max_concurrency, the channel's leased messages: it waits for
        transactions that are completing one. Until the transaction ends the channel is not served; no other call waits
        for it. Keep such transactions short and apart from others.

        Raises:
            InvalidArgument: A bad name or policy.
        """
        self._perform(where, [self._configure(channel, policy)])

    def pause(self, where: AnySession | Connection | Engine, channel: str | None = None) -> None:
        """Stop serving a channel, or with channel None the whole queue, until it is resumed.

        A channel that is new is made, so that a tenant can be stopped before its first message: a mistyped name is no
        error, and :meth:`~sqlalchemy_fairqueue.Queue.channels` shows it.

        From the commit on no dequeue takes a message of it. Messages that consumers hold stay there and may be settled;
        enqueues go on as before, and nothing is lost. A paused channel keeps its limits and its turn. The queue and its
        channels are paused apart: a channel is served when neither is.

        Locks the queue's row, or the channel's state, until the transaction ends; waits for one that has it locked.

        Raises:
            InvalidArgument: A bad name.
        """
        self._perform(where, [self._pause(channel, paused=True)])

    def resume(self, where: AnySession | Connection | Engine, channel: str | None = None) -> None:
        """Go on serving a channel, or with channel None the queue. What is not paused stays as it is.

        It takes effect on the next dequeue after the commit. Locks and errors as :meth:`pause`.
        """
        self._perform(where, [self._pause(channel, paused=False)])

    async def aconfigure(
        self,
        where: AsyncConnection | AsyncEngine,
        *,
        defaults: ChannelPolicy | None = None,
        max_concurrency: int | Unset | None = UNSET,
        history: bool | None = None,
        history_retention: timedelta | None = None,
    ) -> None:
        """As :meth:`configure`, at once on an AsyncConnection or AsyncEngine."""
        await self._aperform(where, self._changes(defaults, max_concurrency, history, history_retention))

    async def aconfigure_channel(
        self, where: AsyncConnection | AsyncEngine, channel: str, policy: ChannelPolicy
    ) -> None:
        """As :meth:`configure_channel`, at once on an AsyncConnection or AsyncEngine."""
        await self._aperform(where, [self._configure(channel, policy)])

    async def apause(self, where: AsyncConnection | AsyncEngine, channel: str | None = None) -> None:
        """As :meth:`pause`, at once on an AsyncConnection or AsyncEngine."""
        await self._aperform(where, [self._pause(channel, paused=True)])

    async def aresume(self, where: AsyncConnection | AsyncEngine, channel: str | None = None) -> None:
        """As :meth:`resume`, at once on an AsyncConnection or AsyncEngine."""
        await self._aperform(where, [self._pause(channel, paused=False)])

    def _changes(
        self,
        defaults: ChannelPolicy | None,
        max_concurrency: int | Unset | None,
        history: bool | None,  # noqa: FBT001 - passed on from the keyword
        history_retention: timedelta | None,
    ) -> list[Operation]:
        changes: list[Operation] = []
        if defaults is not None:
            changes.append(self._configure(None, defaults))
        if history is not None or history_retention is not None:
            if not isinstance(history, bool):
                advice = "" if history_retention is None else " beside history_retention"
                raise InvalidArgument(f"history is {history!r:.80}; say True or False{advice}")
            if history_retention is not None:
                check_duration("history_retention", history_retention, _DAY)
            changes.append(RecordHistory(self._target, history, history_retention))
        if max_concurrency is not UNSET:
            if max_concurrency is not None:
                check_count("max_concurrency", max_concurrency, 1, 2**31 - 1)
            changes.append(Limit(self._target, max_concurrency))
        if not changes:
            raise InvalidArgument(
                "configure has nothing to set; give defaults, max_concurrency, or history with or without "
                "history_retention"
            )
        return changes

    def _configure(self, channel: str | None, policy: ChannelPolicy) -> Configure:
        if channel is not None:
            check_name("channel", channel)
        if not isinstance(policy, ChannelPolicy):
            raise InvalidArgument(f"policy is {policy!r:.80}; give a ChannelPolicy")
        return Configure(self._target, channel, policy)

    def _pause(self, channel: str | None, *, paused: bool) -> Pause:
        if channel is not None:
            check_name("channel", channel)
        return Pause(self._target, channel, paused)
