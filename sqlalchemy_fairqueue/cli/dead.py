"""``dead``: list, show, redrive and purge dead letters."""

# Annotations are read when the program starts, so that they must not be postponed.
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any

import typer
from rich.text import Text
from sqlalchemy import Engine

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.cli.answers import Answer
from sqlalchemy_fairqueue.cli.asking import ask
from sqlalchemy_fairqueue.cli.failures import not_found, usage
from sqlalchemy_fairqueue.cli.letters import error_line, letter_document, payload_words
from sqlalchemy_fairqueue.cli.options import Options, Yes, typed
from sqlalchemy_fairqueue.cli.printing import counted, duration_words, facts
from sqlalchemy_fairqueue.cli.sites import site_of
from sqlalchemy_fairqueue.cli.statuses import Status
from sqlalchemy_fairqueue.cli.tables import NOTHING, Column, listing, number
from sqlalchemy_fairqueue.cli.units import duration
from sqlalchemy_fairqueue.errors import clean
from sqlalchemy_fairqueue.values import DeadLetterInfo

Channel = Annotated[str | None, typer.Option("--channel", metavar="NAME", help="Only of this channel.")]
Kind = Annotated[str | None, typer.Option("--kind", metavar="NAME", help="Only of this kind.")]
Ids = Annotated[list[int] | None, typer.Argument(metavar="[ID]...", help="Only these.", show_default=False)]
Everything = Annotated[bool, typer.Option("--all", help="All of the queue.")]

_PAGE = 500
_COLUMNS = (
    number("id"),
    Column("channel"),
    Column("kind"),
    number("attempts"),
    number("died (UTC)"),
    Column("reason"),
    Column("error", silent=NOTHING),
)


def list_dead(
    options: Options,
    *,
    channel: Channel = None,
    kind: Kind = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, metavar="N", help="At most so many.")] = 100,
    after: Annotated[
        int | None, typer.Option("--after", metavar="ID", help="The page after this one: the last id of it.")
    ] = None,
) -> Answer:
    """List dead letters, the oldest death first."""
    with site_of(options) as site:
        queue = site.one()
        start = None if after is None else _one(queue, site.engine, after)
        found = queue.dead_letters(site.engine, channel=channel, kind=kind, limit=limit + 1, after=start)
    page, more = found[:limit], len(found) > limit
    rows = [
        (str(letter.message_id), letter.channel, letter.kind, f"{letter.attempts}/{letter.max_attempts}",
         letter.died_at, letter.reason, error_line(letter.error))
        for letter in page
    ]  # fmt: skip
    parts: list[Any] = [Text(f"queue {queue.name!r} has no such dead letters")]
    if page:
        parts = [listing(_COLUMNS, rows)]
    if more:
        parts.append(Text(f"there are more: --after {page[-1].message_id}"))
    return Answer(
        {"queue": queue.name, "dead_letters": [letter_document(letter) for letter in page], "more": more}, tuple(parts)
    )


def show_dead(options: Options, *, message_id: Annotated[int, typer.Argument(metavar="ID", min=1)]) -> Answer:
    """Show one dead letter whole: payload, headers, error with its traceback.

    The payload is decoded as JSON, or by the codec of the application's queue if --app names one.
    """
    with site_of(options) as site:
        queue = site.one()
        letter = _one(queue, site.engine, message_id)
    rows = [
        ("id", str(letter.message_id)),
        ("queue", letter.queue),
        ("channel", letter.channel),
        ("kind", letter.kind),
        ("key", letter.key),
        ("enqueued (UTC)", letter.enqueued_at),
        ("died (UTC)", letter.died_at),
        ("attempts", f"{letter.attempts} of {letter.max_attempts}, handed out {counted(letter.deliveries, 'time')}"),
        ("reason", letter.reason),
        ("headers", letter.headers),
        ("payload", payload_words(letter)),
    ]
    error = Text("\n".join(clean(line.expandtabs()) for line in (letter.error or "no error was kept").splitlines()))
    return Answer(letter_document(letter), (facts(rows), Text("error", style="bold"), error))


