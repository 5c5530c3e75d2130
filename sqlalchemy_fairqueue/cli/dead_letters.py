"""``dead``: list, show, redrive and purge dead letters."""

# No ``from __future__ import annotations``: the program reads the annotations when it starts.
import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import sleep
from typing import Annotated, Any

from sqlalchemy import Engine

from sqlalchemy_fairqueue import PayloadError, Queue, Rate
from sqlalchemy_fairqueue.cli.errors import ExitStatus, not_found_error, usage_error
from sqlalchemy_fairqueue.cli.installation import Installation, acting, in_queue, open_queue
from sqlalchemy_fairqueue.cli.messages import attempts_document, attempts_parts, error_parts
from sqlalchemy_fairqueue.cli.options import By, Id, Options, Page, Spec, Yes
from sqlalchemy_fairqueue.cli.output import Result, confirm
from sqlalchemy_fairqueue.cli.tables import BLANK, Column, Table, key_values, number_column
from sqlalchemy_fairqueue.database.calls import Target
from sqlalchemy_fairqueue.database.messages import read_dead_letter_groups
from sqlalchemy_fairqueue.formats import format_duration, plural
from sqlalchemy_fairqueue.times import earlier
from sqlalchemy_fairqueue.values.reports import DeadLetterInfo

Ids = Annotated[list[int] | None, Spec(metavar="[ID]...", help="Only these.")]
Everything = Annotated[bool, Spec(names=("--all",), help="All of the queue.")]

_PAGE = 500
_NAMED = 10
"""For each group, the JSON document has the ids of at most this many dead letters, the newest ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Chooses dead letters by what they have in common.

    Attributes:
        channel: Only dead letters of this channel.
        kind: Only dead letters of this kind.
        error: Only dead letters with this text in the reason or the error.
        since: Only messages that died less than this long ago, like 2h.
        until: Only messages that died more than this long ago, like 1h.
    """

    channel: str | None = None
    kind: str | None = None
    error: Annotated[str | None, Spec(metavar="TEXT")] = None
    since: timedelta | None = None
    until: timedelta | None = None

    def __bool__(self) -> bool:
        return any(each is not None for each in (self.channel, self.kind, self.error, self.since, self.until))

    def arguments(self, installation: Installation) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("channel", "kind", "error")} | {
            name: None if age is None else earlier(installation.now(), age)
            for name, age in (("since", self.since), ("until", self.until))
        }

    def of(self, queue: Queue) -> str:
        words = f"of queue {queue.name!r}"
        words += f", channel {self.channel!r}" if self.channel is not None else ""
        words += f", kind {self.kind!r}" if self.kind is not None else ""
        words += f", with {self.error!r}" if self.error is not None else ""
        words += f", dead since {format_duration(self.since)} ago" if self.since is not None else ""
        return words + (f", dead for {format_duration(self.until)} or longer" if self.until is not None else "")

    def none(self, queue: Queue, after: int | None = None) -> str:
        such = "" if self.error is None and self.since is None and self.until is None else "such "
        where = f" in channel {self.channel!r}" if self.channel is not None else ""
        where += f" of kind {self.kind!r}" if self.kind is not None else ""
        where += f" after {after}" if after is not None else ""
        return f"queue {queue.name!r} has no {such}dead letters{where}"


def error_summary(error: str | None) -> str | None:
    lines = [line for line in (error or "").splitlines() if line.strip()]
    if not lines:
        return None
    return lines[-1] if lines[0].startswith("Traceback") else lines[0]


def _payload(dead_letter: DeadLetterInfo) -> Any:
    try:
        return json.loads(json.dumps(dead_letter.payload, default=repr))
    except PayloadError:
        return None


def _payload_text(dead_letter: DeadLetterInfo) -> str:
    try:
        return json.dumps(dead_letter.payload, ensure_ascii=False, default=repr)
    except PayloadError as error:
        return f"{dead_letter.content!r} ({error})"


_TABLE = Table(
    number_column("id", "message_id", shown=str),
    Column("", "queue"),
    *(Column(name) for name in ("channel", "kind")),
    Column("", "key"),
    Column("ordering key", blank=BLANK),
    Column("", "enqueued_at"),
    number_column("attempts", shown=str),
    Column("", "max_attempts"),
    Column("", "deliveries"),
    number_column("died (UTC)", "died_at"),
    Column("reason"),
    Column("error", get=lambda one: one.error, shown=error_summary, blank=BLANK),
    Column("", "headers"),
    Column("", "payload", get=_payload),
    Column("", "content_base64", get=lambda one: base64.b64encode(one.content).decode()),
)


