"""``pause``, ``resume`` and ``purge``: interventions in a queue that is served."""

# Annotations are read when the program starts, so that they must not be postponed.
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.cli.errors import not_found_error, usage_error
from sqlalchemy_fairqueue.cli.installation import (
    Installation,
    acting,
    channel_not_found,
    open_installation,
    open_queue,
)
from sqlalchemy_fairqueue.cli.options import By, Options, Spec, Yes
from sqlalchemy_fairqueue.cli.output import Result, confirm
from sqlalchemy_fairqueue.cli.tables import Column, Table, number_column
from sqlalchemy_fairqueue.formats import format_duration, plural
from sqlalchemy_fairqueue.times import earlier

Channel = Annotated[str | None, Spec(metavar="CHANNEL", help="One channel. Default: the whole queue.")]
AllQueues = Annotated[bool, Spec(help="The channel in every queue of the schema.")]


def pause(
    options: Options, channel: Channel = None, *, new: bool = False, all_queues: AllQueues = False, by: By = None
) -> Result:
    """Stop serving a queue, or one channel of it.

    Messages can be enqueued meanwhile, and consumers keep the messages that they have leased. It takes effect on the
    next dequeue. With --all-queues it stops a tenant everywhere, in an incident.

    Options:
        new: Make the channel if it does not exist.
    """
    return (_set_paused_everywhere if all_queues else _set_paused)(options, channel, by, paused=True, new=new)


def resume(options: Options, channel: Channel = None, *, all_queues: AllQueues = False, by: By = None) -> Result:
    """Serve a paused queue or channel again."""
    return (_set_paused_everywhere if all_queues else _set_paused)(options, channel, by, paused=False, new=False)


def _set_paused_everywhere(options: Options, channel: str | None, by: str | None, *, paused: bool, new: bool) -> Result:
    if channel is None:
        raise usage_error("--all-queues needs a channel; name it, or give --queue to pause or resume a whole queue")
    _check_no_queue(options)
    with open_installation(options) as installation:
        changed = {}
        for queue in map(installation.queue, installation.queue_names()):
            found = queue.channels(installation.engine, channel=channel)
            if found or new:
                since = found[0].paused_at if found else None
                changed[queue.name] = _change(installation, queue, channel, by, since, paused=paused, new=new)
        if not changed:
            raise not_found_error(f"no queue of schema {installation.schema!r} has a channel {channel!r}")
    lines = [_said(f"channel {channel!r} of queue {name!r}", paused, done) for name, done in changed.items()]
    queues = [{"queue": name, "changed": done} for name, done in changed.items()]
    return Result({"channel": channel, "paused": paused, "queues": queues}, tuple(lines))


def _set_paused(options: Options, channel: str | None, by: str | None, *, paused: bool, new: bool) -> Result:
    with open_queue(options, may_be_new=new) as (installation, queue):
        since = None
        if channel is None:
            since = queue.stats(installation.engine).paused_at
        elif found := queue.channels(installation.engine, channel=channel):
            since = found[0].paused_at
        elif not new:
            raise channel_not_found(queue, channel)
        changed = _change(installation, queue, channel, by, since, paused=paused, new=new)
    what = f"queue {queue.name!r}" if channel is None else f"channel {channel!r} of queue {queue.name!r}"
    document = {"queue": queue.name, "channel": channel, "paused": paused, "changed": changed}
    return Result(document, (_said(what, paused, changed),))


def _change(
    installation: Installation,
    queue: Queue,
    channel: str | None,
    by: str | None,
    since: object,
    *,
    paused: bool,
    new: bool,
) -> bool:
    """Pause or resume; return whether it was otherwise before."""
    if (since is not None) is paused:
        return False
    with acting(installation, queue, "pause" if paused else "resume", by, channel=channel) as connection:
        if paused:
            queue.pause(connection, channel, new=new)
        else:
            queue.resume(connection, channel)
    return True


def _said(what: str, paused: bool, changed: bool) -> str:  # noqa: FBT001 - both stand in the sentence
    state = "paused" if paused else "running"
    return f"{what} is {state} now" if changed else f"{what} was {state} already"


def _check_no_queue(options: Options) -> None:
    if options.queue:
        raise usage_error("--all-queues and --queue are given; give one of them")


@dataclass(frozen=True, slots=True)
class _Found:
    """A channel of one queue: its undelivered messages, its dead letters, its leased messages, its schedules."""

    queue: Queue
    waiting: int
    dead: int
    leased: int
    schedules: list[str]


_PURGED = Table(
    Column("queue"),
    number_column("deleted", "purged"),
    number_column("dead letters deleted", "dead_letters_purged"),
    number_column("left leased", "leased"),
    number_column("left schedules", "schedules", shown=len),
)


class UndeliveredState(StrEnum):
    """The states of messages that no consumer holds."""

    READY = "ready"
    SCHEDULED = "scheduled"
    HELD = "held"