def redrive_dead(
    options: Options,
    *,
    ids: Ids = None,
    channel: Channel = None,
    kind: Kind = None,
    everything: Everything = False,
    yes: Yes = False,
) -> Answer:
    """Put dead letters back into their channels: due now, attempts counted anew.

    One whose key another message holds by now stays dead. The exit status is 1 when a named one was not put back.
    """
    _check_choice(ids, channel, kind, everything=everything)
    with site_of(options) as site:
        queue = site.one()
        if not ids:
            ask(f"redrive {_which(queue, channel, kind, None)}?", yes=yes)
        outcomes = dict.fromkeys(("redriven", "duplicate", "missing"), 0)
        details = []
        for page in _pages(queue, site.engine, ids, channel, kind):
            for message_id, outcome in queue.redrive(site.engine, page).items():
                outcomes[outcome] += 1
                if outcome != "redriven":
                    details.append({"message_id": message_id, "outcome": outcome})
    lines = [f"{outcomes['redriven']:,} redriven"]
    if outcomes["duplicate"]:
        lines.append(f"{outcomes['duplicate']:,} left as they are: another message holds their key")
    if outcomes["missing"]:
        named = ", ".join(str(detail["message_id"]) for detail in details if detail["outcome"] == "missing")
        lines.append(f"{outcomes['missing']:,} not among the dead letters of queue {queue.name!r}: {named:.200}")
    bad = bool(ids) and outcomes["redriven"] < len(set(ids or ()))
    return Answer(
        {"queue": queue.name, **outcomes, "not_redriven": details},
        tuple(Text(line) for line in lines),
        Status.FOUND if bad else Status.OK,
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
            "--older-than", parser=typed(duration), metavar="DURATION", help="Only those that died before, like 30d."
        ),
    ] = None,
    everything: Everything = False,
    yes: Yes = False,
) -> Answer:
    """Delete dead letters for good. Asks, unless --yes is given."""
    _check_choice(ids, channel, kind, older_than, everything=everything)
    with site_of(options) as site:
        queue = site.one()
        ask(f"delete {_which(queue, channel, kind, older_than, ids)} for good?", yes=yes)
        before = None if older_than is None else site.now() - older_than
        purged = queue.purge_dead(site.engine, ids or None, channel=channel, kind=kind, before=before)
    missing = bool(ids) and purged < len(set(ids or ()))
    return Answer(
        {"queue": queue.name, "purged": purged},
        (Text(f"{counted(purged, 'dead letter')} of queue {queue.name!r} deleted"),),
        Status.FOUND if missing else Status.OK,
    )


def _one(queue: Queue, engine: Engine, message_id: int) -> DeadLetterInfo:
    found = queue.dead_letters(engine, message_ids=[message_id])
    if not found:
        raise not_found(
            f"message {message_id} is no dead letter of queue {queue.name!r}; 'fairqueue dead list' has them"
        )
    return found[0]


def _pages(
    queue: Queue, engine: Engine, ids: list[int] | None, channel: str | None, kind: str | None
) -> Iterator[list[int]]:
    """The ids to redrive, a page at a time: those that stay dead must not stand in the way of the others."""
    if ids:
        unique = list(dict.fromkeys(ids))
        yield from (unique[start : start + _PAGE] for start in range(0, len(unique), _PAGE))
        return
    after = None
    while page := queue.dead_letters(engine, channel=channel, kind=kind, limit=_PAGE, after=after):
        yield [letter.message_id for letter in page]
        after = page[-1]


def _check_choice(ids: list[int] | None, *restrictions: object, everything: bool) -> None:
    restricted = any(restriction is not None for restriction in restrictions)
    if ids and (restricted or everything):
        raise usage("ids and a choice (--channel, --kind, --all, ...) are given; give one of them")
    if not ids and not restricted and not everything:
        raise usage("which dead letters? give ids, --channel, --kind or --all")


def _which(
    queue: Queue, channel: str | None, kind: str | None, older_than: timedelta | None, ids: list[int] | None = None
) -> str:
    where = f"of queue {queue.name!r}"
    if ids:
        return f"{counted(len(set(ids)), 'dead letter')} {where}"
    where += f", channel {channel!r}" if channel is not None else ""
    where += f", kind {kind!r}" if kind is not None else ""
    where += f", dead for {duration_words(older_than)} or longer" if older_than is not None else ""
    return f"all dead letters {where}"
