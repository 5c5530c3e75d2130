"""Connections from driver and executors, which give away no secret, and which installation they lead to."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from sqlalchemy_fairqueue.errors import FairQueueError, SchemaMismatch
from sqlalchemy_fairqueue.installation import to_upgrade, too_old
from sqlalchemy_fairqueue.spark.errors import BadOption, PipelineError, Unreachable
from sqlalchemy_fairqueue.sql import latest_version, named_schema, quoted, schema_argument

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy_fairqueue.spark.options import PlaceOptions

_CONNECT_SECONDS = 10
_SCHEMES = ("postgresql://", "postgres://", "postgresql+psycopg://", "postgresql+psycopg2://", "postgresql+asyncpg://")
_SECRET_WORDS = ("password", "sslpassword", "passfile", "oauth_client_secret")


@dataclass(frozen=True, slots=True)
class Installation:
    """Where queues are, as the server tells.

    Attributes:
        schema: The schema's name, also when the options leave it to the connection.
    """

    schema: str

    @property
    def quoted(self) -> str:
        """The schema as an identifier."""
        return quoted(self.schema)


def connect(place: PlaceOptions, purpose: str, *, autocommit: bool = False) -> psycopg.Connection:
    """A connection to the place. The caller closes it.

    Args:
        place: Where.
        purpose: What it is for; pg_stat_activity shows it as ``fairqueue spark PURPOSE``.
        autocommit: Each statement its own transaction.

    Raises:
        BadOption: The dsn cannot be read, or the variable that should hold it is not set.
        Unreachable: The server cannot be reached, or refuses.
    """
    conninfo = _conninfo(place)
    secrets = _secrets(conninfo)
    try:
        # The name of the purpose is shown whatever the dsn says, so that a person can tell who is connected.
        return psycopg.connect(
            make_conninfo(conninfo, application_name=f"fairqueue spark {purpose}"), autocommit=autocommit
        )
    except psycopg.Error as error:
        said = _without(secrets, str(error).strip())
        raise Unreachable(f"cannot connect to {shown(place)}: {said}; check the dsn from this machine") from None


def installation(connection: psycopg.Connection, schema: str | None) -> Installation:
    """The installation that the options mean.

    Raises:
        SchemaMismatch: There is none, or it is too old.
    """
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
    found = connection.execute(f"select {quoted(name)}.fq_version()".encode()).fetchone()
    version = int(found[0]) if found else 0
    if problem := too_old(version, name):
        raise SchemaMismatch(f"{problem}; run a migration with {to_upgrade(version, schema)}")
    return Installation(name)


@contextmanager
def refusals(doing: str) -> Iterator[None]:
    """Raise what the server refused as an error of this package: its own class by SQLSTATE, else PipelineError.

    The server's words are kept, the row that it may quote (its DETAIL) is not: a payload may be confidential.

    Args:
        doing: What was tried, for the message: ``"merge job 'j1'"``.
    """
    try:
        yield
    except psycopg.Error as error:
        diagnostics = error.diag
        kind = FairQueueError.of_sqlstate.get(error.sqlstate or "", PipelineError)
        what = diagnostics.message_primary or str(error).strip() or type(error).__name__
        # Details of our own codes are of our own making.
        detail = diagnostics.message_detail if (error.sqlstate or "").startswith("QF") else None
        said = f"{what} ({detail})" if detail else what
        then = diagnostics.message_hint or f"SQLSTATE {error.sqlstate or 'none: the connection was lost'}"
        raise kind(f"cannot {doing}: {said}; {then}") from error


def shown(place: PlaceOptions) -> str:
    """The server and database in words, without anything secret."""
    words = conninfo_to_dict(_conninfo(place))
    host = words.get("host") or words.get("hostaddr") or "the default host"
    port = f":{words['port']}" if words.get("port") else ""
    return f"database {words.get('dbname') or 'of the default name'!r} on {host}{port}"


def _conninfo(place: PlaceOptions) -> str:
    """The dsn for libpq, with a time limit for connecting."""
    dsn, source = place.dsn, "option dsn"
    if place.dsn_env is not None:
        dsn, source = os.environ.get(place.dsn_env), f"variable {place.dsn_env}"
        if not dsn:
            raise BadOption(
                f"variable {place.dsn_env}, which option dsnEnv names, is not set in this process; "
                "set it on the driver and on every executor (spark.executorEnv.NAME)"
            )
    assert dsn is not None  # noqa: S101 - PlaceOptions has one of the two
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
    return [str(words[word]) for word in _SECRET_WORDS if words.get(word)]


def _without(secrets: list[str], text: str) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    return text