@dataclass(frozen=True, slots=True, kw_only=True)
class Which:
    """Undelivered messages by what they have in common.

    Attributes:
        key: Only the one with this key.
        ordering_key: Only those with this ordering key.
        kind: Only those of this kind.
        state: Only ready, scheduled or held ones.
        since: Only those that were enqueued within so much time, like 2h.
        until: Only those that were enqueued longer ago, like 1h.
    """

    key: Annotated[str | None, Spec(metavar="KEY")] = None
    ordering_key: Annotated[str | None, Spec(metavar="KEY")] = None
    kind: str | None = None
    state: Annotated[UndeliveredState | None, Spec(metavar="STATE")] = None
    since: timedelta | None = None
    until: timedelta | None = None

    def arguments(self, installation: Installation) -> dict[str, Any]:
        """The selection as arguments of the library, from now on; empty if it is all messages."""
        found = {name: value for name in self.__slots__ if (value := getattr(self, name)) is not None}
        for name in found.keys() & {"since", "until"}:
            found[name] = earlier(installation.now(), found[name])
        return found | ({"state": self.state.value} if self.state is not None else {})

    def __str__(self) -> str:
        """The selection in words that come after the word for messages."""
        words = f" with key {self.key!r}" if self.key is not None else ""
        words += f" with ordering key {self.ordering_key!r}" if self.ordering_key is not None else ""
        words += f" of kind {self.kind!r}" if self.kind is not None else ""
        words += f" that are {self.state}" if self.state is not None else ""
        words += f" enqueued within {format_duration(self.since)}" if self.since is not None else ""
        return words + (f" enqueued {format_duration(self.until)} ago or longer" if self.until is not None else "")


_COUNTED = 100_000
"""Messages that the question counts one by one."""


def purge(
    options: Options,
    channel: Annotated[str, Spec(metavar="CHANNEL")],
    *,
    which: Which,
    all_queues: bool = False,
    by: By = None,
    yes: Yes = False,
) -> Result:
    """Delete the messages of a channel that are not delivered yet, for good. Asks, unless --yes is given.

    All that is given must be met. The question says how many they are.

    With --all-queues, for a tenant that leaves: in every queue of the schema, and the dead letters as well. It tells
    what it leaves: messages that consumers hold, and schedules.

    Options:
        all_queues: In every queue of the schema, and dead letters, too.
    """
    such = str(which)
    if all_queues:
        _check_no_queue(options)
        if such:
            raise usage_error("--all-queues deletes all messages of the channel; leave it or the other options out")
        with open_installation(options) as installation:
            return _purge_all(installation, channel, by, yes=yes)
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


def _purge_all(installation: Installation, channel: str, by: str | None, *, yes: bool) -> Result:
    found = _find(installation, channel)
    if not found:
        raise not_found_error(f"no queue of schema {installation.schema!r} has a channel {channel!r}")
    waiting, dead = sum(one.waiting for one in found), sum(one.dead for one in found)
    counts = f"{plural(waiting, 'undelivered message')} and {plural(dead, 'dead letter')}"
    queues = ", ".join(repr(one.queue.name) for one in found)
    confirm(f"delete {counts} of channel {channel!r} in {queues} for good?", yes=yes or not waiting + dead)
    purged = []
    for one in found:
        details: dict[str, Any] = {}
        with acting(installation, one.queue, "purge", by, channel=channel, details=details) as connection:
            details["purged"] = one.queue.purge(connection, channel).purged or 0
            details["dead_letters_purged"] = one.queue.dead_letters.purge(connection, channel=channel)
        purged.append((details["purged"], details["dead_letters_purged"]))
    # Read anew: a consumer may have given messages back, or taken some.
    left = {one.queue.name: one for one in _find(installation, channel)}
    documents: list[dict[str, Any]] = []
    for one, (messages, letters) in zip(found, purged, strict=True):
        now = left.get(one.queue.name) or _Found(one.queue, 0, 0, 0, [])
        documents.append(
            {
                "queue": one.queue.name, "purged": messages, "dead_letters_purged": letters, "leased": now.leased,
                "schedules": now.schedules,
            }
        )  # fmt: skip
    return Result({"channel": channel, "queues": documents}, (_PURGED.screen(documents), *_left(documents)))


def _find(installation: Installation, channel: str) -> list[_Found]:
    """The queues that have something of the channel, or have had it."""
    found = []
    queues = list(map(installation.queue, installation.queue_names()))
    with installation.engine.connect() as connection:
        for queue in queues:
            channels = queue.channels(connection, channel=channel)
            schedules = [one.name for one in queue.schedules.list(connection, channel=channel)]
            if not channels and not schedules:
                continue
            counts = [(one.undelivered, one.dead, one.leased) for one in channels] or [(0, 0, 0)]
            found.append(_Found(queue, *counts[0], schedules))
    return found


def _left(documents: list[dict[str, Any]]) -> list[str]:
    """What the command cannot delete, and what to do about it."""
    lines = []
    if any(one["leased"] for one in documents):
        lines.append("leased messages are left to their consumers: cancel them, or run this again when they have ended")
    if any(one["schedules"] for one in documents):
        lines.append("schedules go on: 'fairqueue schedules list' shows them, 'schedules remove' ends them")
    lines.append("results, and attempts in the history, are kept until their retention is over")
    return lines
