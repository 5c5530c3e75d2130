"""Connections of driver and executors to an installation. No error message shows a secret."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from sqlalchemy_fairqueue.database.errors import to_upgrade, too_old
from sqlalchemy_fairqueue.errors import FairQueueError, SchemaMismatch
from sqlalchemy_fairqueue.spark.errors import BadOption, PipelineError, Unreachable
from sqlalchemy_fairqueue.sql.files import latest_version, signature
from sqlalchemy_fairqueue.sql.schema import VERSION_COLUMN, named_schema, quoted, schema_argument

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sqlalchemy_fairqueue.spark.options import TargetOptions

_CONNECT_SECONDS = 10
_SCHEMES = ("postgresql://", "postgres://", "postgresql+psycopg://", "postgresql+psycopg2://", "postgresql+asyncpg://")
_SECRET_PARAMETERS = ("password", "sslpassword", "passfile", "oauth_client_secret")


@dataclass(frozen=True, slots=True)
class Installation:
    """The installation that a connection leads to. *schema* is known even if the options name no schema."""

    schema: str

    @property
    def quoted(self) -> str:
        # Percent signs are doubled for statements with parameters.
        return quoted(self.schema).replace("%", "%%")


def connect(target: TargetOptions, purpose: str, *, autocommit: bool = False) -> psycopg.Connection:
    """Return a connection to the target; the caller closes it. pg_stat_activity shows ``fairqueue spark PURPOSE``.

    Raises:
        BadOption: The dsn cannot be parsed, or its variable is not set.
        Unreachable: The server is unreachable, or refuses.
    """
    conninfo = _conninfo(target)
    secrets = _secrets(conninfo)
    try:
        # This name replaces one in the dsn, so that operators see what the connection is for. This encoding replaces
        # that of the dsn, role or database, since COPY carries bytes in UTF-8.
        own = {"application_name": f"fairqueue spark {purpose}", "client_encoding": "UTF8"}
        return psycopg.connect(make_conninfo(conninfo, **own), autocommit=autocommit)
    except psycopg.Error as error:
        said = _without(secrets, str(error).strip())
        raise Unreachable(
            f"cannot connect to {display_target(target)}: {said}; check the dsn from this machine"
        ) from None


def find_installation(connection: psycopg.Connection, schema: str | None) -> Installation:
    """Return the installation in the schema of the options; raise SchemaMismatch if there is none, or it is too old."""
    row = connection.execute(
        "select n.nspname, exists (select from pg_proc p where p.pronamespace = n.oid and p.proname = 'fq_version') "
        "from pg_namespace n where n.nspname = coalesce(%s::text, current_schema())",
        [schema],
    ).fetchone()
    if row is None or not row[1]:
        raise SchemaMismatch(
            f"fairqueue is not installed in {named_schema(schema)}; run a migration with "
            f"op.create_fairqueue(version={latest_version()}{schema_argument(schema)}), or give the option schema"
        )
    name = str(row[0])
    statement = f"select {VERSION_COLUMN} from {quoted(name)}.fq_version()"  # noqa: S608 - quoted
    found = connection.execute(statement.encode()).fetchone()
    version = int(found[0]) if found else 0
    if problem := too_old(version, name):
        raise SchemaMismatch(f"{problem}; run a migration with {to_upgrade(version, schema)}")
    return Installation(name)


@cache
def statement(name: str) -> str:
    lines = (files(__package__) / "statements" / f"{name}.sql").read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith("--"))


def query(
    connection: psycopg.Connection, name: str, values: Mapping[str, object], **parts: str
) -> list[tuple[Any, ...]]:
    return connection.execute(statement(name).format(**parts).encode(), values).fetchall()


def call(
    connection: psycopg.Connection, installation: Installation, function: str, **values: object
) -> list[tuple[Any, ...]]:
    """Call a function of the installation, and return the rows. *values* has its parameters, named without ``p_``."""
    places = ", ".join(f"%({name})s::{kind}" for name, kind in signature(function).parameters.items())
    statement = f"select * from {installation.quoted}.{function}({places})"  # noqa: S608 - quoted
    return connection.execute(statement.encode(), values).fetchall()


@contextmanager
def translated_errors(action: str) -> Iterator[None]:
    """Convert errors of psycopg to errors of this package, whose message begins with ``cannot {action}``.

    The SQLSTATE decides the class of the new error; if no class has this SQLSTATE, it is a PipelineError. The new error
    keeps the server's message. It keeps the DETAIL only of fairqueue's own SQLSTATEs, since any other DETAIL may quote
    a row with a confidential payload.
    """
    try:
        yield
    except psycopg.Error as error:
        diagnostics = error.diag
        kind = FairQueueError.of_sqlstate.get(error.sqlstate or "", PipelineError)
        what = diagnostics.message_primary or str(error).strip() or type(error).__name__
        detail = diagnostics.message_detail if (error.sqlstate or "").startswith("QF") else None
        problem = f"{what} ({detail})" if detail else what
        hint = diagnostics.message_hint or f"SQLSTATE {error.sqlstate or 'none: the connection was lost'}"
        raise kind(f"cannot {action}: {problem}; {hint}") from error


def display_target(target: TargetOptions) -> str:
    words = conninfo_to_dict(_conninfo(target))
    host = words.get("host") or words.get("hostaddr") or "the default host"
    port = f":{words['port']}" if words.get("port") else ""
    return f"database {words.get('dbname') or 'of the default name'!r} on {host}{port}"


def _conninfo(target: TargetOptions) -> str:
    dsn, source = target.dsn, "option dsn"
    if target.dsn_env is not None:
        dsn, source = os.environ.get(target.dsn_env), f"variable {target.dsn_env}"
        if not dsn:
            raise BadOption(
                f"variable {target.dsn_env}, which option dsnEnv names, is not set in this process; "
                "set it on the driver and on every executor (spark.executorEnv.NAME)"
            )
    assert dsn is not None  # noqa: S101 - TargetOptions has one of the two
    for scheme in _SCHEMES:
        if dsn.startswith(scheme):
            dsn = "postgresql://" + dsn.removeprefix(scheme)
    try:
        words = conninfo_to_dict(dsn)
    except psycopg.Error:
        # libpq quotes what it cannot read, which may be the password.
        raise BadOption(f"{source} cannot be read; give postgresql://user@host/database") from None
    return make_conninfo(dsn, **({} if "connect_timeout" in words else {"connect_timeout": _CONNECT_SECONDS}))


def _secrets(conninfo: str) -> list[str]:
    words = conninfo_to_dict(conninfo)
    return [str(words[word]) for word in _SECRET_PARAMETERS if words.get(word)]


def _without(secrets: list[str], text: str) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    return text
