"""Methods of plans: policies with a name, which channels follow."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy import Engine

from sqlalchemy_fairqueue import database
from sqlalchemy_fairqueue.database.asynchronous import AsyncEngine
from sqlalchemy_fairqueue.database.engines import on
from sqlalchemy_fairqueue.queue.base import Facet, QueueBase
from sqlalchemy_fairqueue.queue.verbs import recorded, verb
from sqlalchemy_fairqueue.unit_of_work import changes as change
from sqlalchemy_fairqueue.values import check_name, policy_changes

if TYPE_CHECKING:
    import builtins
    from typing import Unpack

    from sqlalchemy_fairqueue.queue.verbs import RecordedWhere, Where
    from sqlalchemy_fairqueue.values import ChannelPolicy, PlanInfo, PolicyChanges

_CHUNK = 5000
"""Channels that get a changed plan in one transaction: they are not served meanwhile."""
_AT_ONCE = timedelta(0)


class Plans(Facet[QueueBase]):
    """Plans of a queue, as ``queue.plans``: policies with a name, which channels follow.

    What changes one is recorded on a session, sent at once on a connection or engine.

    Example:
        >>> queue.plans.configure(engine, "gold", weight=5)
        >>> [plan.name for plan in queue.plans.list(engine)]
        ['gold']
    """

    @recorded
    def configure(
        self,
        where: RecordedWhere,
        name: str,
        policy: ChannelPolicy | None = None,
        **changes: Unpack[PolicyChanges],
    ) -> None:
        """Make a plan, or change it: ``queue.plans.configure(session, "gold", ChannelPolicy(weight=5, rate="50/s"))``.

        A plan is a policy with a name. A channel follows it once ``configure_channel(where, channel, plan="gold")`` or
        ``configure(where, default_plan="gold")`` puts it on the plan. A change is one row, however many channels
        follow. A field that was configured for one channel alone stays as it is there.

        From the commit on no dequeue takes a message of these channels beyond the new max_concurrency and rate, or by
        the old weight: it brings the plan to a channel before it takes from it. Consumers bring it to all other
        channels too, a thousand a dequeue, and wake those that it frees; on an Engine this call itself does so, before
        it returns, as far as nobody has a channel locked. Until it has reached a channel, enqueues go by the old
        values of all other fields. ``list`` tells when it has reached all.

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
            >>> queue.plans.configure(engine, "gold", weight=5, max_concurrency=20)
            >>> queue.configure_channel(engine, "customer-7", plan="gold")
            >>> [channel.policy.weight for channel in queue.channels(engine)]
            [5]
        """
        check_name("plan", name)
        operation = change.configure_plan(self._target, name, policy_changes("plans.configure", policy, changes))
        if not isinstance(where, (Engine, AsyncEngine)):
            return self._perform(where, [operation], None)

        def at_once(engine: Engine) -> None:
            self._perform(engine, [operation], None)
            spread = partial(database.spread_plans, target=self._target, limit=_CHUNK)
            while self._ask(engine, spread) == _AT_ONCE:
                pass

        return on(where, at_once)

    @recorded
    def remove(self, where: RecordedWhere, name: str) -> None:
        """Remove a plan that no channel follows, and that is no default. One that does not exist is no error.

        Raises:
            InvalidArgument: A bad name, or the plan is in use. On a session that comes from the COMMIT.

        Example:
            >>> queue.plans.configure(engine, "gold", weight=5)
            >>> queue.plans.remove(engine, "gold")
            >>> queue.plans.list(engine)
            []
        """
        check_name("plan", name)
        return self._perform(where, [change.configure_plan(self._target, name, None)], None)

    @verb
    def list(self, where: Where, name: str | None = None) -> builtins.list[PlanInfo]:
        """The plans of the queue by name, with how many channels follow each.

        Args:
            where: As for the class; answered at once.
            name: Only this one, if it exists. None: all.

        Example:
            >>> queue.plans.configure(engine, "gold", weight=5)
            >>> [plan.name for plan in queue.plans.list(engine)]
            ['gold']
        """
        if name is not None:
            check_name("plan", name)
        return self._ask(where, partial(database.plans, target=self._target, name=name))
