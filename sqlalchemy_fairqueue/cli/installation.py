"""The installation that a command works on: its schema, its version, and the queues in it."""

from __future__ import annotations

import contextlib
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.cli.errors import not_found_error, usage_error
from sqlalchemy_fairqueue.cli.target import open_target
from sqlalchemy_fairqueue.database.engines import read_committed
from sqlalchemy_fairqueue.database.messages import record_audit
from sqlalchemy_fairqueue.database.stats import read_clock, read_queues
from sqlalchemy_fairqueue.doctor.installation import find_installation, outdated

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Engine

    from sqlalchemy_fairqueue.cli.errors import CommandError
    from sqlalchemy_fairqueue.cli.options import Options
    from sqlalchemy_fairqueue.cli.target import Target

_MAX_LISTED = 10


@dataclass(frozen=True, slots=True)
class Installation:
    """An installation that the commands can use; all transactions of its engine are READ COMMITTED."""

    target: Target
    schema: str
    version: int
    engine: Engine

    def now(self) -> datetime:
        with self.engine.connect() as connection:
            return read_clock(connection, self.schema)

    def queue_names(self) -> list[str]:
        """Return the names of all queues that are configured or have channels."""
        with self.engine.connect() as connection:
            return sorted(read_queues(connection, self.schema))

    def queue(self, name: str) -> Queue:
        application = self.target.application
        if application is None or application.name != name:
            return Queue(name, schema=self.schema)
        if application.schema == self.schema:
            return application
        return Queue(name, schema=self.schema, codec=application.codec, defaults=application.defaults)

    def queues(self) -> list[Queue]:
        return [self.queue(name) for name in ([self._named()] if self.target.queue else self.queue_names())]

    def single_queue(self, *, may_be_new: bool = False) -> Queue:
        """Return the queue that the target names, or the only one; with *may_be_new*, a named queue need not exist."""
        if self.target.queue:
            return self.queue(self.target.queue if may_be_new else self._named())
        names = self.queue_names()
        if len(names) == 1:
            return self.queue(names[0])
        if not names:
            raise not_found_error(
                f"schema {self.schema!r} has no queue yet: the first message makes one, or any option of "
                "configure queue --queue NAME"
            )
        raise usage_error(f"which queue? name one with --queue: {_listed(names)}")

    def _named(self) -> str:
        name = self.target.queue or ""
        names = self.queue_names()
        if name not in names:
            others = f"its queues are {_listed(names)}" if names else "it has none yet"
            raise not_found_error(f"there is no queue {name!r} in schema {self.schema!r}; {others}")
        return name


@contextlib.contextmanager
def open_installation(options: Options) -> Iterator[Installation]:
    """Open the installation of the target; raise Unusable if there is none that this library and the role can use."""
    with open_target(options) as target:
        engine = read_committed(target.engine)
        with engine.connect() as connection:
            schema, version = find_installation(connection, target.schema)
        if error := outdated(schema, version, target.schema):
            raise error
        yield Installation(target, schema, version, engine)


@contextlib.contextmanager
def open_queue(options: Options, *, may_be_new: bool = False) -> Iterator[tuple[Installation, Queue]]:
    """Open the installation and the queue that the target names, or else the installation's only queue.

    With *may_be_new*, a named queue need not exist yet.
    """
    with open_installation(options) as installation:
        yield installation, installation.single_queue(may_be_new=may_be_new)


@contextlib.contextmanager
def acting(
    installation: Installation,
    queue: Queue | None,
    what: str,
    by: str | None,
    *,
    channel: str | None = None,
    message_ids: Sequence[int] | None = None,
    details: Mapping[str, Any] | None = None,
) -> Iterator[Connection]:
    """Open a transaction for an operator's action, and at its end record the action in the audit.

    *message_ids* and *details* are read at the end. So a caller may pass a list and a dict, and fill them in the block.
    """
    with installation.engine.begin() as connection:
        yield connection
        record_audit(
            connection, installation.schema, None if queue is None else queue.name,
            what=what, by=by, channel=channel, message_ids=message_ids, details=details,
        )  # fmt: skip


def in_queue(queue: Queue) -> str:
    return f"--queue {shlex.quote(queue.name)}"


def channel_not_found(queue: Queue, channel: str) -> CommandError:
    return not_found_error(
        f"queue {queue.name!r} has no channel {channel!r}; 'fairqueue channels {in_queue(queue)}' lists them"
    )


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(map(repr, names[:_MAX_LISTED])) + more
