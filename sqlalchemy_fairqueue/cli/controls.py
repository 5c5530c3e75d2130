"""``pause``, ``resume``, ``purge`` and ``erase``: intervene in a queue that is served."""

# No ``from __future__ import annotations``: the program reads the annotations when it starts.
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import Annotated, Any

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.cli.errors import ExitStatus, not_found_error, usage_error
from sqlalchemy_fairqueue.cli.installation import (
    Installation,
    acting,
    channel_not_found,
    in_queue,
    open_installation,
    open_queue,
)
from sqlalchemy_fairqueue.cli.options import By, Options, Spec, Yes
from sqlalchemy_fairqueue.cli.output import Result, confirm, console
from sqlalchemy_fairqueue.cli.tables import Column, Table, number_column
from sqlalchemy_fairqueue.doctor.installation import current_role
from sqlalchemy_fairqueue.formats import format_duration, plural
from sqlalchemy_fairqueue.times import earlier

Channel = Annotated[str | None, Spec(metavar="CHANNEL", help="One channel. Default: the whole queue.")]
AllQueues = Annotated[bool, Spec(help="The channel in every queue of the schema.")]


def pause(
    options: Options, channel: Channel = None, *, new: bool = False, all_queues: AllQueues = False, by: By = None
) -> Result:
    """Stop serving a queue, or one channel of it.

    Messages can be enqueued meanwhile, and consumers keep the messages that they have leased. The pause takes effect on
    the next dequeue. In an incident, --all-queues stops a tenant everywhere.

    Options:
        new: Make the channel if it does not exist.
    """
    return _set_paused(options, channel, by, paused=True, new=new, all_queues=all_queues)


def resume(options: Options, channel: Channel = None, *, all_queues: AllQueues = False, by: By = None) -> Result:
    """Serve a paused queue or channel again."""
    return _set_paused(options, channel, by, paused=False, new=False, all_queues=all_queues)


def _set_paused(
    options: Options, channel: str | None, by: str | None, *, paused: bool, new: bool, all_queues: bool
) -> Result:
    if all_queues and channel is None:
        raise usage_error("--all-queues needs a channel; name it, or give --queue to pause or resume a whole queue")
    if all_queues and options.queue:
        raise usage_error("--all-queues and --queue are given; give one of them")
    with open_installation(options) as installation:
        names = installation.queue_names() if all_queues else ()
        queues = [*map(installation.queue, names)] if all_queues else [installation.single_queue(may_be_new=new)]
        changed, blocked = {}, []
        for queue in queues:
            engine = installation.engine
            found = [queue.stats(engine)] if channel is None else queue.channels(engine, channel)
            if not found and not new:
                continue
            since = found[0].paused_at if found else None
            changed[queue.name] = (since is not None) is not paused
            if changed[queue.name]:
                verb: Any = partial(queue.pause, new=new) if paused else queue.resume
                with acting(installation, queue, "pause" if paused else "resume", by, channel=channel) as connection:
                    verb(connection, channel)
            if channel is not None and not paused and queue.stats(engine).paused_at is not None:
                blocked.append(f"queue {queue.name!r} is paused all the same: 'fairqueue resume {in_queue(queue)}'")
        if not changed and all_queues:
            raise not_found_error(f"no queue of schema {installation.schema!r} has a channel {channel!r}")
    if not changed:
        raise channel_not_found(queues[0], str(channel))
    whose = "queue" if channel is None else f"channel {channel!r} of queue"
    lines = [_said(f"{whose} {name!r}", paused, done) for name, done in changed.items()]
    documents = [{"queue": name, "changed": done} for name, done in changed.items()]
    document = {"channel": channel, "paused": paused}
    return Result(document | ({"queues": documents} if all_queues else documents[0]), (*lines, *blocked))


def _said(what: str, paused: bool, changed: bool) -> str:  # noqa: FBT001 - both stand in the sentence
    state = "paused" if paused else "running"
    return f"{what} is {state} now" if changed else f"{what} was {state} already"


class UndeliveredState(StrEnum):
    """The states of messages that no consumer holds."""

    READY = "ready"
    SCHEDULED = "scheduled"
    HELD = "held"


@dataclass(frozen=True, slots=True, kw_only=True)
class Which:
    """Chooses undelivered messages by what they have in common.

    Attributes:
        key: Only the message with this key.
        ordering_key: Only messages with this ordering key.
        kind: Only messages of this kind.
        state: Only messages in this state: ready, scheduled or held.
        since: Only messages that were enqueued less than this long ago, like 2h.
        until: Only messages that were enqueued more than this long ago, like 1h.
    """

    key: Annotated[str | None, Spec(metavar="KEY")] = None
    ordering_key: Annotated[str | None, Spec(metavar="KEY")] = None
    kind: str | None = None
    state: Annotated[UndeliveredState | None, Spec(metavar="STATE")] = None
    since: timedelta | None = None
    until: timedelta | None = None

    def arguments(self, installation: Installation) -> dict[str, Any]:
        found = {name: value for name in self.__slots__ if (value := getattr(self, name)) is not None}
        for name in found.keys() & {"since", "until"}:
            found[name] = earlier(installation.now(), found[name])
        return found | ({"state": self.state.value} if self.state is not None else {})

    def __str__(self) -> str:
        words = f" with key {self.key!r}" if self.key is not None else ""
        words += f" with ordering key {self.ordering_key!r}" if self.ordering_key is not None else ""
        words += f" of kind {self.kind!r}" if self.kind is not None else ""
        words += f" that are {self.state}" if self.state is not None else ""
        words += f" enqueued within {format_duration(self.since)}" if self.since is not None else ""
        return words + (f" enqueued {format_duration(self.until)} ago or longer" if self.until is not None else "")


