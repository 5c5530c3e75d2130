"""Configuration of a queue and its channels, of plans, and of limits that several queues share."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal, Unpack, cast

from sqlalchemy import Engine

from sqlalchemy_fairqueue.database.asynchronous import AsyncEngine
from sqlalchemy_fairqueue.database.configuration import read_limits, read_plans
from sqlalchemy_fairqueue.database.engines import on
from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.queue.base import Facet, QueueBase, RecordedWhere, Where, recorded, verb
from sqlalchemy_fairqueue.unit_of_work import changes as change
from sqlalchemy_fairqueue.values.checks import check_flag, check_name, check_names
from sqlalchemy_fairqueue.values.policies import POLICY, UNSET, ChannelPolicy, Unset, policy_changes, reset_fields
from sqlalchemy_fairqueue.values.settings import LIMITS, SETTINGS, QueueChanges, QueueLimits, setting_changes

if TYPE_CHECKING:
    import builtins
    from collections.abc import Collection

    from sqlalchemy_fairqueue.unit_of_work.operations import Operation
    from sqlalchemy_fairqueue.values.fields import Rate
    from sqlalchemy_fairqueue.values.policies import PolicyChanges
    from sqlalchemy_fairqueue.values.reports import PlanInfo, SharedLimit

_CHUNK = 5000
"""How many channels get a changed plan in one transaction. They are not served until this transaction ends."""


class ConfigurationMethods(QueueBase):
    """configure, configure_channel, pause and resume: recorded on a session, sent at once elsewhere."""

    @recorded
    def configure(self, where: RecordedWhere, **settings: Unpack[QueueChanges]) -> None:
        """Change settings and defaults of the queue. Settings that are not given stay as they are.

        Args:
            defaults: The policy of channels that are created from now on, instead of ``Queue(defaults=...)``. A
                ChannelPolicy replaces the whole policy. A dict such as ``{"max_backlog": 500}`` changes only its
                fields; the first such change starts from ``Queue(defaults=...)``.
            max_concurrency: Most leased messages of the whole queue, in addition to the limits of its channels; no
                dequeue exceeds it. None: no limit. A lowered limit stops deliveries until fewer messages are leased.
            max_cost_out: Most that leased messages cost together, as charged when they were delivered. A message that
                costs more by itself is delivered when no other message of the queue is leased. None: no limit.
            rate: Most messages, or most cost, of the whole queue in a time, such as the quota of an API. A
                :class:`~sqlalchemy_fairqueue.Rate` or its text, ``"50/s"``, ``"100000/min of cost"``. None: no rate.
            limits: The names of at most 16 shared limits, made by ``limits.configure``. All of them apply, in addition
                to the queue's own limits. None: no shared limit.
            history: Whether ``fq_history`` records attempts that begin after the commit.
            history_retention: How long attempts are kept, at least a day. None: 30 days, the initial value.
            dead_letter_retention: How long dead letters are kept before housekeeping deletes them. None: for ever, the
                initial value. A dict such as ``{"parse": timedelta(days=1)}`` changes only the kinds in it. The key
                None sets the time of kinds without their own; the value None removes a kind's own time.
            result_retention: How long the results of handlers are kept, so that :meth:`result` can read them. None: not
                at all, the initial value. Messages that are delivered while this is None get no result.
            default_plan: The name of the plan that channels created from now on follow; ``plans.configure`` makes
                plans. The plan takes precedence over defaults. None: no plan.
            on_dead: What happens to messages of an ordering key when one of them dies after the commit. "continue", the
                initial value: the next ones go on. "hold": they wait until the dead letter is redriven or purged.
            on_dead_kinds: The kinds whose dead letters are reported to :meth:`on_dead` handlers, each by a message.
                Each worker that starts adds the kinds of its on_dead handlers. None: no kind.
            forget_channels_after: Housekeeping deletes a channel, with its count of dropped messages, when it has had
                neither messages nor dead letters for this time. The next enqueue creates the channel anew. Channels
                that are paused or were set by configure_channel stay. None: all stay. Initially 30 days.
            fair_by: What backlogged channels share equally, by weight. "messages", the initial value. "cost": the costs
                that ``enqueue(cost=)`` declares and settlements correct. "seconds": the time that handlers took.

        The call locks the queue's row until the transaction ends, and waits for another configuration of the same
        queue. A missing plan or shared limit raises InvalidArgument; on a session the COMMIT raises it.

        A call with max_concurrency, max_cost_out, rate or limits raises IsolationError under REPEATABLE READ and
        SERIALIZABLE. It waits for dequeues, and the queue is not served until the transaction ends; so keep the
        transaction short and separate. If the queue has one of the four after the call, the call also locks the leased
        messages, and waits for transactions that settle them. Dequeues from such a queue run one by one.

        Example:
            >>> queue.limits.configure(engine, "openai", rate="50/s")
            >>> queue.configure(engine, max_concurrency=50, limits=["openai"], defaults={"max_backlog": 500})
        """
        checked = setting_changes("configure", settings)
        limits = cast("QueueLimits", {name: checked.pop(name) for name in [*checked] if name in LIMITS})
        changes: list[Operation] = []
        if checked:
            changes.append(change.configure(self._target, cast("QueueChanges", checked)))
        if limits:
            changes.append(change.limit(self._target, limits))
        return self._perform(where, changes, None)

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
        """Change the policy of one channel: ``configure_channel(session, "customer-7", max_backlog=500)``.

        Args:
            channel: A missing channel is created with the policy that an enqueue would give it.
            policy: Replaces all fields and takes the channel off its plan. The fields do not count as overridden: if
                the channel follows a plan later, the plan decides all fields.
            plan: The plan that the channel follows from now on. None: no plan; the present values stay. An unknown plan
                raises InvalidArgument; on a session the COMMIT raises it.
            reset: Names of overridden fields, such as ``["weight"]``. From now on the plan decides them again; if the
                channel follows no plan, the queue's configured defaults decide. ``"all"``: every field. After ``"all"``
                with ``plan=None`` the channel counts as never configured, and housekeeping forgets it when it is idle.
            changes: Fields of :class:`~sqlalchemy_fairqueue.ChannelPolicy` to change, instead of a policy. Other fields
                stay. None lifts a limit. A field given here, even as None, overrides the plan until it is reset.

        The change applies from the next dequeue after the commit. If transactions change different fields at the same
        time, all their changes take effect. The call locks the channel's state. If it sets max_concurrency or
        max_cost_out, directly or by a plan, it also locks the leased messages of the channel, and waits for
        transactions that are completing them. The call waits for a transaction that changes or removes the plan. No
        dequeue serves the channel until the transaction of the call ends; so keep that transaction short and separate.

        Example:
            >>> queue.plans.configure(engine, "gold", weight=5)
            >>> queue.configure_channel(engine, "customer-7", plan="gold", max_concurrency=4, rate="10/s")
        """
        check_name("channel", channel)
        fields = reset_fields("configure_channel", reset)
        if policy is not None:
            if plan is not UNSET or fields:
                raise InvalidArgument(
                    "configure_channel has a ChannelPolicy, which replaces all fields and the plan, and a plan or "
                    "fields to reset; give single fields beside those, such as weight=3"
                )
            # A ChannelPolicy overrides no field: a plan that the channel follows later decides all of them.
            plan, fields = None, tuple(POLICY)
        elif not isinstance(plan, Unset):
            plan = SETTINGS["default_plan"].checked("plan", plan)
        named: PolicyChanges = {}
        if policy is not None or changes or (plan is UNSET and not fields):
            named = policy_changes("configure_channel", policy, changes)
        operation = change.configure_channel(self._target, channel, named, plan=plan, reset=fields)
        return self._perform(where, [operation], None)

    @recorded
    def pause(self, where: RecordedWhere, channel: str | None = None, *, new: bool = False) -> None:
        """Stop serving a channel, or the whole queue if channel is None, until it is resumed.

        After the commit no dequeue takes its messages. Leased messages stay with their consumers and may be settled.
        Enqueues continue. A channel is served if neither the channel nor its queue is paused. The call locks the
        queue's row or the channel's state until the transaction ends, and waits if another transaction has locked it.

        A missing channel raises UnknownChannel; on a session the COMMIT raises it. ``new=True`` creates the channel, so
        that you can stop a tenant before its first message.

        Example:
            >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
            >>> queue.pause(engine, "customer-7")
            >>> len(queue.dequeue(engine))
            0
            >>> queue.resume(engine, "customer-7")
        """
        check_names(channel=channel)
        check_flag("new", new)
        return self._perform(where, [change.pause(self._target, channel, new=new)], None)

    @recorded
    def resume(self, where: RecordedWhere, channel: str | None = None) -> None:
        """Serve a paused channel again, or the queue if channel is None. If nothing is paused, the call does nothing.

        The next dequeue after the commit takes messages again. Locks and errors are those of :meth:`pause`.
        """
        check_names(channel=channel)
        return self._perform(where, [change.resume(self._target, channel)], None)


class Plans(Facet[QueueBase]):
    """Plans of a queue, as ``queue.plans``. A plan is a policy with a name, which channels follow.

    Example:
        >>> queue.plans.configure(engine, "gold", weight=5, max_concurrency=20)
        >>> queue.configure_channel(engine, "customer-7", plan="gold")
        >>> [(plan.name, plan.policy.weight, plan.channels) for plan in queue.plans.list(engine)]
        [('gold', 5, 1)]
        >>> queue.plans.remove(engine, "silver")  # there is none
    """

    @recorded
    def configure(
        self, where: RecordedWhere, name: str, policy: ChannelPolicy | None = None, **changes: Unpack[PolicyChanges]
    ) -> None:
        """Create or change a plan: ``queue.plans.configure(session, "gold", ChannelPolicy(weight=5, rate="50/s"))``.

        A channel follows the plan after ``queue.configure_channel(where, channel, plan="gold")``. New channels follow
        it after ``queue.configure(where, default_plan="gold")``. Fields that a channel overrides keep their values.
        *policy* and *changes* are as for :meth:`~sqlalchemy_fairqueue.Queue.configure_channel`. A new plan starts
        without limits.

        Every dequeue after the commit applies the new max_concurrency, rate and weight. The other fields of a channel
        keep their old values until the plan is copied to the channel. Each dequeue copies the plan to up to a thousand
        channels. On an Engine, this call copies the plan to all channels before it returns, except for channels that
        other transactions have locked. In the result of :meth:`list`, the plan's ``spread`` is true once all channels
        have the change.

        The call locks the rows of the queue and the plan until the transaction ends. It waits for another change of the
        plan, and for transactions that put a channel on it. If the plan gives a channel its first max_concurrency or
        max_cost_out, the leased messages of the channel must be counted. While another transaction has such a message
        locked, the count and all deliveries of the channel wait.
        """
        check_name("plan", name)
        operation = change.configure_plan(self._target, name, policy_changes("plans.configure", policy, changes))
        if not isinstance(where, (Engine, AsyncEngine)):
            return self._perform(where, [operation], None)

        def at_once(engine: Engine) -> None:
            self._perform(engine, [operation], None)
            call = self._target.call("fq_spread_plans", "spread the plans of", limit=_CHUNK)
            # Repeat until nothing more can be done now.
            while self._ask(engine, lambda connection: call.rows(connection)[0].due_in == 0):
                pass

        return on(where, at_once)

    @recorded
    def remove(self, where: RecordedWhere, name: str) -> None:
        """Remove a plan, if it exists. A plan in use raises InvalidArgument; on a session the COMMIT raises it."""
        check_name("plan", name)
        return self._perform(where, [change.configure_plan(self._target, name, None)], None)

    @verb
    def list(self, where: Where, name: str | None = None) -> builtins.list[PlanInfo]:
        """Return the plans of the queue, or only *name*, each with the number of channels that follow it."""
        check_names(plan=name)
        return self._ask(where, partial(read_plans, target=self._target, name=name))


class Limits(Facet[QueueBase]):
    """Shared limits, as ``queue.limits``: each holds for the messages of several queues together.

    Example:
        >>> queue.limits.configure(engine, "openai", max_concurrency=20, rate="50/s")
        >>> queue.configure(engine, limits=["openai"])
        >>> [limit.max_concurrency for limit in queue.limits.list(engine, "openai")]
        [20]
        >>> queue.limits.remove(engine, "unused")  # there is none
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
        """Create or change a shared limit: ``queue.limits.configure(session, "openai", rate="50/s")``.

        ``queue.configure(where, limits=["openai"])`` makes a queue of the same schema draw from the limit. Together the
        queues of a limit never exceed it. While all these queues have messages, they get equal parts. What one queue
        does not use, the others get. Dequeues from these queues run one after another. A consumer that waits for a slot
        polls 50 times a second. The call locks the limit. No dequeue serves these queues until the transaction ends.

        Values that are not given stay; None lifts a limit. *max_concurrency* limits how many messages the queues have
        leased together, *max_cost_out* what these messages cost, and *rate* their messages or cost in a time.
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
        """Remove a shared limit, if any. A limit in use raises InvalidArgument; on a session the COMMIT raises it."""
        check_name("limit", name)
        return self._perform(where, [change.configure_limit(self._target, name, None)], None)

    @verb
    def list(self, where: Where, name: str | None = None) -> builtins.list[SharedLimit]:
        """Return the schema's shared limits, or only *name*, each with how many messages its queues have leased."""
        check_names(limit=name)
        return self._ask(where, partial(read_limits, schema=self._target.schema, name=name))
