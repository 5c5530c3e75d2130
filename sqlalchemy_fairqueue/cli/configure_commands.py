"""``configure queue`` and ``configure channel``: policies set by options, or shown where no option is given."""

# Annotations are read when the program starts, so that they must not be postponed.
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Any

import typer
from rich.text import Text

from sqlalchemy_fairqueue import Queue, database
from sqlalchemy_fairqueue.cli.errors import usage_error
from sqlalchemy_fairqueue.cli.formats import parse_duration
from sqlalchemy_fairqueue.cli.installation import Installation, channel_not_found, open_installation
from sqlalchemy_fairqueue.cli.option_groups import Prefix
from sqlalchemy_fairqueue.cli.options import Options, option_parser
from sqlalchemy_fairqueue.cli.policies import (
    PolicyOptions,
    check_contradiction,
    count_option,
    dead_letter_option,
    fair_by_option,
    flag_option,
    forget_option,
    limit_changes,
    limit_option,
    policy_document,
    policy_rows,
    rate_changes,
    rate_document,
    rate_option,
    reset_option,
    results_option,
)
from sqlalchemy_fairqueue.cli.results import Result
from sqlalchemy_fairqueue.cli.tables import key_values
from sqlalchemy_fairqueue.database import QueueConfiguration


def configure_channel(
    options: Options,
    *,
    channel: Annotated[str, typer.Argument(metavar="CHANNEL")],
    policy: PolicyOptions,
    plan: Annotated[
        str | None, typer.Option("--plan", metavar="NAME", help="Follow this plan.", show_default=False)
    ] = None,
    no_plan: Annotated[bool, flag_option("--no-plan", "Follow no plan; the values stay.")] = False,
    reset: Annotated[list[str] | None, reset_option("--reset")] = None,
) -> Result:
    """Set how a channel is served; without an option, show it.

    Options that are not given leave the policy as it is. A channel that does not exist is made, with the defaults of
    its queue. The change takes effect on the next dequeue. What an option sets is the channel's own, whatever plan it
    follows, until it is reset.
    """
    check_contradiction("plan", given=plan is not None, removed=no_plan)
    wanted: dict[str, Any] = dict(policy.changes())
    if plan is not None or no_plan:
        wanted["plan"] = plan
    if reset:
        wanted["reset"] = "all" if "all" in reset else reset
    with open_installation(options) as installation:
        queue = installation.single_queue(may_be_new=bool(wanted))
        found = queue.channels(installation.engine, channel=channel)
        if not found and not wanted:
            raise channel_not_found(queue, channel)
        before = found[0] if found else None
        if wanted:
            queue.configure_channel(installation.engine, channel, **wanted)
            found = queue.channels(installation.engine, channel=channel)
    after = found[0]
    what = f"channel {channel!r} of queue {queue.name!r}"
    rows = policy_rows(after.policy)
    if after.plan is not None:
        rows = [("plan", after.plan), *rows, ("its own", ", ".join(after.overridden) or None)]
    return Result(
        {
            "queue": queue.name,
            "channel": channel,
            "created": before is None,
            "changed": before is None
            or (before.policy, before.plan, before.overridden) != (after.policy, after.plan, after.overridden),
            "policy": policy_document(after.policy),
            "plan": after.plan,
            "overridden": list(after.overridden),
        },
        (Text(what + (" is served like this now" if wanted else "")), key_values(rows)),
    )


