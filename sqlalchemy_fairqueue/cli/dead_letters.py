"""``dead``: dead letters listed, shown, redriven and purged."""

# Annotations are read when the program starts, so that they must not be postponed.
import base64
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any

import typer
from rich.text import Text
from sqlalchemy import Engine

from sqlalchemy_fairqueue import PayloadError, Queue
from sqlalchemy_fairqueue.cli.attempts import attempts_document, attempts_parts, error_parts
from sqlalchemy_fairqueue.cli.confirmation import confirm
from sqlalchemy_fairqueue.cli.errors import ExitStatus, not_found_error, usage_error
from sqlalchemy_fairqueue.cli.installation import open_installation
from sqlalchemy_fairqueue.cli.options import Options, Yes, option_parser
from sqlalchemy_fairqueue.cli.results import Result
from sqlalchemy_fairqueue.cli.tables import BLANK, Column, key_values, number_column, text_table
from sqlalchemy_fairqueue.formats import format_duration, parse_duration, plural
from sqlalchemy_fairqueue.times import earlier
from sqlalchemy_fairqueue.values.reports import DeadLetterInfo

Channel = Annotated[str | None, typer.Option("--channel", metavar="NAME", help="Only of this channel.")]
Kind = Annotated[str | None, typer.Option("--kind", metavar="NAME", help="Only of this kind.")]
Ids = Annotated[list[int] | None, typer.Argument(metavar="[ID]...", help="Only these.", show_default=False)]
Everything = Annotated[bool, typer.Option("--all", help="All of the queue.")]

_PAGE = 500
_COLUMNS = (
    number_column("id"),
    Column("channel"),
    Column("kind"),
    Column("ordering key", blank=BLANK),
    number_column("attempts"),
    number_column("died (UTC)"),
    Column("reason"),
    Column("error", blank=BLANK),
)


def list_dead(
    options: Options,
    *,
    channel: Channel = None,
    kind: Kind = None,
    error: Annotated[
        str | None, typer.Option("--error", metavar="TEXT", help="Only with this text in the reason or the error.")
    ] = None,
    since: Annotated[
        timedelta | None,
        typer.Option(
            "--since",
            parser=option_parser(parse_duration),
            metavar="DURATION",
            help="Only those that died within so much time, like 2h.",
        ),
    ] = None,
    until: Annotated[
        timedelta | None,
        typer.Option(
            "--until",
            parser=option_parser(parse_duration),
            metavar="DURATION",
            help="Only those that died longer ago, like 1h.",
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=99_999, metavar="N", help="At most so many.")] = 100,
    after: Annotated[
        int | None, typer.Option("--after", metavar="ID", help="The page after this one: the last id of it.")
    ] = None,
) -> Result:
    """List dead letters, the oldest death first."""
    with open_installation(options) as installation:
        queue = installation.single_queue()
        start = None if after is None else _dead_letter(queue, installation.engine, after)
        now = installation.now() if since is not None or until is not None else None
        found = queue.dead_letters.list(
            installation.engine,
            channel=channel,
            kind=kind,
            error=error,
            since=earlier(now, since) if now is not None and since is not None else None,
            until=earlier(now, until) if now is not None and until is not None else None,
            limit=limit + 1,
            after=start,
        )
    page, more = found[:limit], len(found) > limit
    rows = [
        (str(dead.message_id), dead.channel, dead.kind, dead.ordering_key, str(dead.attempts), dead.died_at,
         dead.reason, error_summary(dead.error))
        for dead in page
    ]  # fmt: skip
    such = "" if error is None and since is None and until is None else "such "
    parts: list[Any] = [Text(_none(queue, channel, kind, after, such))]
    if page:
        parts = [text_table(_COLUMNS, rows)]
    if more:
        parts.append(Text(f"there are more: --after {page[-1].message_id}"))
    return Result(
        {
            "queue": queue.name,
            "dead_letters": [dead_letter_document(dead_letter) for dead_letter in page],
            "more": more,
        },
        tuple(parts),
    )


