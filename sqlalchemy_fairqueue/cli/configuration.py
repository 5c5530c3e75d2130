"""``configure``, ``plans`` and ``limits``: set or show how a queue, a channel, a plan or a shared limit is served."""

# No ``from __future__ import annotations``: the program reads the annotations when it starts.
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from sqlalchemy_fairqueue import ChannelPolicy, Queue
from sqlalchemy_fairqueue.cli.errors import not_found_error, usage_error
from sqlalchemy_fairqueue.cli.installation import Installation, acting, channel_not_found, open_installation, open_queue
from sqlalchemy_fairqueue.cli.options import By, Options, Prefix, Spec
from sqlalchemy_fairqueue.cli.output import Result
from sqlalchemy_fairqueue.cli.policies import (
    FieldOptions,
    PolicyOptions,
    QueueOptions,
    Reset,
    check_contradiction,
    field_rows,
    plain,
    policy_document,
    policy_rows,
    settings_document,
    with_options,
)
from sqlalchemy_fairqueue.cli.tables import BLANK, Column, Table, key_values, number_column
from sqlalchemy_fairqueue.database.configuration import queue_settings
from sqlalchemy_fairqueue.values.fields import Definition
from sqlalchemy_fairqueue.values.policies import POLICY
from sqlalchemy_fairqueue.values.reports import PlanInfo
from sqlalchemy_fairqueue.values.settings import SETTINGS, QueueSettings


def configure_channel(
    options: Options,
    channel: Annotated[str, Spec(metavar="CHANNEL")],
    *,
    policy: PolicyOptions,
    plan: str | None = None,
    no_plan: bool = False,
    reset: Reset = None,
    by: By = None,
) -> Result:
    """Set how a channel is served; without an option, show it.

    Options that are not given leave the policy as it is. If an option is given, a missing channel is made with the
    defaults of its queue. The change takes effect on the next dequeue. A value that an option sets overrides the plan
    of the channel, until the field is reset.

    Options:
        plan: Follow this plan.
        no_plan: Follow no plan; the channel keeps the values that it has now.
    """
    check_contradiction("plan", given=plan is not None, removed=no_plan)
    wanted: dict[str, Any] = dict(policy.changes())
    if plan is not None or no_plan:
        wanted["plan"] = plan
    if reset:
        wanted["reset"] = "all" if "all" in reset else reset
    with open_queue(options, may_be_new=bool(wanted)) as (installation, queue):
        found = queue.channels(installation.engine, channel=channel)
        if not found and not wanted:
            raise channel_not_found(queue, channel)
        before = found[0] if found else None
        if wanted:
            with acting(installation, queue, "configure", by, channel=channel, details=wanted) as connection:
                queue.configure_channel(connection, channel, **wanted)
            found = queue.channels(installation.engine, channel=channel)
    after = found[0]
    what = f"channel {channel!r} of queue {queue.name!r}"
    rows = policy_rows(after.policy)
    if after.plan is not None:
        rows = [("plan", after.plan), *rows, ("its own", ", ".join(after.overridden) or None)]
    changed = any(getattr(before, name, None) != getattr(after, name) for name in ("policy", "plan", "overridden"))
    document = {
        "queue": queue.name, "channel": channel, "created": before is None, "changed": changed,
        "policy": policy_document(after.policy), "plan": after.plan, "overridden": list(after.overridden),
    }  # fmt: skip
    return Result(document, (what + (" is served like this now" if wanted else ""), key_values(rows)))


def configure_queue(
    options: Options,
    name: Annotated[str | None, Spec(metavar="[QUEUE]")] = None,
    *,
    settings: QueueOptions,
    new_channels: Annotated[PolicyOptions, Prefix("channel-", "For new channels: ")],
    by: By = None,
) -> Result:
    """Set the limits, the history and the default policy of a queue; without an option, show them.

    Options that are not given leave the configuration as it is. The options that begin with --channel set the policy
    of channels that are made from now on; existing channels keep theirs.

    Options:
        name: The queue, as with --queue.
    """
    if name is not None and options.queue not in {None, name}:
        raise usage_error(f"two queues are named, {name!r} and --queue {options.queue!r}; name one")
    wanted: dict[str, Any] = settings.changes()
    if defaults := new_channels.changes(prefix="channel-"):
        wanted["defaults"] = defaults
    named = options if name is None else replace(options, queue=name)
    with open_queue(named, may_be_new=bool(wanted)) as (installation, queue):
        before = _settings(installation, queue)
        if wanted:
            with acting(installation, queue, "configure", by, details=wanted) as connection:
                queue.configure(connection, **wanted)
        after = _settings(installation, queue)
    rows = field_rows(SETTINGS, after) + [
        (f"dead letter retention of kind {kind}", SETTINGS["dead_letter_retention"].text(kept))
        for kind, kept in after.dead_letter_retention_by_kind.items()
    ]
    parts: list[Any] = [
        f"queue {queue.name!r}" + (" is configured like this now" if wanted else ""),
        key_values(rows),
    ]
    if after.default_plan is None and after.defaults is None:
        parts.append("new channels take the policy that their first enqueue brings")
    elif after.default_plan is None and after.defaults is not None:
        parts += ["new channels start with", key_values(policy_rows(after.defaults))]
    return Result({"queue": queue.name, "changed": before != after, **settings_document(after)}, tuple(parts))


def _settings(installation: Installation, queue: Queue) -> QueueSettings:
    with installation.engine.connect() as connection:
        found = queue_settings(connection, installation.schema, queue.name)
    return found.get(queue.name, QueueSettings())


def _plan_state(plan: PlanInfo) -> str:
    states = [*(["default"] if plan.is_default else []), *([] if plan.spread else ["being brought to its channels"])]
    return ", ".join(states)


