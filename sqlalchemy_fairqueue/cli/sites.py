"""An installation that was found fit, and the queues in it that a command is about."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import text

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.cli.failures import Failure, not_found, usage
from sqlalchemy_fairqueue.cli.installations import check_installed
from sqlalchemy_fairqueue.cli.places import place_of
from sqlalchemy_fairqueue.statements import queues
from sqlalchemy_fairqueue.statements.building import qualifier
from sqlalchemy_fairqueue.times import instant

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from sqlalchemy import Engine

    from sqlalchemy_fairqueue.cli.options import Options
    from sqlalchemy_fairqueue.cli.places import Place

_MANY = 10


@dataclass(frozen=True, slots=True)
class Site:
    """An installation that the commands can use.

    Attributes:
        place: Where it is.
        schema: The schema that holds it.
        engine: To the database; its transactions are READ COMMITTED ones, whatever the application prefers.
    """

    place: Place
    schema: str
    engine: Engine

    def now(self) -> datetime:
        """The time by the database's clock, as the queue sees it."""
        with self.engine.connect() as connection:
            now = connection.scalar(text(f"select {self.qualifier()}fq_now()"))
        return instant(now or 0)

    def names(self) -> list[str]:
        """Every queue that was configured or has channels."""
        with self.engine.connect() as connection:
            return sorted(connection.scalars(queues(self.schema)))

    def queue(self, name: str) -> Queue:
        """The queue of that name; the application's own where it was loaded, with its codec and defaults."""
        application = self.place.application
        if application is not None and application.name == name and application.schema == self.schema:
            return application
        if application is not None and application.name == name:
            return Queue(name, schema=self.schema, codec=application.codec, defaults=application.defaults)
        return Queue(name, schema=self.schema)

    def queues(self) -> list[Queue]:
        """The queue that is named, or all.

        Raises:
            Failure: The named one is not there.
        """
        return [self.queue(name) for name in ([self._named()] if self.place.queue else self.names())]

    def one(self, *, new: bool = False) -> Queue:
        """The queue that is named, or the only one.

        Args:
            new: Whether a named one may be new.

        Raises:
            Failure: It is not there; none is named, and there are none or several.
        """
        if self.place.queue:
            return self.queue(self.place.queue if new else self._named())
        names = self.names()
        if len(names) == 1:
            return self.queue(names[0])
        if not names:
            raise not_found(
                f"schema {self.schema!r} has no queue yet: the first message makes one, or any option of "
                "configure queue --queue NAME"
            )
        raise usage(f"which queue? name one with --queue: {_listed(names)}")

    def _named(self) -> str:
        name = self.place.queue or ""
        names = self.names()
        if name not in names:
            others = f"its queues are {_listed(names)}" if names else "it has none yet"
            raise not_found(f"there is no queue {name!r} in schema {self.schema!r}; {others}")
        return name

    def qualifier(self) -> str:
        """What stands before the name of a table, in a text() clause."""
        return qualifier(self.schema)


@contextlib.contextmanager
def site_of(options: Options) -> Iterator[Site]:
    """Find the installation, and check that the commands can use it.

    Raises:
        Failure: The database is away; fairqueue is missing, outdated or newer than this library.
    """
    with place_of(options) as place:
        engine = place.engine.execution_options(isolation_level="READ COMMITTED")
        with engine.connect() as connection:
            schema = check_installed(connection, place.schema)
        yield Site(place, schema, engine)


def no_channel(queue: Queue, channel: str) -> Failure:
    """The failure to find a channel."""
    return not_found(f"queue {queue.name!r} has no channel {channel!r}; 'fairqueue channels' lists them")


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MANY} more" if len(names) > _MANY else ""
    return ", ".join(map(repr, names[:_MANY])) + more
