"""Configuration of a queue and its channels, of plans, and of the limits that several queues share."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal, cast

from sqlalchemy import Engine

from sqlalchemy_fairqueue.database.asynchronous import AsyncEngine
from sqlalchemy_fairqueue.database.configuration import read_limits, read_plans
from sqlalchemy_fairqueue.database.engines import on
from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.queue.base import Facet, QueueBase, recorded, verb
from sqlalchemy_fairqueue.unit_of_work import changes as change
from sqlalchemy_fairqueue.values.checks import check_name, check_names
from sqlalchemy_fairqueue.values.policies import (
    POLICY,
    UNSET,
    ChannelPolicy,
    Unset,
    check_field_names,
    policy_changes,
    reset_fields,
)
from sqlalchemy_fairqueue.values.settings import LIMITS, SETTINGS, setting_changes

if TYPE_CHECKING:
    import builtins
    from collections.abc import Collection
    from typing import Unpack

    from sqlalchemy_fairqueue.queue.base import RecordedWhere, Where
    from sqlalchemy_fairqueue.unit_of_work.changes import Change
    from sqlalchemy_fairqueue.unit_of_work.operations import Operation
    from sqlalchemy_fairqueue.values.fields import Rate
    from sqlalchemy_fairqueue.values.policies import PolicyChanges
    from sqlalchemy_fairqueue.values.reports import PlanInfo, SharedLimit
    from sqlalchemy_fairqueue.values.settings import QueueChanges, QueueLimits

_CHUNK = 5000
"""Channels that get a changed plan in one transaction: they are not served meanwhile."""


class ConfigurationMethods(QueueBase):
    """configure, configure_channel, pause and resume: recorded on a session, sent at once on a Connection or Engine."""

    @recorded
    def configure(self, where: RecordedWhere, **settings: Unpack[QueueChanges]) -> None:
        """Set the queue's settings and defaults. Arguments that are not given stay as they are.

        Args:
            where: As for the class.
            defaults: The policy that channels made from now on start with, instead of ``Queue(defaults=...)``.
                Channels that exist keep theirs. A ChannelPolicy replaces all of it. A dict of its fields,
                ``{"max_backlog": 500}``, changes those and leaves the others; before the first change they are those of
                ``Queue(defaults=...)``.
            max_concurrency: Most messages of the whole queue that consumers hold at once, exactly, beside the limits of
                its channels. None: no limit. Messages that are out are counted; while more are out than a new limit
                allows, none is delivered.
            max_cost_out: Most that these messages cost together, exactly, by what they were charged when they were
                delivered. A message that costs more by itself goes out while nothing else is. None: no limit.
            rate: Most messages, or most cost, of the whole queue in a time, exactly, such as an API allows that all
                tenants share: a :class:`~sqlalchemy_fairqueue.Rate` or its text, ``"50/s"``, ``"100000/min of cost"``.
                None: no rate.
            limits: The names of shared limits that the queue draws from, at most 16, made by ``limits.configure``.
                All of them hold, beside the queue's own. None: none.
            history: Whether attempts are recorded in ``fq_history``: those that begin from the commit on.
            history_retention: For how long they are kept, at least a day, since days are dropped whole. None: 30 days,
                as before it is set.
            dead_letter_retention: For how long dead letters are kept; housekeeping of workers then deletes them. None:
                for ever, as before it is set. A dict of kinds, ``{"parse": timedelta(days=1)}``, changes those of its
                kinds, where None means as all others, and leaves the rest; its key None stands for all others.
            result_retention: For how long what handlers return is kept, for :meth:`result`: of messages that are
                delivered from the commit on. Housekeeping of workers then deletes it. None: it is not kept, as before
                it is set.
            default_plan: The plan, made by ``plans.configure``, that channels made from now on follow. It goes
                before the defaults. Channels that exist keep their plan, or none. None: none.
            on_dead: What becomes of the messages of an ordering key behind one that dies from the commit on.
                "continue": they go on; so it is until this is set. "hold": they wait until the dead letter is redriven
                or purged.
            on_dead_kinds: The kinds whose dead letters are followed by a message, as :meth:`on_dead` says. A worker
                adds the kinds that it has such handlers for. None: none.
            forget_channels_after: Housekeeping of workers deletes channels that have been idle for so long, without
                messages and dead letters: their names, and how much they had dropped. The next enqueue makes such a
                channel anew. Channels that are paused or that configure_channel has set stay. None: all stay. Before
                it is set: 30 days.
            fair_by: What is shared equally, by weight, among channels that stay backlogged. "messages": their number;
                so it is until this is set. "cost": the sum of costs, as ``enqueue(cost=)`` declared and settlements
                corrected them. "seconds": the time that handlers of workers took.

        Locks the queue's row until the transaction ends; waits for another configuration of the same queue. With
        max_concurrency, max_cost_out or rate also the messages that consumers hold: it waits for transactions that are
        settling one, and until the transaction ends the queue is not served. Consumers of a queue with one of them
        dequeue one after the other. Keep such transactions short and apart from others.

        Raises:
            InvalidArgument: A bad value, nothing to set, or a plan that does not exist.
            IsolationError: One of these in a REPEATABLE READ or SERIALIZABLE transaction.

        Example:
            >>> queue.configure(engine, max_concurrency=50, defaults=ChannelPolicy(max_concurrency=5))
            >>> queue.stats(engine).max_concurrency
            50
        """
        return self._perform(where, self._changes("configure", settings), None)

    @recorded
    def configure_channel(
        self,
        where: RecordedWhere,
        channel: str,
        policy: ChannelPolicy | None = None,
        *,
        plan: str | Unset | None = UNSET,
        reset: Collection[str] | Literal["all"] = (),
        **changes: Unpack[PolicyChanges],
    ) -> None:
        """Change how one channel is served: ``configure_channel(session, "customer-7", max_backlog=500)``.

        Args:
            where: As for the class.
            channel: The channel. A new one is made, and starts with the queue's configured defaults, or else with
                ``Queue(defaults=...)``.
            policy: A policy that replaces all of the channel's, its plan and what was configured for it alone included:
                it follows no plan then.
            plan: The plan that the channel follows from now on. None: none; the values that
                hold now stay.
            reset: Names of fields, such as ``["weight"]``, that are configured for this channel alone no longer: the
                plan decides them again, or where there is none, the queue's configured defaults. ``"all"``: every
                field. With ``plan=None`` too, the channel is as if it had never been configured, and is forgotten when
                it is idle.
            changes: Fields of :class:`~sqlalchemy_fairqueue.ChannelPolicy` to change, instead of a policy. Fields that
                are not named stay as they are; ``max_concurrency=None``, ``rate=None`` and ``max_backlog=None`` lift a
                limit, a rate and a bound. A field that is named, with None too, is the channel's own until it is
                reset: changes of its plan do not change it.

        It takes effect on the next dequeue after the commit and breaks no limit. The database applies it to the locked
        policy: of two concurrent changes of different fields both last.

        Locks the channel's state and, when it sets max_concurrency (by a plan too), the channel's leased messages: it
        waits for transactions that are completing one, and for one that changes or removes the plan. Until the
        transaction ends the channel is not served; only a change of the plan waits for it. Keep such transactions short
        and apart from others.

        Raises:
            InvalidArgument: A bad name or value, both a policy and changes, nothing to set, or a plan that does not
                exist. On a session that comes from the COMMIT.
            TypeError: A change of something that is no field of a policy.

        Example:
            >>> queue.configure_channel(engine, "customer-7", max_concurrency=4, rate="10/s")
            >>> [(channel.channel, channel.policy.max_concurrency) for channel in queue.channels(engine)]
            [('customer-7', 4)]
        """
        operation = self._configure_channel(channel, policy, changes, plan=plan, reset=reset)
        return self._perform(where, [operation], None)

    @recorded
    def pause(self, where: RecordedWhere, channel: str | None = None, *, new: bool = False) -> None:
        """Stop serving a channel, or with channel None the whole queue, until it is resumed.

        A channel that does not exist is refused, since its name may be mistyped. ``new=True`` makes it, so that a
        tenant can be stopped before its first message.

        From the commit on no dequeue takes a message of it. Messages that consumers hold stay there and may be settled;
        enqueues go on as before, and nothing is lost. A paused channel keeps its limits and its turn. The queue and its
        channels are paused apart: a channel is served when neither is.

        Locks the queue's row, or the channel's state, until the transaction ends; waits for one that has it locked.

        Raises:
            InvalidArgument: A bad name.
            UnknownChannel: There is no such channel. On a session it comes from the COMMIT, which then fails whole.

        Example:
            >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
            >>> queue.pause(engine, "customer-7")
            >>> len(queue.dequeue(engine))
            0
        """
        return self._perform(where, [self._pause(channel, paused=True, new=new)], None)

    @recorded
    def resume(self, where: RecordedWhere, channel: str | None = None) -> None:
        """Go on serving a channel, or with channel None the queue. It is no error if it is not paused.

        It takes effect on the next dequeue after the commit. Locks and errors as :meth:`pause`.

        Example:
            >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
            >>> queue.pause(engine, "customer-7")
            >>> queue.resume(engine, "customer-7")
            >>> len(queue.dequeue(engine))
            1
        """
        return self._perform(where, [self._pause(channel, paused=False)], None)

    def _changes(self, call: str, settings: QueueChanges) -> list[Operation]:
        checked = setting_changes(call, settings)
        changes: list[Operation] = []
        if "defaults" in checked:
            changes.append(change.configure(self._target, checked.pop("defaults"), self.defaults))
        limits = cast("QueueLimits", {name: checked.pop(name) for name in [*checked] if name in LIMITS})
        if checked:
            changes.append(change.set_queue(self._target, cast("QueueChanges", checked)))
        if limits:
            changes.append(change.limit(self._target, limits))
        return changes

    def _configure_channel(
        self, channel: str, policy: object, changes: PolicyChanges, *, plan: object, reset: object
    ) -> Change:
        check_name("channel", channel)
        fields = reset_fields("configure_channel", reset)
        if policy is not None:
            if plan is not UNSET or fields:
                raise InvalidArgument(
                    "configure_channel has a ChannelPolicy, which replaces all fields and the plan, and a plan or "
                    "fields to reset; give single fields beside those, such as weight=3"
                )
            # What it sets is nobody's exception: a plan that the channel is put on later decides all of it.
            whole = policy_changes("configure_channel", policy, changes)
            return change.configure_channel(
                self._target, channel, whole, policy=self.defaults, plan=None, reset=tuple(POLICY)
            )
        check_field_names("configure_channel", changes)
        wanted = plan if isinstance(plan, Unset) else SETTINGS["default_plan"].checked("plan", plan)
        named: PolicyChanges = {}
        if changes or (wanted is UNSET and not fields):
            named = policy_changes("configure_channel", None, changes)
        return change.configure_channel(self._target, channel, named, policy=self.defaults, plan=wanted, reset=fields)

    def _pause(self, channel: str | None, *, paused: bool, new: bool = False) -> Change:
        check_names(channel=channel)
        if not isinstance(new, bool):
            raise InvalidArgument(f"new is {new!r:.80}; give True or False")
        if paused:
            return change.pause(self._target, channel, new=new)
        return change.resume(self._target, channel)


class Plans(Facet[QueueBase]):
    """Plans of a queue, as ``queue.plans``: policies with a name, which channels follow.

    Changes are recorded on a session, and sent at once on a connection or engine.

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
            call = self._target.call("fq_spread_plans", f"spread the plans of {self._target.named()}", limit=_CHUNK)
            # Until there is nothing more to do at once.
            while self._ask(engine, lambda connection: call.rows(connection)[0].due_in == 0):
                pass

        return on(where, at_once)

    @recorded
    def remove(self, where: RecordedWhere, name: str) -> None:
        """Remove a plan that no channel follows, and that is no default. It is no error if there is none.

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
        """Return the plans of the queue by name, with the number of channels that follow each.

        Args:
            where: As for the class; answered at once.
            name: Only this one, if it exists. None: all.

        Example:
            >>> queue.plans.configure(engine, "gold", weight=5)
            >>> [plan.name for plan in queue.plans.list(engine)]
            ['gold']
        """
        check_names(plan=name)
        return self._ask(where, partial(read_plans, target=self._target, name=name))


class Limits(Facet[QueueBase]):
    """Shared limits, as ``queue.limits``, which several queues draw from.

    Changes are recorded on a session, and sent at once on a connection or engine.

    Example:
        >>> queue.limits.configure(engine, "mail", max_concurrency=3)
        >>> [limit.max_concurrency for limit in queue.limits.list(engine, "mail")]
        [3]
    """

    @recorded
    def configure(
        self,
        where: RecordedWhere,
        name: str,
        *,
        max_concurrency: int | Unset | None = UNSET,
        max_cost_out: int | Unset | None = UNSET,
        rate: Rate | str | Unset | None = UNSET,
    ) -> None:
        """Make a limit that several queues share, or change it: ``limits.configure(session, "openai", rate="50/s")``.

        Queues draw from it when ``configure(where, limits=["openai"])`` names it. What they take together never
        exceeds it. Queues that always have messages get equal parts, and what one leaves is for the others.

        Args:
            where: As for the class.
            name: Its name, within the schema of the queue.
            max_concurrency: Most messages of all its queues that consumers hold at once, exactly. None: no limit.
            max_cost_out: Most that these messages cost together, exactly. None: no limit.
            rate: Most messages, or most cost, of all its queues in a time, exactly. None: no rate.

        What is not given stays as it is. Dequeues of its queues run one after the other. A consumer that it holds back
        polls 50 times a second. Locks the limit until the transaction ends, and its queues are not served meanwhile.

        Raises:
            InvalidArgument: A bad name or value, or nothing to set.

        Example:
            >>> queue.limits.configure(engine, "openai", max_concurrency=20, rate="50/s")
            >>> queue.configure(engine, limits=["openai"])
            >>> [limit.max_concurrency for limit in queue.limits.list(engine, "openai")]
            [20]
        """
        check_name("limit", name)
        given = {"max_concurrency": max_concurrency, "max_cost_out": max_cost_out, "rate": rate}
        changes = {field: value for field, value in given.items() if value is not UNSET}
        if not changes:
            raise InvalidArgument("limits.configure has nothing to set; give max_concurrency, max_cost_out or rate")
        wanted = policy_changes("limits.configure", None, changes)
        return self._perform(where, [change.configure_limit(self._target, name, wanted)], None)

    @recorded
    def remove(self, where: RecordedWhere, name: str) -> None:
        """Remove a shared limit from which no queue draws any more. It is no error if there is none.

        Raises:
            InvalidArgument: A bad name, or queues draw from it. On a session that comes from the COMMIT.

        Example:
            >>> queue.limits.configure(engine, "unused", max_concurrency=20)
            >>> queue.limits.remove(engine, "unused")
            >>> queue.limits.list(engine, "unused")
            []
        """
        check_name("limit", name)
        return self._perform(where, [change.configure_limit(self._target, name, None)], None)

    @verb
    def list(self, where: Where, name: str | None = None) -> builtins.list[SharedLimit]:
        """Return the shared limits of the queue's schema by name, with the queues and messages that use them.

        Args:
            where: As for the class.
            name: Only this one, if it exists. None: all.

        Example:
            >>> queue.limits.configure(engine, "mail", max_concurrency=3)
            >>> [(limit.name, limit.max_concurrency) for limit in queue.limits.list(engine, "mail")]
            [('mail', 3)]
        """
        check_names(limit=name)
        return self._ask(where, partial(read_limits, schema=self._target.schema, name=name))