def list_dead(
    options: Options,
    *,
    chosen: Selection,
    limit: Page = 100,
    after: Annotated[int | None, Spec(metavar="ID")] = None,
) -> Result:
    """List dead letters, the oldest death first.

    Options:
        after: The last id of the page before, to show the next page.
    """
    with open_queue(options) as (installation, queue):
        start = None if after is None else _dead_letter(queue, installation.engine, after)
        arguments = chosen.arguments(installation)
        found = queue.dead_letters.list(installation.engine, **arguments, limit=limit + 1, after=start)
    page, more = found[:limit], len(found) > limit
    hint = f"there are more: --after {page[-1].message_id}" if more else None
    return Result(
        {"queue": queue.name, "dead_letters": _TABLE.documents(page), "more": more},
        _TABLE.listing(page, chosen.none(queue, after), hint),
    )


def _groups(now: datetime) -> Table:
    def ago(died_at: datetime) -> str:
        return f"{format_duration(max(now - died_at, timedelta()))} ago"

    return Table(
        number_column("letters"),
        number_column("channels"),
        Column("kind"),
        Column("reason"),
        Column("error", blank=BLANK, wraps=True),
        number_column("first died", "first_died_at", shown=ago),
        number_column("last died", "last_died_at", shown=ago),
        number_column("newest", None, get=lambda one: str(one.message_ids[0]) if one.message_ids else None),
        Column("", "message_ids", get=lambda one: list(one.message_ids)),
    )


def group_dead(options: Options, *, limit: Page = 10_000) -> Result:
    """Count dead letters by kind, reason and error, the most frequent first: what broke, and since when.

    Options:
        limit: The most dead letters to count; older ones are left out.
    """
    with open_queue(options) as (installation, queue), installation.engine.connect() as connection:
        target = Target(installation.schema, queue.name)
        found = read_dead_letter_groups(connection, target, limit=limit, ids=_NAMED)
        table = _groups(installation.now())
    document = {"queue": queue.name, "groups": table.documents(found)}
    return Result(document, table.listing(found, f"queue {queue.name!r} has no dead letters"))


def show_dead(options: Options, message_id: Id) -> Result:
    """Show one dead letter: payload, headers, error with its traceback, and its attempts if the queue records them.

    The payload is decoded as JSON, or by the codec of the application's queue if --app names one.
    """
    with open_queue(options) as (installation, queue):
        found = _dead_letter(queue, installation.engine, message_id)
        attempts = queue.admin.attempts(installation.engine, message_id)
    handed_out = plural(found.deliveries, "time")
    rows = [
        ("id", str(found.message_id)), ("queue", found.queue), ("channel", found.channel), ("kind", found.kind),
        ("key", found.key), ("ordering key", found.ordering_key), ("enqueued (UTC)", found.enqueued_at),
        ("died (UTC)", found.died_at),
        ("attempts", f"{found.attempts} of at most {found.max_attempts}, handed out {handed_out}"),
        ("reason", found.reason), ("headers", found.headers), ("payload", _payload_text(found)),
    ]  # fmt: skip
    return Result(
        _TABLE.document(found) | {"history": attempts_document(attempts)},
        (key_values(rows), *attempts_parts(attempts), *error_parts(found.error or "no error was kept")),
    )