_COUNTED = 100_000
"""The most messages that ``purge`` counts for its question. From there on, the question says "100,000 or more"."""


def purge(
    options: Options,
    channel: Annotated[str, Spec(metavar="CHANNEL")],
    *,
    which: Which,
    by: By = None,
    yes: Yes = False,
) -> Result:
    """Delete the messages of a channel for good, except leased ones. The command asks first, unless --yes is given.

    Messages that wait for another attempt are deleted too. With options such as --kind, only messages that meet all of
    them are deleted. To delete all data of a tenant that leaves, use 'fairqueue erase'.
    """
    such = str(which)
    with open_queue(options) as (installation, queue):
        engine = installation.engine
        found = queue.channels(engine, channel=channel)
        if not found:
            raise channel_not_found(queue, channel)
        arguments = which.arguments(installation)
        waiting, more = found[0].undelivered, ""
        if arguments and not yes:
            waiting = queue.admin.count_undelivered(engine, channel, limit=_COUNTED, **arguments)
            more = " or more" if waiting == _COUNTED else ""
        what = f"channel {channel!r} of queue {queue.name!r}"
        question = (
            f"delete {waiting:,}{more} undelivered message{'' if waiting == 1 else 's'}{such} of {what} for good?"
        )
        confirm(question, yes=yes or not waiting)
        details: dict[str, Any] = dict(arguments)
        with acting(installation, queue, "purge", by, channel=channel, details=details) as connection:
            purged = details["purged"] = queue.purge(connection, channel, **arguments).purged or 0
    said = f"{plural(purged, 'message')}{such} of {what} deleted; delivered ones are left to their consumers"
    return Result({"queue": queue.name, "channel": channel, "purged": purged}, (said,))


_FOUND = Table(
    Column("queue"),
    number_column("undelivered"),
    number_column("held by consumers", "leased"),
    number_column("dead letters", "dead"),
    number_column("schedules"),
)
_ERASED = Table(
    Column("queue"),
    *(
        number_column(words, key)
        for words, key in (
            ("messages", "messages"), ("held by consumers", "leased"), ("dead letters", "dead_letters"),
            ("attempts", "attempts"), ("results", "results"), ("keys", "keys"), ("schedules", "schedules"),
            ("follow-ups", "followups"), ("audit entries", "audits"),
        )
    ),
    *(Column("", key) for key in ("left_over", "forgotten")),
)  # fmt: skip


def erase(
    options: Options, channel: Annotated[str, Spec(metavar="CHANNEL")], *, by: By = None, yes: Yes = False
) -> Result:
    """Delete a channel and all of its data, in every queue of the schema. Asks, unless --yes is given.

    The command first shows what it found, and at the end what it deleted. Messages, dead letters, attempts in the
    history, results, keys, schedules and the policy are deleted; the audit of what operators did loses the channel's
    name and the details. A handler that is running cannot settle its message: the handler's transaction is rolled back.

    First stop the tenant's producers. Copies outside of the queues stay: Parquet archives and tables that Spark wrote,
    logs and traces. The exit status is 1 if something is left over: then run the command again.
    """
    with open_installation(options) as installation:
        queues = list(map(installation.queue, installation.queue_names()))
        if not yes:
            nothing = f"no queue has a channel {channel!r} or a schedule of it"
            console(error=True).print(*_FOUND.listing(_what_there_is(installation, queues, channel), nothing))
        confirm(f"erase channel {channel!r}, also of histories and results, in these and all queues for good?", yes=yes)
        documents: list[dict[str, Any]] = []
        for queue in queues:
            erased = asdict(queue.admin.erase(installation.engine, channel))
            if counts := {name: count for name, count in erased.items() if count and name != "forgotten"}:
                queue.admin.record_audit(installation.engine, "erase", by=by, details=counts)
            if counts or not erased["forgotten"]:
                documents.append({"queue": queue.name} | erased)
        if not documents:
            raise not_found_error(f"no queue of schema {installation.schema!r} has anything of a channel {channel!r}")
        at = installation.now()
        with installation.engine.connect() as connection:
            who = by or current_role(connection)
    lines = [
        f"channel {channel!r} of schema {installation.schema!r} was erased by {who} at {at.isoformat(' ', 'seconds')}"
    ]
    left = sum(one["left_over"] for one in documents)
    if left:
        lines.append(f"{plural(left, 'row')} that other transactions had locked left over: run this again")
    elif not all(one["forgotten"] for one in documents):
        lines.append("its row goes with its policy when the transactions that are open now have ended: run this again, "
                     "or leave it to a worker")  # fmt: skip
    document = {"channel": channel, "schema": installation.schema, "at": at, "by": who, "queues": documents}
    status = ExitStatus.FOUND if left else ExitStatus.OK
    return Result(document, (lines[0], _ERASED.screen(documents), *lines[1:]), status)


def _what_there_is(installation: Installation, queues: Iterable[Queue], channel: str) -> list[dict[str, Any]]:
    found = []
    with installation.engine.connect() as connection:
        for queue in queues:
            stats = queue.channels(connection, channel=channel)
            schedules = len(queue.schedules.list(connection, channel=channel))
            if stats or schedules:
                counts = {name: sum(getattr(one, name) for one in stats) for name in ("undelivered", "leased", "dead")}
                found.append({"queue": queue.name, "schedules": schedules} | counts)
    return found
