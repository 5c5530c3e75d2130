"""``configure queue`` and ``configure channel``: policies set by options, or shown where no option is given."""

# Annotations are read when the program starts, so that they must not be postponed.
from dataclasses import replace
from typing import Annotated, Any

import typer
from rich.text import Text

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.cli.errors import usage_error
from sqlalchemy_fairqueue.cli.installation import Installation, channel_not_found, open_installation
from sqlalchemy_fairqueue.cli.option_groups import Prefix
from sqlalchemy_fairqueue.cli.options import Options
from sqlalchemy_fairqueue.cli.policies import (
    PolicyOptions,
    QueueOptions,
    check_contradiction,
    field_rows,
    flag_option,
    policy_document,
    policy_rows,
    reset_option,
    settings_document,
)
from sqlalchemy_fairqueue.cli.results import Result
from sqlalchemy_fairqueue.cli.tables import key_values
from sqlalchemy_fairqueue.database.configuration import queue_settings
from sqlalchemy_fairqueue.values.settings import SETTINGS, QueueSettings


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
    settings: QueueOptions,
    new_channels: Annotated[PolicyOptions, Prefix("channel-", "For new channels: ")],
) -> Result:
    """Set the limits, the history and the default policy of a queue; without an option, show them.

    Options that are not given leave the configuration as it is. The options that begin with --channel set the policy
    of channels that are made from now on; existing channels keep theirs.
    """
    if name is not None and options.queue not in {None, name}:
        raise usage_error(f"two queues are named, {name!r} and --queue {options.queue!r}; name one")
    wanted: dict[str, Any] = settings.changes()
    if defaults := new_channels.changes(prefix="channel-"):
        wanted["defaults"] = defaults
    with open_installation(options if name is None else replace(options, queue=name)) as installation:
        queue = installation.single_queue(may_be_new=bool(wanted))
        before = _settings(installation, queue)
        if wanted:
            queue.configure(installation.engine, **wanted)
        after = _settings(installation, queue)
    return _queue_result(queue, before, after, changed=bool(wanted))


def _queue_result(queue: Queue, before: QueueSettings, after: QueueSettings, *, changed: bool) -> Result:
    rows = field_rows(SETTINGS, after)
    rows += [
        (f"dead letter retention of kind {kind}", SETTINGS["dead_letter_retention"].text(kept))
        for kind, kept in after.dead_letter_retention_by_kind.items()
    ]
    parts: list[Any] = [
        Text(f"queue {queue.name!r}" + (" is configured like this now" if changed else "")),
        key_values(rows),
    ]
    if after.default_plan is None and after.defaults is None:
        parts.append(Text("new channels take the policy that their first enqueue brings"))
    elif after.default_plan is None and after.defaults is not None:
        parts += [Text("new channels start with"), key_values(policy_rows(after.defaults))]
    document = {"queue": queue.name, "changed": before != after, **settings_document(after)}
    return Result(document, tuple(parts))


def _settings(installation: Installation, queue: Queue) -> QueueSettings:
    with installation.engine.connect() as connection:
        found = queue_settings(connection, installation.schema, queue.name)
    return found.get(queue.name, QueueSettings())
