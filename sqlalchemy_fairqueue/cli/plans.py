"""``plans``: plans listed, set and removed."""

# Annotations are read when the program starts, so that they must not be postponed.
from typing import Annotated

import typer
from rich.text import Text

from sqlalchemy_fairqueue import ChannelPolicy, Queue
from sqlalchemy_fairqueue.cli.errors import not_found_error
from sqlalchemy_fairqueue.cli.installation import open_installation
from sqlalchemy_fairqueue.cli.options import Options
from sqlalchemy_fairqueue.cli.policies import PolicyOptions, flag_option, policy_cells, policy_document
from sqlalchemy_fairqueue.cli.results import Result
from sqlalchemy_fairqueue.cli.tables import BLANK, Column, cell, number_column, text_table
from sqlalchemy_fairqueue.values.reports import PlanInfo

_COLUMNS = (
    Column("plan"),
    number_column("channels"),
    *(number_column(name, frozenset({str(value)})) for name, value in policy_cells(ChannelPolicy())),
    Column("state", blank=BLANK),
)

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]


def list_plans(options: Options) -> Result:
    """List the plans of a queue, with their policies and how many channels follow each."""
    with open_installation(options) as installation:
        queue = installation.single_queue(may_be_new=True)
        return _result(queue, queue.plans.list(installation.engine))


def configure_plan(
    options: Options,
    *,
    name: Name,
    policy: PolicyOptions,
    default: Annotated[bool, flag_option("--default", "Channels that are made from now on follow it.")] = False,
) -> Result:
    """Make a plan, or change it; without an option, show it.

    Options that are not given leave the plan as it is. The change holds for all channels that follow it, but for the
    fields that were configured for one alone. Channels follow it by: configure channel NAME --plan PLAN.
    """
    changes = policy.changes()
    with open_installation(options) as installation:
        queue = installation.single_queue(may_be_new=bool(changes))
        if changes:
            queue.plans.configure(installation.engine, name, **changes)
        if default:
            queue.configure(installation.engine, default_plan=name)
        found = queue.plans.list(installation.engine, name)
    if not found:
        raise not_found_error(
            f"queue {queue.name!r} has no plan {name!r}; give options, such as --weight 2, to make it"
        )
    return _result(queue, found)


def remove_plan(options: Options, *, name: Name) -> Result:
    """Remove a plan that no channel follows, and that is not the default of its queue."""
    with open_installation(options) as installation:
        queue = installation.single_queue()
        if not queue.plans.list(installation.engine, name):
            raise not_found_error(f"queue {queue.name!r} has no plan {name!r}")
        queue.plans.remove(installation.engine, name)
        return _result(queue, queue.plans.list(installation.engine))


def _result(queue: Queue, found: list[PlanInfo]) -> Result:
    rows = [
        [
            cell(one.name, "bold"),
            cell(one.channels),
            *(value for _, value in policy_cells(one.policy)),
            cell(_state(one)),
        ]
        for one in found
    ]
    documents = [
        {
            "name": one.name,
            "channels": one.channels,
            "is_default": one.is_default,
            "spread": one.spread,
            "policy": policy_document(one.policy),
        }
        for one in found
    ]
    nothing = Text(f"queue {queue.name!r} has no plans")
    return Result({"queue": queue.name, "plans": documents}, (text_table(_COLUMNS, rows) if rows else nothing,))


def _state(plan: PlanInfo) -> str:
    states = [*(["default"] if plan.is_default else []), *([] if plan.spread else ["being brought to its channels"])]
    return ", ".join(states)