def show_dead(options: Options, *, message_id: Annotated[int, typer.Argument(metavar="ID", min=1)]) -> Result:
    """Show one dead letter: payload, headers, error with its traceback, and its attempts if the queue records them.

    The payload is decoded as JSON, or by the codec of the application's queue if --app names one.
    """
    with open_installation(options) as installation:
        queue = installation.single_queue()
        dead_letter = _dead_letter(queue, installation.engine, message_id)
        attempts = queue.admin.attempts(installation.engine, message_id)
    deliveries = plural(dead_letter.deliveries, "time")
    rows = [
        ("id", str(dead_letter.message_id)),
        ("queue", dead_letter.queue),
        ("channel", dead_letter.channel),
        ("kind", dead_letter.kind),
        ("key", dead_letter.key),
        ("ordering key", dead_letter.ordering_key),
        ("enqueued (UTC)", dead_letter.enqueued_at),
        ("died (UTC)", dead_letter.died_at),
        ("attempts", f"{dead_letter.attempts} of at most {dead_letter.max_attempts}, handed out {deliveries}"),
        ("reason", dead_letter.reason),
        ("headers", dead_letter.headers),
        ("payload", format_payload(dead_letter)),
    ]
    error = error_parts(dead_letter.error or "no error was kept")
    document = dead_letter_document(dead_letter) | {"history": attempts_document(attempts)}
    return Result(document, (key_values(rows), *attempts_parts(attempts), *error))


def redrive_dead(
    options: Options,
    *,
    ids: Ids = None,
    channel: Channel = None,
    kind: Kind = None,
    everything: Everything = False,
    yes: Yes = False,
) -> Result:
    """Put dead letters back into their channels: due now, attempts counted anew.

    A dead letter stays dead if another message has its key by now. The exit status is 1 when a named one was not put
    back.
    """
    _check_selection(ids, channel, kind, everything=everything)
    with open_installation(options) as installation:
        queue = installation.single_queue()
        if not ids:
            confirm(f"redrive {_selection(queue, channel, kind, None)}?", yes=yes)
        outcomes = dict.fromkeys(("redriven", "duplicate", "missing"), 0)
        details = []
        for page in _pages(queue, installation.engine, ids, channel, kind):
            for message_id, outcome in queue.dead_letters.redrive(installation.engine, page).items():
                outcomes[outcome] += 1
                if outcome != "redriven":
                    details.append({"message_id": message_id, "outcome": outcome})
    lines = [f"{outcomes['redriven']:,} redriven"]
    if not any(outcomes.values()):
        lines = [_none(queue, channel, kind)]
    if outcomes["duplicate"]:
        lines.append(f"{outcomes['duplicate']:,} left as they are: another message holds their key")
    if outcomes["missing"]:
        named = ", ".join(str(detail["message_id"]) for detail in details if detail["outcome"] == "missing")
        lines.append(f"{outcomes['missing']:,} not among the dead letters of queue {queue.name!r}: {named:.200}")
    bad = bool(ids) and outcomes["redriven"] < len(set(ids or ()))
    return Result(
        {"queue": queue.name, **outcomes, "not_redriven": details},
        tuple(Text(line) for line in lines),
        ExitStatus.FOUND if bad else ExitStatus.OK,
    )


def purge_dead(
    options: Options,
    *,
    ids: Ids = None,
    channel: Channel = None,
    kind: Kind = None,
    older_than: Annotated[
        timedelta | None,
        typer.Option(
            "--older-than",
            parser=option_parser(parse_duration),
            metavar="DURATION",
            help="Only those that died before, like 30d.",
        ),
    ] = None,
    everything: Everything = False,
    yes: Yes = False,
) -> Result:
    """Delete dead letters for good. Asks, unless --yes is given."""
    _check_selection(ids, channel, kind, older_than, everything=everything)
    with open_installation(options) as installation:
        queue = installation.single_queue()
        confirm(f"delete {_selection(queue, channel, kind, older_than, ids)} for good?", yes=yes)
        until = None if older_than is None else earlier(installation.now(), older_than)
        purged = queue.dead_letters.purge(installation.engine, ids or None, channel=channel, kind=kind, until=until)
    missing = bool(ids) and purged < len(set(ids or ()))
    return Result(
        {"queue": queue.name, "purged": purged},
        (Text(f"{plural(purged, 'dead letter')} of queue {queue.name!r} deleted"),),
        ExitStatus.FOUND if missing else ExitStatus.OK,
    )