def redrive_dead(
    options: Options,
    ids: Ids = None,
    *,
    chosen: Selection,
    limit: Annotated[int | None, Spec(min=1)] = None,
    rate: Annotated[Rate | None, Spec(metavar="RATE", parse=Rate.parse)] = None,
    everything: Everything = False,
    by: By = None,
    yes: Yes = False,
) -> Result:
    """Put dead letters back into their channels: they are due at once, and their attempts count from zero.

    A dead letter stays dead if another message holds its key. The exit status is 1 if the dead letter of a given id was
    not put back.

    Options:
        limit: The most dead letters to put back, the oldest deaths first.
        rate: The most dead letters to put back in a time, like 50/s. Default: as fast as it goes.
    """
    _check_selection(ids, chosen, limit, everything=everything)
    if rate is not None and rate.of == "cost":
        raise usage_error(f"--rate is {rate.per_time()} of cost; give a rate of dead letters, like 50/s")
    with open_queue(options) as (installation, queue):
        engine = installation.engine
        wanted = list(dict.fromkeys(ids)) if ids else _found(queue, engine, chosen.arguments(installation), limit)
        if wanted and not ids:
            confirm(f"redrive {plural(len(wanted), 'dead letter')} {chosen.of(queue)}?", yes=yes)
        outcomes = dict.fromkeys(("redriven", "duplicate", "missing"), 0)
        details = []
        for page in _pages(wanted, rate):
            redriven: list[int] = []
            with acting(installation, queue, "redrive", by, message_ids=redriven) as connection:
                answers = queue.dead_letters.redrive(connection, page)
                redriven += [message_id for message_id, outcome in answers.items() if outcome == "redriven"]
            for message_id, outcome in answers.items():
                outcomes[outcome] += 1
                if outcome != "redriven":
                    details.append({"message_id": message_id, "outcome": outcome})
    lines = [f"{outcomes['redriven']:,} redriven" if wanted else chosen.none(queue)]
    if outcomes["duplicate"]:
        lines.append(f"{outcomes['duplicate']:,} left as they are: another message holds their key")
    if outcomes["missing"]:
        named = ", ".join(str(detail["message_id"]) for detail in details if detail["outcome"] == "missing")
        lines.append(f"{outcomes['missing']:,} not among the dead letters of queue {queue.name!r}: {named:.200}")
    bad = bool(ids) and outcomes["redriven"] < len(wanted)
    return Result(
        {"queue": queue.name, **outcomes, "not_redriven": details},
        tuple(lines),
        ExitStatus.FOUND if bad else ExitStatus.OK,
    )


def purge_dead(
    options: Options,
    ids: Ids = None,
    *,
    channel: str | None = None,
    kind: str | None = None,
    older_than: timedelta | None = None,
    everything: Everything = False,
    by: By = None,
    yes: Yes = False,
) -> Result:
    """Delete dead letters for good. Asks, unless --yes is given.

    Options:
        channel: Only dead letters of this channel.
        kind: Only dead letters of this kind.
        older_than: Only messages that died more than this long ago, like 30d.
    """
    chosen = Selection(channel=channel, kind=kind, until=older_than)
    _check_selection(ids, chosen, everything=everything)
    with open_queue(options) as (installation, queue):
        named = f"{plural(len(set(ids)), 'dead letter')} of queue {queue.name!r}" if ids else None
        confirm(f"delete {named or f'all dead letters {chosen.of(queue)}'} for good?", yes=yes)
        until = chosen.arguments(installation)["until"]
        details: dict[str, Any] = {"kind": kind, "until": until}
        with acting(
            installation, queue, "purge dead", by, channel=channel, message_ids=ids, details=details
        ) as connection:
            purged = queue.dead_letters.purge(connection, ids or None, channel=channel, kind=kind, until=until)
            details["purged"] = purged
    missing = bool(ids) and purged < len(set(ids or ()))
    return Result(
        {"queue": queue.name, "purged": purged},
        (f"{plural(purged, 'dead letter')} of queue {queue.name!r} deleted",),
        ExitStatus.FOUND if missing else ExitStatus.OK,
    )


def _dead_letter(queue: Queue, engine: Engine, message_id: int) -> DeadLetterInfo:
    found = queue.dead_letters.list(engine, message_ids=[message_id])
    if not found:
        raise not_found_error(
            f"message {message_id} is no dead letter of queue {queue.name!r}; "
            f"'fairqueue dead list {in_queue(queue)}' has them, "
            f"'fairqueue messages show {message_id} {in_queue(queue)}' the others"
        )
    return found[0]


def _found(queue: Queue, engine: Engine, arguments: dict[str, Any], limit: int | None) -> list[int]:
    found: list[int] = []
    after = None
    while limit is None or len(found) < limit:
        most = _PAGE if limit is None else min(_PAGE, limit - len(found))
        page = queue.dead_letters.list(engine, **arguments, limit=most, after=after)
        if not page:
            break
        found += [one.message_id for one in page]
        after = page[-1]
    return found


def _pages(ids: list[int], rate: Rate | None) -> Iterator[list[int]]:
    size = _PAGE if rate is None else max(1, min(_PAGE, timedelta(seconds=1) // rate.interval))
    for start in range(0, len(ids), size):
        if rate is not None and start:
            sleep(size * rate.interval.total_seconds())
        yield ids[start : start + size]


def _check_selection(ids: list[int] | None, chosen: Selection, limit: int | None = None, *, everything: bool) -> None:
    if ids and (chosen or limit or everything):
        raise usage_error("ids and a choice (--channel, --kind, --all, ...) are given; give one of them")
    if not ids and not chosen and not everything:
        raise usage_error("which dead letters? give ids, --channel, --kind or --all")
