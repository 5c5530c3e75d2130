"""Methods of plans: policies with a name, which channels follow."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy import Engine

from sqlalchemy_fairqueue import database
from sqlalchemy_fairqueue.database.asynchronous import AsyncEngine
from sqlalchemy_fairqueue.queue.base import QueueBase
from sqlalchemy_fairqueue.unit_of_work import ConfigurePlan
from sqlalchemy_fairqueue.values import check_name, policy_changes

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Unpack

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.asynchronous import AsyncConnection
    from sqlalchemy_fairqueue.queue.base import AnySession, AsyncWhere, Where
    from sqlalchemy_fairqueue.unit_of_work import Operation
    from sqlalchemy_fairqueue.values import ChannelPolicy, PlanInfo, PolicyChanges

_CHUNK = 5000
"""Channels that get a changed plan in one transaction: they are not served meanwhile."""
_AT_ONCE = timedelta(0)


class PlanMethods(QueueBase):
    """configure_plan and remove_plan: recorded on a session, sent at once on a Connection or Engine; plans."""

    def configure_plan(
        self,
        where: AnySession | Connection | Engine,
        name: str,
        policy: ChannelPolicy | None = None,
        **changes: Unpack[PolicyChanges],
    ) -> None:
        """Make a plan, or change it: ``configure_plan(session, "gold", ChannelPolicy(weight=5, rate="50/s"))``.

        A plan is a policy with a name. A channel follows it once ``configure_channel(where, channel, plan="gold")`` or
        ``configure(where, default_plan="gold")`` puts it on the plan. A change is one row, however many channels
        follow. A field that was configured for one channel alone stays as it is there.

        From the commit on no dequeue takes a message of these channels beyond the new max_concurrency and rate, or by
        the old weight: it brings the plan to a channel before it takes from it. Consumers bring it to all other
        channels too, a thousand a dequeue, and wake those that it frees; on an Engine this call itself does so, before
        it returns, as far as nobody has a channel locked. Until it has reached a channel, enqueues go by the old
        values of all other fields. ``plans`` tells when it has reached all.

        If a plan limits max_concurrency for the first time while a transaction is completing a message of a channel,
        that channel is not served until the transaction ends. Nobody waits.

        Args:
            where: As for the class.
            name: Its name, within the queue.
            policy: A policy that replaces all of the plan's.
            changes: Fields of :class:`~sqlalchemy_fairqueue.ChannelPolicy` to change, instead of a policy; None lifts a
                limit. Fields that are not named stay as they are. A new plan has no limits but those that are named.

        Locks the queue's row and the plan's until the transaction ends; waits for another change of the plan, and for
        a transaction that puts a channel on it.

        Raises:
            InvalidArgument: A bad name or value, both a policy and changes, or neither.
            TypeError: A change of something that is no field of a policy.

        Example:
            >>> queue.configure_plan(engine, "gold", weight=5, max_concurrency=20)
            >>> queue.configure_channel(engine, "customer-7", plan="gold")
            >>> [channel.policy.weight for channel in queue.channels(engine)]
            [5]
        """
        self._perform(where, [self._configure_plan("configure_plan", name, policy, changes)])
        if isinstance(where, Engine):
            while self._ask(where, self._spreading) == _AT_ONCE:
                pass

    def remove_plan(self, where: AnySession | Connection | Engine, name: str) -> None:
        """Remove a plan that no channel follows, and that is no default. One that does not exist is no error.

        Raises:
            InvalidArgument: A bad name, or the plan is in use. On a session that comes from the COMMIT.

        Example:
            >>> queue.configure_plan(engine, "gold", weight=5)
            >>> queue.remove_plan(engine, "gold")
            >>> queue.plans(engine)
            []
        """
        self._perform(where, [self._remove_plan(name)])

    def plans(self, where: Where, name: str | None = None) -> list[PlanInfo]:
        """The plans of the queue by name, with how many channels follow each.

        Args:
            where: As for the class; answered at once.
            name: Only this one, if it exists. None: all.

        Example:
            >>> queue.configure_plan(engine, "gold", weight=5)
            >>> [plan.name for plan in queue.plans(engine)]
            ['gold']
        """
        return self._ask(where, self._plans(name))

    async def aconfigure_plan(
        self,
        where: AsyncConnection | AsyncEngine,
        name: str,
        policy: ChannelPolicy | None = None,
        **changes: Unpack[PolicyChanges],
    ) -> None:
        """As :meth:`configure_plan`, at once on an AsyncConnection or AsyncEngine."""
        await self._aperform(where, [self._configure_plan("aconfigure_plan", name, policy, changes)])
        if isinstance(where, AsyncEngine):
            while await self._aask(where, self._spreading) == _AT_ONCE:
                pass

    async def aremove_plan(self, where: AsyncConnection | AsyncEngine, name: str) -> None:
        """As :meth:`remove_plan`, at once on an AsyncConnection or AsyncEngine."""
        await self._aperform(where, [self._remove_plan(name)])

    async def aplans(self, where: AsyncWhere, name: str | None = None) -> list[PlanInfo]:
        """As :meth:`plans`."""
        return await self._aask(where, self._plans(name))

    def _configure_plan(self, call: str, name: str, policy: ChannelPolicy | None, changes: PolicyChanges) -> Operation:
        check_name("plan", name)
        return ConfigurePlan(self._target, name, policy_changes(call, policy, changes))

    def _remove_plan(self, name: str) -> Operation:
        check_name("plan", name)
        return ConfigurePlan(self._target, name, None)

    def _plans(self, name: str | None) -> Callable[[Connection], list[PlanInfo]]:
        if name is not None:
            check_name("plan", name)
        return partial(database.plans, target=self._target, name=name)

    @property
    def _spreading(self) -> Callable[[Connection], timedelta | None]:
        return partial(database.spread_plans, target=self._target, limit=_CHUNK)