def _dead_letter(queue: Queue, engine: Engine, message_id: int) -> DeadLetterInfo:
    found = queue.dead_letters.list(engine, message_ids=[message_id])
    if not found:
        raise not_found_error(
            f"message {message_id} is no dead letter of queue {queue.name!r}; 'fairqueue dead list' has them"
        )
    return found[0]


def _pages(
    queue: Queue, engine: Engine, ids: list[int] | None, channel: str | None, kind: str | None
) -> Iterator[list[int]]:
    """The ids to redrive, a page at a time, each once: some may stay dead."""
    if ids:
        unique = list(dict.fromkeys(ids))
        yield from (unique[start : start + _PAGE] for start in range(0, len(unique), _PAGE))
        return
    after = None
    while page := queue.dead_letters.list(engine, channel=channel, kind=kind, limit=_PAGE, after=after):
        yield [dead_letter.message_id for dead_letter in page]
        after = page[-1]


def _check_selection(ids: list[int] | None, *restrictions: object, everything: bool) -> None:
    restricted = any(restriction is not None for restriction in restrictions)
    if ids and (restricted or everything):
        raise usage_error("ids and a choice (--channel, --kind, --all, ...) are given; give one of them")
    if not ids and not restricted and not everything:
        raise usage_error("which dead letters? give ids, --channel, --kind or --all")


def _selection(
    queue: Queue, channel: str | None, kind: str | None, older_than: timedelta | None, ids: list[int] | None = None
) -> str:
    where = f"of queue {queue.name!r}"
    if ids:
        return f"{plural(len(set(ids)), 'dead letter')} {where}"
    where += f", channel {channel!r}" if channel is not None else ""
    where += f", kind {kind!r}" if kind is not None else ""
    where += f", dead for {format_duration(older_than)} or longer" if older_than is not None else ""
    return f"all dead letters {where}"


def _none(queue: Queue, channel: str | None, kind: str | None, after: int | None = None, such: str = "") -> str:
    """The sentence where there are no dead letters."""
    where = f" in channel {channel!r}" if channel is not None else ""
    where += f" of kind {kind!r}" if kind is not None else ""
    where += f" after {after}" if after is not None else ""
    return f"queue {queue.name!r} has no {such}dead letters{where}"


_WIDTH = 60


def format_payload(dead_letter: DeadLetterInfo) -> str:
    """The payload as text; its bytes where the codec cannot decode them."""
    try:
        return json.dumps(dead_letter.payload, ensure_ascii=False, default=repr)
    except PayloadError as error:
        return f"{dead_letter.content!r} ({error})"


def dead_letter_document(dead_letter: DeadLetterInfo) -> dict[str, Any]:
    """A dead letter as a JSON document."""
    try:
        payload = json.loads(json.dumps(dead_letter.payload, default=repr))
    except PayloadError:
        payload = None
    return {
        "message_id": dead_letter.message_id,
        "queue": dead_letter.queue,
        "channel": dead_letter.channel,
        "kind": dead_letter.kind,
        "key": dead_letter.key,
        "ordering_key": dead_letter.ordering_key,
        "enqueued_at": dead_letter.enqueued_at,
        "died_at": dead_letter.died_at,
        "attempts": dead_letter.attempts,
        "max_attempts": dead_letter.max_attempts,
        "deliveries": dead_letter.deliveries,
        "reason": dead_letter.reason,
        "error": dead_letter.error,
        "headers": dead_letter.headers,
        "payload": payload,
        "content_base64": base64.b64encode(dead_letter.content).decode(),
    }


def error_summary(error: str | None) -> str | None:
    """The line of an error that says what happened: the last one of a traceback, else the first."""
    lines = [line for line in (error or "").splitlines() if line.strip()]
    if not lines:
        return None
    line = lines[-1] if lines[0].startswith("Traceback") else lines[0]
    return line if len(line) <= _WIDTH else line[: _WIDTH - 1] + "…"
