"""Reads the objects of an installation from PostgreSQL's catalog, and compares them with what its version has.

Facts about objects are texts, the same on every server version and in every schema, since the schema's name is removed.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

from sqlalchemy import Connection, text

from sqlalchemy_fairqueue.sql.files import checked_version, folder, names_of_ours, query, versions
from sqlalchemy_fairqueue.sql.grants import PUBLIC, compared_rights, may_read_grants, read_grants, read_privileges
from sqlalchemy_fairqueue.sql.schema import (
    IS_UNRELEASED,
    STAGE_SCHEMA,
    UNRELEASED,
    VERSION_COLUMN,
    named_schema,
    quoted,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping


Catalog = dict[str, dict[str, str]]
"""Facts by object: ``{"column fq_message.kind": {"type": "text", ...}, "function fq_now()": {...}, ...}``."""

_KINDS = ("table", "column", "index", "constraint", "function", "trigger", "rule", "schema")
# With another search_path, a role that may create functions in one of its schemas could make the reader call them.
_PLAIN = {"search_path": "pg_catalog, pg_temp", "quote_all_identifiers": "off"}
_SETTINGS = text(
    "select current_setting('search_path') as search_path, "
    "current_setting('quote_all_identifiers') as quote_all_identifiers"
)
_SET = text(
    "select set_config('search_path', :search_path, :local), "
    "set_config('quote_all_identifiers', :quote_all_identifiers, :local)"
)


def read_catalog(connection: Connection, schema: str) -> Catalog:
    """Read the tables and functions of a schema that are named as in any version, and what belongs to the tables.

    Partitions of tables are left out. This locks nothing, and reads only PostgreSQL's catalog.
    """
    names = names_of_ours(schema)
    ours, stages_schema = query("ours"), STAGE_SCHEMA.format("cast(:schema as text)")
    found: Catalog = {}
    with _plain(connection):
        for kind in _KINDS:
            statement = text(query(kind).replace("{ours}", ours).replace("{stages}", stages_schema))
            for row in connection.execute(statement, names).mappings():
                found[f"{kind} {row['name']}"] = {fact: row[fact] for fact in row if fact != "name" and row[fact]}
    return found


@contextmanager
def _plain(connection: Connection) -> Iterator[None]:
    """Use settings under which the catalog's texts are the same everywhere, and only PostgreSQL's functions run."""
    before = connection.execute(_SETTINGS).one()._asdict()
    # In AUTOCOMMIT a setting of the transaction would end with the statement.
    lasting = getattr(connection.connection.dbapi_connection, "autocommit", False)

    connection.execute(_SET, {**_PLAIN, "local": not lasting})
    try:
        yield
    except BaseException:
        if lasting:
            connection.execute(_SET, {**before, "local": False})
        raise
    connection.execute(_SET, {**before, "local": not lasting})


def expected_catalog(version: int) -> Mapping[str, Mapping[str, str]]:
    """Return what :func:`read_catalog` reads of a correct installation of a version. Do not change the result."""
    return _frozen(checked_version(version))


@cache
def _frozen(version: int) -> Catalog:
    changes: dict[str, dict[str, str] | None] = json.loads((folder(version) / "catalog.json").read_text("utf-8"))
    before = {} if version == versions()[0] else _frozen(version - 1)
    return {name: facts for name, facts in {**before, **changes}.items() if facts is not None}


_VERBS = ("function fq_enqueue(", "function fq_dequeue(", "function fq_complete(")

State = Literal["missing", "changed", "unexpected"]


@dataclass(frozen=True, slots=True)
class Difference:
    """An object that differs from what the installed version has.

    Attributes:
        kind: ``function``, ``table``, ``column``, ``index``, ``constraint``, ``trigger``, ``rule``, ``grant`` or
            ``schema`` (of the staging tables); ``installation`` if no version that the library knows is installed.
        name: Such as ``fq_dequeue`` or ``fq_message.kind``; for a grant, the role.
        detail: For a change, what has changed; for an installation or a grant, what is wrong.
    """

    kind: str
    name: str
    state: State
    detail: str = ""

    @property
    def named(self) -> str:
        """The object as :func:`assert_no_drift` takes it in *allowed*: ``index message_tenant``."""
        return f"{self.kind} {self.name}"

    def __str__(self) -> str:
        return f"{self.named} is {self.state}" + (f": {self.detail}" if self.detail else "")


def installed_version(connection: Connection, schema: str | None = None) -> int | None:
    """Return the installed version, even an unknown one or :data:`UNRELEASED`; None if there is no ``fq_version()``."""
    target = _resolved(connection, schema)
    if target is None:
        return None
    if not connection.scalar(text(query("has_version")), {"schema": target}):
        return None
    statement = f"select {VERSION_COLUMN} from {quoted(target)}.fq_version()"  # noqa: S608 - quoted
    return int(connection.exec_driver_sql(statement, execution_options={"no_parameters": True}).scalar_one())


def recognised_version(connection: Connection, schema: str | None = None) -> int | None:
    """Return what ``fq_version()`` says, or else the version that objects resemble; None if nothing is installed."""
    version = installed_version(connection, schema)
    target = _resolved(connection, schema)
    if version is not None or target is None:
        return version
    found = read_catalog(connection, target)
    if "table fq_message" not in found or not any(key.startswith(_VERBS) for key in found):
        return None
    return min(versions(), key=lambda each: len([*_differences(expected_catalog(each), found)]))


def find_drift(connection: Connection, schema: str | None = None) -> list[Difference]:
    """Find the changes that no migration made: differences from the installed version, sorted by kind and name.

    The call compares the library's functions and tables, the columns, indexes, constraints, triggers and rules of these
    tables, even if you added them, and the schema of the staging tables. Your own table or function is compared only if
    it has the name of a table or function of the library. Partitions of the history are not compared. If
    ``fq_version()`` is missing, the installation is compared with the version that it resembles most.

    If the connection's role may read the grants, the grants are compared with the privileges on the functions. They are
    not compared if ``fq_grants()`` or the table ``fq_grant`` has drifted. The call reads only PostgreSQL's catalog and
    the grants, in the connection's transaction, and needs no privilege on the tables.

    Args:
        schema: The schema of the installation. None: the connection's default schema.
    """
    version = recognised_version(connection, schema)
    target = _resolved(connection, schema)
    if version is None or target is None:
        return [
            Difference("installation", "fairqueue", "missing", f"there is no fq_version() in {named_schema(target)}")
        ]
    if version == UNRELEASED:
        return [Difference("installation", "fairqueue", "unexpected", f"{named_schema(target)} {IS_UNRELEASED}")]
    if version not in versions():
        detail = f"it is version {version}, and this library knows {', '.join(map(str, versions()))}"
        return [Difference("installation", "fairqueue", "unexpected", detail)]
    found: Mapping[str, Mapping[str, str]] = read_catalog(connection, target)
    differences = list(_differences(expected_catalog(version), found))
    # After a rename of the schema, for example, the function would read the grants under the old name.
    if {"function fq_grants", "table fq_grant"}.isdisjoint(one.named for one in differences):
        differences += _grant_differences(connection, target, version)
    return sorted(differences, key=lambda one: (one.kind, one.name, one.state))


def assert_no_drift(connection: Connection, schema: str | None = None, *, allowed: Collection[str] = ()) -> None:
    """Fail, and say what differs, unless the installation is what its migrations made; for your tests.

    Args:
        schema: The schema of the installation. None: the connection's default schema.
        allowed: What you added or changed on purpose, as ``"column fq_message.tenant"`` or ``"index message_tenant"``.

    Raises:
        AssertionError: Something differs.
    """
    found = [one for one in find_drift(connection, schema) if one.named not in allowed]
    if found:
        lines = "\n".join(f"- {one}" for one in found)
        raise AssertionError(f"the installation differs from what its version has:\n{lines}")


def _resolved(connection: Connection, schema: str | None) -> str | None:
    if schema is not None:
        return schema
    found: str | None = connection.scalar(text("select current_schema()"))
    return found


def _differences(want: Mapping[str, Mapping[str, str]], have: Mapping[str, Mapping[str, str]]) -> Iterator[Difference]:
    replaced = []  # what stands in place of functions whose parameters were changed
    for key, facts in want.items():
        kind, _, name = key.partition(" ")
        short = name.partition("(")[0]
        if key in have:
            if changes := _changes(facts, have[key]):
                yield Difference(kind, short, "changed", changes)
            continue
        others = [other for other in have if kind == "function" and other.startswith(f"function {short}(")]
        if others:
            replaced.append(others[0])
            yield Difference(kind, short, "changed", f"its parameters are ({others[0].partition('(')[2]}")
        elif kind in {"table", "function", "schema"} or f"table {facts.get('table', name.partition('.')[0])}" in have:
            yield Difference(kind, short, "missing")
    for key in have:
        kind, _, name = key.partition(" ")
        if key not in want and key not in replaced:
            yield Difference(kind, name, "unexpected")


def _grant_differences(connection: Connection, schema: str, version: int) -> Iterator[Difference]:
    if not may_read_grants(connection, schema):
        return
    # What PUBLIC may execute is left out here. It is a fact of each function in the catalog, so find_drift compares it
    # with the functions.
    for one in compared_rights(version, read_grants(connection, schema), read_privileges(connection, schema)):
        if not one.role_exists:
            yield Difference("grant", one.role, "unexpected", "the role was dropped")
        if one.lacking:
            yield Difference("grant", one.role, "missing", f"execute on {', '.join(one.lacking)}")
        if one.beyond and one.role != PUBLIC:
            yield Difference("grant", one.role, "unexpected", f"execute on {', '.join(one.beyond)}")


def _changes(want: Mapping[str, str], have: Mapping[str, str]) -> str:
    differing = [fact for fact in {**want, **have} if want.get(fact) != have.get(fact)]
    if differing == ["body"]:
        return "its body is another one"
    return ", ".join(f"{fact} from {want.get(fact, 'none')} to {have.get(fact, 'none')}" for fact in differing)
