"""Which version of the schema a database has, so that one library serves several.

It is asked once an engine and schema and remembered. A schema that is upgraded while the process runs is noticed within
a minute, and at once by a call that needs it; one that is downgraded by the first call that fails for it: whoever calls
a function by its newest parameters does so within :func:`calling`.
"""

from __future__ import annotations

from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from sqlalchemy_fairqueue import statements
from sqlalchemy_fairqueue.errors import SchemaMismatch, translated
from sqlalchemy_fairqueue.sql import LATEST_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Connection, Pool

R = TypeVar("R")

_SECONDS = 60.0


class _Known(NamedTuple):
    version: int
    asked_at: float


# By pool: an engine with other execution options shares it.
_known: WeakKeyDictionary[Pool, dict[str | None, _Known]] = WeakKeyDictionary()


def version_of(connection: Connection, schema: str | None) -> int:
    """The version of the schema that the queue is installed in, as it was when it was last asked.

    An older version than the newest is asked for again after a minute: somebody may have upgraded it.

    Args:
        connection: Where to ask. Unless the answer is known, one short statement is sent in its transaction.
        schema: Where the queue is installed; None: found through the search_path.

    Raises:
        SchemaMismatch: It is not installed there.
    """
    found = _known.get(connection.engine.pool, {}).get(schema)
    if found is None or (found.version < LATEST_VERSION and monotonic() - found.asked_at > _SECONDS):
        return _ask(connection, schema)
    return found.version


def require(connection: Connection, schema: str | None, version: int, feature: str) -> None:
    """Refuse what the installed schema is too old for. The transaction stays usable.

    Args:
        connection: As for :func:`version_of`.
        schema: As for :func:`version_of`.
        version: The first version that has the feature.
        feature: What was asked for, for the message: ``"pause"``.

    Raises:
        SchemaMismatch: The schema is older, also when asked anew.
    """
    if version_of(connection, schema) >= version or (installed := _ask(connection, schema)) >= version:
        return
    where = "the connection's default schema" if schema is None else f"schema {schema!r}"
    place = "" if schema is None else f", schema={schema!r}"
    raise SchemaMismatch(
        f"{feature} needs version {version} of fairqueue's schema, and {where} holds version {installed}; "
        f"upgrade it by op.upgrade_fairqueue({installed}, {version}{place}) in an Alembic migration"
    )


@contextmanager
def calling(connection: Connection, schema: str | None, doing: str) -> Iterator[None]:
    """As :func:`~sqlalchemy_fairqueue.errors.translated`; a function that is not there makes the version be asked anew.

    Args:
        connection: Where the function is called.
        schema: As for :func:`version_of`.
        doing: What was tried, for the message.
    """
    try:
        with translated(doing):
            yield
    except SchemaMismatch as error:
        found = _known.get(connection.engine.pool, {}).pop(schema, None)
        if found is None or found.version == 1:
            raise
        raise SchemaMismatch(
            f"{error}; if it was downgraded from version {found.version} a moment ago, try the transaction again"
        ) from error.__cause__


def tried_anew(connection: Connection, work: Callable[[], R]) -> R:
    """Do *work*, the first of its transaction, by what is known of the schema; once more where that was out of date.

    Raises:
        SchemaMismatch: It was not, or is not right the second time either.
    """
    try:
        return work()
    except SchemaMismatch:
        # If the schema was downgraded meanwhile, its version is known now.
        connection.rollback()
        return work()


def _ask(connection: Connection, schema: str | None) -> int:
    with translated("find the version of fairqueue's schema"):
        version: int = connection.execute(statements.version(schema)).scalar_one()
    _known.setdefault(connection.engine.pool, {})[schema] = _Known(version, monotonic())
    return version
