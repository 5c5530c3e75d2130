"""Lets connections to a private server ignore libpq's environment variables.

Other engines of the application need the variables. So the variables stay if the private server's URL can override
them. Only the few that no URL can override are removed from the environment while the server runs.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING

from psycopg.pq import Conninfo

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import URL

# No URL overrides these. If PGSERVICE names an undefined service, each connection fails; libpq sends the others to the
# server in any case.
_UNANSWERABLE = ("PGSERVICE", "PGTZ", "PGDATESTYLE", "PGGEQO")
# Parameters that need no override: the URL contains them anyway, or a server that trusts everybody does not ask for
# them, or the variable is removed from the environment.
_SAID = {"service", "user", "password", "passfile", "dbname", "host"}
# Defaults of parameters for which an empty text is an error.
_DEFAULTS = {
    "connect_timeout": "0",
    "sslcertmode": "allow",
    "min_protocol_version": "3.0",
    "max_protocol_version": "3.0",
}
# The variables that asyncpg reads, each with asyncpg's argument and the value that overrides the variable.
_OF_ASYNCPG = {
    "PGSSLMODE": ("ssl", "disable"),
    "PGSSLNEGOTIATION": ("direct_tls", ""),
    "PGTARGETSESSIONATTRS": ("target_session_attrs", "any"),
    "PGKRBSRVNAME": ("krbsrvname", "postgres"),
    "PGGSSLIB": ("gsslib", "gssapi"),
}

_lock = threading.Lock()
_hidden: dict[str, str] = {}
_hiding = 0


def libpq_variables() -> list[str]:
    known = [option.envvar.decode() for option in Conninfo.get_defaults() if option.envvar is not None]
    return [name for name in dict.fromkeys([*known, *_UNANSWERABLE]) if name in os.environ]


def answers() -> dict[str, str]:
    """Return parameters for a URL, set to libpq's defaults, so that libpq's environment variables have no effect."""
    options = [one for one in Conninfo.get_defaults() if one.envvar and one.envvar.decode() in os.environ]
    defaults = {one.keyword.decode(): (one.compiled or b"").decode() for one in options}
    return {name: _DEFAULTS.get(name, value) for name, value in defaults.items() if name not in _SAID}


def for_driver(url: URL, driver: str) -> URL:
    """Return *url*, the URL of a private server, with *driver* and with only the parameters that this driver knows."""
    found = url.set(drivername=f"postgresql+{driver}")
    ours = [name for name, value in answers().items() if url.query.get(name) == value]
    if driver == "asyncpg" and ours:
        found = found.difference_update_query([name for name in ours if name != "port"])
        found = found.update_query_dict(dict(_OF_ASYNCPG[name] for name in _OF_ASYNCPG if name in os.environ))
    elif driver == "psycopg2":
        found = found.difference_update_query([name for name in ours if not _psycopg2_knows(name)])
    return found


def _psycopg2_knows(name: str) -> bool:
    import psycopg2  # noqa: PLC0415 - the application need not have this driver
    from psycopg2.extensions import make_dsn  # noqa: PLC0415

    try:
        make_dsn(**{name: ""})
    except psycopg2.ProgrammingError:
        return False
    return True


@contextlib.contextmanager
def without_unanswerable() -> Iterator[None]:
    """Remove from the environment the variables that no URL can override, until the last such ``with`` block ends."""
    global _hiding  # noqa: PLW0603 - the environment is the process's too
    with _lock:
        _hiding += 1
        _hidden.update({name: os.environ.pop(name) for name in _UNANSWERABLE if name in os.environ})
    try:
        yield
    finally:
        with _lock:
            _hiding -= 1
            if not _hiding:
                os.environ |= {**_hidden, **os.environ}
                _hidden.clear()
