"""``groups``: list, show and cancel groups of messages."""

# No ``from __future__ import annotations``: the program reads the annotations when it starts.
from enum import StrEnum
from typing import Annotated

from sqlalchemy_fairqueue import InvalidArgument, Queue
from sqlalchemy_fairqueue.cli.errors import not_found_error, usage_error
from sqlalchemy_fairqueue.cli.installation import Installation, acting, in_queue, open_queue
from sqlalchemy_fairqueue.cli.options import By, Options, Page, Spec, Yes
from sqlalchemy_fairqueue.cli.output import Result, confirm
from sqlalchemy_fairqueue.cli.tables import BLANK, Column, Table, number_column
from sqlalchemy_fairqueue.errors import UnknownGroup
from sqlalchemy_fairqueue.formats import plural
from sqlalchemy_fairqueue.values.messages import GroupStatus

GroupId = Annotated[str, Spec(metavar="ID")]


class State(StrEnum):
    """The states of groups."""

    OPEN = "open"
    FINISHED = "finished"


def _state(one: GroupStatus) -> State:
    return State.OPEN if one.finished_at is None else State.FINISHED


_TABLE = Table(
    number_column("id", "group_id", get=lambda one: str(one.id)),
    Column("state", get=_state),
    number_column("members", "total"),
    number_column("pending"),
    number_column("done"),
    number_column("failed", blank=BLANK),
    number_column("cancelled", blank=BLANK),
    number_column("made (UTC)", "created_at"),
    number_column("finished (UTC)", "finished_at", blank=BLANK),
    number_column("follow-up", "message_id", shown=str, blank=BLANK),
    Column("problem", blank=BLANK),
)


def list_groups(
    options: Options,
    *,
    state: Annotated[State | None, Spec(metavar="STATE")] = None,
    limit: Page = 100,
    after: Annotated[str | None, Spec(metavar="ID")] = None,
) -> Result:
    """List the groups of a queue, the newest first, with the counts of this moment.

    Options:
        state: Only open groups, or only finished ones.
        after: Show the next page: the groups after this one.
    """
    with open_queue(options, may_be_new=True) as (installation, queue):
        before = None if after is None else _group(installation, queue, after)
        is_open = None if state is None else state is State.OPEN
        found = queue.groups.list(installation.engine, is_open=is_open, limit=limit + 1, before=before)
    page, more = found[:limit], len(found) > limit
    which = "groups" if state is None else f"{state} groups"
    nothing = f"queue {queue.name!r} has no {which}" + ("" if after is None else " there")
    hint = f"there are more: --after {page[-1].id}, or a higher --limit" if more else None
    document = {"queue": queue.name, "groups": _TABLE.documents(page), "more": more}
    return Result(document, _TABLE.listing(page, nothing, hint))


def show_group(options: Options, group_id: GroupId) -> Result:
    """Show the progress of a group: how many members ended in which way, and the follow-up."""
    with open_queue(options, may_be_new=True) as (installation, queue):
        found = _group(installation, queue, group_id)
    return Result({"queue": queue.name} | _TABLE.document(found), (_TABLE.details(found),))


def cancel_group(options: Options, group_id: GroupId, *, by: By = None, yes: Yes = False) -> Result:
    """Cancel all members of a group that have not ended; the follow-up is enqueued all the same.

    A member that a consumer holds is not delivered again; the consumer may still complete it.
    """
    with open_queue(options, may_be_new=True) as (installation, queue):
        found = _group(installation, queue, group_id)
        confirm(f"cancel {plural(found.pending, 'member')} of group {found.id} of queue {queue.name!r}?", yes=yes)
        with acting(installation, queue, "cancel group", by, details={"group": str(found.id)}) as connection:
            outcome = queue.groups.cancel(connection, found.id)
    held = f"; consumers hold {outcome.leased:,}, and are told" if outcome.leased else ""
    document = {"group_id": str(found.id), "cancelled": outcome.cancelled, "leased": outcome.leased}
    said = f"{plural(outcome.cancelled, 'member')} of group {found.id} cancelled{held}"
    return Result({"queue": queue.name} | document, (said,))


def _group(installation: Installation, queue: Queue, group_id: str) -> GroupStatus:
    try:
        return queue.groups.status(installation.engine, group_id)
    except InvalidArgument as error:
        raise usage_error(str(error)) from error
    except UnknownGroup as error:
        raise not_found_error(f"{error}; 'fairqueue groups list {in_queue(queue)}' shows them") from error