def configure_queue(
    options: Options,
    *,
    name: Annotated[
        str | None, typer.Argument(metavar="[QUEUE]", help="The queue, as by --queue.", show_default=False)
    ] = None,
    max_concurrency: Annotated[
        Any, limit_option("--max-concurrency", "Most messages of the whole queue out at once.")
    ] = None,
    no_max_concurrency: Annotated[bool, flag_option("--no-max-concurrency", "No limit for the whole queue.")] = False,
    rate: Annotated[Any, rate_option("--rate")] = None,
    burst: Annotated[
        int | None,
        count_option("--burst", "Messages that may come in a row before that rate applies."),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            "--limit", metavar="NAME", help="Draw from this shared limit. Repeatable; instead of those before."
        ),
    ] = None,
    no_limit: Annotated[bool, flag_option("--no-limit", "Draw from no shared limit.")] = False,
    history: Annotated[
        bool | None, typer.Option("--history/--no-history", help="Record every attempt.", show_default=False)
    ] = None,
    retention: Annotated[
        timedelta | None,
        typer.Option(
            "--retention",
            parser=option_parser(parse_duration),
            metavar="DURATION",
            help="How long the history is kept, like 30d.",
        ),
    ] = None,
    dead_letter_retention: Annotated[list[Any] | None, dead_letter_option("--dead-letter-retention")] = None,
    results: Annotated[Any, results_option("--results")] = None,
    default_plan: Annotated[
        str | None,
        typer.Option("--default-plan", metavar="NAME", help="New channels follow this plan.", show_default=False),
    ] = None,
    no_default_plan: Annotated[bool, flag_option("--no-default-plan", "New channels follow no plan.")] = False,
    forget_channels_after: Annotated[Any, forget_option("--forget-channels-after")] = None,
    fair_by: Annotated[str | None, fair_by_option("--fair-by")] = None,
    new_channels: Annotated[PolicyOptions, Prefix("channel-", "For new channels: ")],
) -> Result:
    """Set the limits, the history and the default policy of a queue; without an option, show them.

    Options that are not given leave the configuration as it is. The options that begin with --channel set the policy
    of channels that are made from now on; existing channels keep theirs.
    """
    if name is not None and options.queue not in {None, name}:
        raise usage_error(f"two queues are named, {name!r} and --queue {options.queue!r}; name one")
    changes = new_channels.changes(prefix="channel-")
    wanted: dict[str, Any] = limit_changes("max_concurrency", max_concurrency, removed=no_max_concurrency)
    wanted |= rate_changes(rate, burst)
    check_contradiction("limit", given=bool(limit), removed=no_limit)
    if limit or no_limit:
        wanted["limits"] = limit
    check_contradiction("default_plan", given=default_plan is not None, removed=no_default_plan)
    if default_plan is not None or no_default_plan:
        wanted["default_plan"] = default_plan
    plain = {"history": history, "history_retention": retention, "fair_by": fair_by, "defaults": changes or None}
    wanted |= {name: value for name, value in plain.items() if value is not None}
    if dead_letter_retention:
        wanted["dead_letter_retention"] = dict(dead_letter_retention)
    if forget_channels_after is not None:
        wanted["forget_channels_after"] = None if forget_channels_after == "none" else forget_channels_after
    if results is not None:
        wanted["results"] = None if results == "none" else results
    with open_installation(options if name is None else replace(options, queue=name)) as installation:
        queue = installation.single_queue(may_be_new=bool(wanted))
        before = _configuration(installation, queue)
        if wanted:
            queue.configure(installation.engine, **wanted)
        after = _configuration(installation, queue)
    return _queue_result(queue, before, after, changed=bool(wanted))


def _queue_result(queue: Queue, before: QueueConfiguration, after: QueueConfiguration, *, changed: bool) -> Result:
    rows: list[tuple[str, object]] = [
        ("max concurrency", after.max_concurrency),
        ("rate", after.rate and after.rate.per_time()),
        ("burst", after.rate and after.rate.burst),
        *((("shared limits", ", ".join(after.limits)),) if after.limits else ()),
        *((("fair by", after.fair_by),) if after.fair_by != "messages" else ()),
        ("history", after.history),
        ("retention", after.history_retention or (timedelta(days=30) if after.history else None)),
    ]
    rows += [
        ("dead letters", after.dead_letter_retention or "kept"),
        *(
            []
            if after.forget_channels_after == timedelta(days=30)
            else [("idle channels", after.forget_channels_after or "kept")]
        ),
        *((("results", after.results),) if after.results is not None else ()),
        *((f"dead letters of kind {kind}", kept) for kind, kept in after.dead_letter_retention_by_kind.items()),
    ]
    parts: list[Any] = [
        Text(f"queue {queue.name!r}" + (" is configured like this now" if changed else "")),
        key_values(rows),
    ]
    if after.default_plan is not None:
        parts.append(Text(f"new channels follow the plan {after.default_plan!r}"))
    elif after.defaults is None:
        parts.append(Text("new channels take the policy that their first enqueue brings"))
    else:
        parts += [Text("new channels start with"), key_values(policy_rows(after.defaults))]
    return Result(
        {
            "queue": queue.name,
            "changed": before != after,
            "max_concurrency": after.max_concurrency,
            "rate": rate_document(after.rate),
            "limits": list(after.limits),
            "fair_by": after.fair_by,
            "history": after.history,
            "history_retention_seconds": after.history_retention,
            "dead_letter_retention_seconds": after.dead_letter_retention,
            "dead_letter_retention_seconds_by_kind": dict(after.dead_letter_retention_by_kind),
            "result_retention_seconds": after.results,
            "forget_channels_after_seconds": after.forget_channels_after,
            "default_plan": after.default_plan,
            "defaults": None if after.defaults is None else policy_document(after.defaults),
        },
        tuple(parts),
    )


def _configuration(installation: Installation, queue: Queue) -> QueueConfiguration:
    with installation.engine.connect() as connection:
        found = database.queue_settings(connection, installation.schema, queue.name)
    return found.get(queue.name, QueueConfiguration())
