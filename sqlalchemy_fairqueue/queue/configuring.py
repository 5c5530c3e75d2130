"""Policies of channels, and withdrawing messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.queue.base import QueueBase
from sqlalchemy_fairqueue.unit_of_work import Cancel, Configure
from sqlalchemy_fairqueue.values import ChannelPolicy, check_count, check_name

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

    from sqlalchemy_fairqueue.asynchronous import AsyncConnection, AsyncEngine
    from sqlalchemy_fairqueue.queue.base import AnySession


class Configuring(QueueBase):
    """configure, configure_channel and cancel: recorded on a session, sent at once on a Connection or Engine."""

    def configure(self, where: AnySession | Connection | Engine, *, defaults: ChannelPolicy) -> None:
        """Set the policy that channels made from now on start with, whatever ``Queue(defaults=...)`` says.

        Channels that exist keep theirs.

        Locks the queue's row until the transaction ends; waits for another configuration of the same queue.
        """
        self._perform(where, [self._configure(None, defaults)])

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

    def cancel(self, where: AnySession | Connection | Engine, message_id: int) -> None:
        """Withdraw a message that no consumer has in its hands; one that is leased, done or unknown is left alone.

        Locks the message until the transaction ends; dequeue passes it by meanwhile, and it is ready again if the
        transaction rolls back.
        """
        self._perform(where, [self._cancel(message_id)])

    async def aconfigure(self, where: AsyncConnection | AsyncEngine, *, defaults: ChannelPolicy) -> None:
        """As :meth:`configure`, at once on an AsyncConnection or AsyncEngine."""
        await self._aperform(where, [self._configure(None, defaults)])

    async def aconfigure_channel(
        self, where: AsyncConnection | AsyncEngine, channel: str, policy: ChannelPolicy
    ) -> None:
        """As :meth:`configure_channel`, at once on an AsyncConnection or AsyncEngine."""
        await self._aperform(where, [self._configure(channel, policy)])

    async def acancel(self, where: AsyncConnection | AsyncEngine, message_id: int) -> None:
        """As :meth:`cancel`, at once on an AsyncConnection or AsyncEngine."""
        await self._aperform(where, [self._cancel(message_id)])

    def _configure(self, channel: str | None, policy: ChannelPolicy) -> Configure:
        if channel is not None:
            check_name("channel", channel)
        if not isinstance(policy, ChannelPolicy):
            raise InvalidArgument(f"policy is {policy!r:.80}; give a ChannelPolicy")
        return Configure(self._target, channel, policy)

    def _cancel(self, message_id: int) -> Cancel:
        check_count("message_id", message_id, 1, 2**63 - 1)
        return Cancel(self._target, message_id)