def _policy_cell(plan: PlanInfo, name: str, definition: Definition) -> str:
    value = getattr(plan.policy, name)
    return "-" if value is None else definition.text(value)


def _policy_column(name: str, definition: Definition) -> Column:
    get = partial(_policy_cell, name=name, definition=definition)
    usual = getattr(ChannelPolicy(), name)
    blank = frozenset({"-" if usual is None else definition.text(usual)})
    return number_column(name.replace("_", " "), None, get=get, blank=blank)


_PLANS = Table(
    Column("plan", "name", style="bold"),
    number_column("channels"),
    Column("", "is_default"),
    Column("", "spread"),
    Column("", "policy", get=lambda one: policy_document(one.policy)),
    *(_policy_column(name, definition) for name, definition in POLICY.items()),
    Column("state", None, get=_plan_state, blank=BLANK),
)


def list_plans(options: Options) -> Result:
    """List the plans of a queue, with their policies and how many channels follow each."""
    with open_queue(options, may_be_new=True) as (installation, queue):
        return _plans(queue, queue.plans.list(installation.engine))


def configure_plan(
    options: Options, name: str, *, policy: PolicyOptions, default: bool = False, by: By = None
) -> Result:
    """Make a plan, or change it; without an option, show it.

    Options that are not given leave the plan as it is. A change applies to all channels that follow the plan, except
    for fields that a channel has of its own. To let a channel follow the plan: configure channel NAME --plan PLAN.

    Options:
        default: Let channels that are made from now on follow this plan.
    """
    changes = policy.changes()
    with open_queue(options, may_be_new=bool(changes)) as (installation, queue):
        if changes:
            # Given an engine, configure copies the plan to its channels at once; given a connection, dequeues do.
            queue.plans.configure(installation.engine, name, **changes)
            details = {"plan": name, **changes}
            queue.admin.record_audit(installation.engine, "configure plan", by=by, details=details)
        if default:
            with acting(installation, queue, "configure", by, details={"default_plan": name}) as connection:
                queue.configure(connection, default_plan=name)
        found = queue.plans.list(installation.engine, name)
    if not found:
        raise not_found_error(
            f"queue {queue.name!r} has no plan {name!r}; give options, such as --weight 2, to make it"
        )
    return _plans(queue, found)


def remove_plan(options: Options, name: str, *, by: By = None) -> Result:
    """Remove a plan that no channel follows, and that is not the default of its queue."""
    with open_queue(options) as (installation, queue):
        if not queue.plans.list(installation.engine, name):
            raise not_found_error(f"queue {queue.name!r} has no plan {name!r}")
        with acting(installation, queue, "remove plan", by, details={"plan": name}) as connection:
            queue.plans.remove(connection, name)
        return _plans(queue, queue.plans.list(installation.engine))


def _plans(queue: Queue, found: Sequence[PlanInfo]) -> Result:
    document = {"queue": queue.name, "plans": _PLANS.documents(found)}
    return Result(document, _PLANS.listing(found, f"queue {queue.name!r} has no plans"))


_LIMITS = Table(
    Column("limit", "name", style="bold"),
    number_column("leased", "current_concurrency"),
    number_column("max concurrency", blank=BLANK),
    number_column("cost out", None, get=lambda one: one.max_cost_out and one.current_cost, blank=BLANK),
    Column("", "current_cost"),
    number_column("max cost out", blank=BLANK),
    Column("", "rate", get=lambda one: plain(one.rate)),
    number_column("rate", None, get=lambda one: one.rate and one.rate.per_time(), blank=BLANK),
    number_column("burst", None, get=lambda one: one.rate and one.rate.burst, blank=BLANK),
    Column("queues", get=lambda one: list(one.queues), shown=", ".join, blank=BLANK),
)


@with_options(
    {
        name: replace(SETTINGS[name], help=SETTINGS[name].help.replace("the whole queue", "all its queues"))
        for name in ("max_concurrency", "max_cost_out", "rate")
    }
)
class LimitOptions(FieldOptions):
    """Options that change a shared limit."""


def limits(options: Options) -> Result:
    """Show the limits that several queues share, how much of each is in use, and which queues draw from it."""
    return _limits(options, None, {}, None, remove=False)


def configure_limit(
    options: Options, name: str, *, limits: LimitOptions, remove: bool = False, by: By = None
) -> Result:
    """Make a limit that several queues share, or change it; without an option, show it.

    Options that are not given leave the limit as it is. To let a queue draw from it: configure queue --limit NAME.

    Options:
        remove: Remove the limit, if no queue draws from it.
    """
    wanted = limits.changes()
    if remove and wanted:
        raise usage_error("--remove and a limit contradict each other; give one of them")
    return _limits(options, name, wanted, by, remove=remove)


def _limits(options: Options, name: str | None, wanted: dict[str, Any], by: str | None, *, remove: bool) -> Result:
    with open_installation(options) as installation:
        # Limits belong to the installation, so any queue of it can ask for them.
        facet = Queue("limits", schema=installation.schema).limits
        if name is not None and not wanted and not facet.list(installation.engine, name):
            raise not_found_error(
                f"schema {installation.schema!r} has no shared limit {name!r}; give options, such as --rate, to make it"
            )
        if name is not None and (remove or wanted):
            what, details = "remove limit" if remove else "configure limit", {"limit": name, **wanted}
            with acting(installation, None, what, by, details=details) as connection:
                if remove:
                    facet.remove(connection, name)
                else:
                    facet.configure(connection, name, **wanted)
        found = facet.list(installation.engine, name)
        nothing = f"schema {installation.schema!r} has no shared limit{f' {name!r}' if name else 's'}"
    return Result({"limits": _LIMITS.documents(found)}, _LIMITS.listing(found, nothing))
