"""``groups``: groups of messages listed, shown and cancelled."""

# Annotations are read when the program starts, so that they must not be postponed.
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.text import Text

from sqlalchemy_fairqueue import InvalidArgument, Queue
from sqlalchemy_fairqueue.cli.confirmation import confirm
from sqlalchemy_fairqueue.cli.errors import not_found_error, usage_error
from sqlalchemy_fairqueue.cli.installation import Installation, open_installation
from sqlalchemy_fairqueue.cli.options import Options, Yes
from sqlalchemy_fairqueue.cli.results import Result
from sqlalchemy_fairqueue.cli.tables import BLANK, Column, key_values, number_column, text_table
from sqlalchemy_fairqueue.errors import UnknownGroup
from sqlalchemy_fairqueue.formats import plural
from sqlalchemy_fairqueue.values.messages import GroupStatus

GroupId = Annotated[str, typer.Argument(metavar="ID", show_default=False)]

_COLUMNS = (
    number_column("id"),
    Column("state"),
    number_column("members"),
    number_column("pending"),
    number_column("done"),
    number_column("failed", blank=BLANK),
    number_column("cancelled", blank=BLANK),
    number_column("made (UTC)"),
    number_column("finished (UTC)", blank=BLANK),
    number_column("follow-up", blank=BLANK),
    Column("problem", blank=BLANK),
)


class State(StrEnum):
    """The states of groups."""

    OPEN = "open"
    FINISHED = "finished"


def list_groups(
    options: Options,
    *,
    state: Annotated[
        State | None, typer.Option("--state", metavar="STATE", help="Only open or only finished ones.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=99_999, metavar="N", help="At most so many.")] = 100,
    after: Annotated[str | None, typer.Option("--after", metavar="ID", help="The page after this group.")] = None,
) -> Result:
    """List the groups of a queue, the newest first, with the counts of this moment."""
    with open_installation(options) as installation:
        queue = installation.single_queue(may_be_new=True)
        found = queue.groups.list(
            installation.engine,
            is_open=None if state is None else state is State.OPEN,
            limit=limit + 1,
            before=None if after is None else _group(installation, queue, after),
        )
    page, more = found[:limit], len(found) > limit
    rows = [
        (str(one.id), _state(one), one.total, one.pending, one.done, one.failed, one.cancelled, one.created_at,
         one.finished_at, None if one.message_id is None else str(one.message_id), one.problem)
        for one in page
    ]  # fmt: skip
    which = "groups" if state is None else f"{state} groups"
    parts: list[Any] = [Text(f"queue {queue.name!r} has no {which}" + ("" if after is None else " there"))]
    if page:
        parts = [text_table(_COLUMNS, rows)]
    if more:
        parts.append(Text(f"there are more: --after {page[-1].id}, or a higher --limit"))
    return Result({"queue": queue.name, "groups": [_document(one) for one in page], "more": more}, tuple(parts))


def show_group(options: Options, *, group_id: GroupId) -> Result:
    """Show how far a group is: its members by what has become of them, and what followed it."""
    with open_installation(options) as installation:
        queue = installation.single_queue(may_be_new=True)
        found = _group(installation, queue, group_id)
    rows = [
        ("id", str(found.id)),
        ("queue", queue.name),
        ("state", _state(found)),
        ("members", found.total),
        ("pending", found.pending),
        ("done", found.done),
        ("failed", found.failed),
        ("cancelled", found.cancelled),
        ("made (UTC)", found.created_at),
        ("finished (UTC)", found.finished_at),
        ("follow-up", None if found.message_id is None else str(found.message_id)),
        ("problem", found.problem),
    ]
    return Result({"queue": queue.name} | _document(found), (key_values([row for row in rows if row[1] is not None]),))


def cancel_group(options: Options, *, group_id: GroupId, yes: Yes = False) -> Result:
    """Withdraw all members of a group that have not ended. What follows the group is enqueued all the same.

    Members that consumers hold are gone unless their consumers complete them.
    """
    with open_installation(options) as installation:
        queue = installation.single_queue(may_be_new=True)
        found = _group(installation, queue, group_id)
        confirm(f"cancel {plural(found.pending, 'member')} of group {found.id} of queue {queue.name!r}?", yes=yes)
        outcome = queue.groups.cancel(installation.engine, found.id)
    held = f"; consumers hold {outcome.leased:,}, and are told" if outcome.leased else ""
    said = f"{plural(outcome.cancelled, 'member')} of group {found.id} cancelled{held}"
    document = {
        "queue": queue.name,
        "group_id": str(found.id),
        "cancelled": outcome.cancelled,
        "leased": outcome.leased,
    }
    return Result(document, (Text(said),))


def _group(installation: Installation, queue: Queue, group_id: str) -> GroupStatus:
    try:
        return queue.groups.status(installation.engine, group_id)
    except InvalidArgument as error:
        raise usage_error(str(error)) from error
    except UnknownGroup as error:
        raise not_found_error(f"{error}; 'fairqueue groups list' shows them") from error


def _state(one: GroupStatus) -> State:
    return State.OPEN if one.finished_at is None else State.FINISHED


def _document(one: GroupStatus) -> dict[str, Any]:
    return {
        "group_id": str(one.id),
        "state": _state(one),
        "total": one.total,
        "pending": one.pending,
        "done": one.done,
        "failed": one.failed,
        "cancelled": one.cancelled,
        "created_at": one.created_at,
        "finished_at": one.finished_at,
        "message_id": one.message_id,
        "problem": one.problem,
    }
