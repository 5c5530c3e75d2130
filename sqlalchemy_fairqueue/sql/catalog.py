"""Catalog of an installation: the objects of fairqueue in a schema, as PostgreSQL's catalog describes them.

Facts are texts that are the same on every server version and in every schema: names of the schema are taken out.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy import text

from sqlalchemy_fairqueue.sql import stages
from sqlalchemy_fairqueue.sql.files import checked_version, folder, functions, tables, versions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sqlalchemy import Connection

Catalog = dict[str, dict[str, str]]
"""Facts by object: ``{"column fq_message.kind": {"type": "text", ...}, "function fq_now()": {...}, ...}``.

A fact that is not so is left out."""

# Bodies name the schema in quotes, as the loader puts it in: there it becomes the qualifier of the files.
_FUNCTIONS = """
select p.proname || '(' || (
    select coalesce(
      string_agg(replace(format_type(a.type, null), quote_ident(n.nspname) || '.', ''), ', ' order by a.position), '')
    from unnest(p.proargtypes) with ordinality a(type, position)
  ) || ')' as name,
  replace(pg_get_function_arguments(p.oid), quote_ident(n.nspname) || '.', '') as arguments,
  replace(pg_get_function_result(p.oid), quote_ident(n.nspname) || '.', '') as result,
  l.lanname as language,
  p.provolatile::text as volatility,
  p.proparallel::text as parallel,
  case when p.proisstrict then 'yes' end as strict,
  case when p.prosecdef then 'yes' end as "security definer",
  -- quote_all_identifiers of the session that made it, a restore for instance, stays in its search_path
  replace(
    array_to_string(p.proconfig, '; '), 'search_path="pg_catalog", "pg_temp"', 'search_path=pg_catalog, pg_temp'
  ) as settings,
  case when exists (
    select
    from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
    where a.grantee = 0
  ) then 'yes' end as "execute by public",
  case when p.proowner <> (
    select m.relowner
    from pg_class m
    where m.relnamespace = n.oid
      and m.relname = 'fq_message'
  ) then 'yes' end as "another owner than the tables",
  md5(replace(p.prosrc, '"' || replace(n.nspname, '"', '""') || '".fq_', 'fairqueue.fq_')) as body
from pg_proc p
join pg_namespace n on n.oid = p.pronamespace
join pg_language l on l.oid = p.prolang
where n.nspname = :schema
  and p.proname = any (:functions)
order by p.proname, p.proargtypes::text collate "C"
"""

_OURS = """(
  select c.oid, c.relname, c.relkind, c.relpersistence, c.relreplident, c.relrowsecurity, c.reloptions, c.relowner,
    n.nspname,
    (select m.relowner from pg_class m where m.relnamespace = n.oid and m.relname = 'fq_message') as owner
  from pg_class c
  join pg_namespace n on n.oid = c.relnamespace
  where n.nspname = :schema
    and c.relname = any (:tables)
    and c.relkind in ('r', 'p')
    and not c.relispartition
) o"""

_TABLES = """
select o.relname as name,
  o.relkind::text as kind,
  o.relpersistence::text as persistence,
  o.relreplident::text as "replica identity",
  case when o.relrowsecurity then 'yes' end as "row security",
  case when o.relowner <> o.owner then 'yes' end as "another owner than fq_message",
  -- its rows are read with those of the table
  (
    select string_agg(c.relname, ', ' order by c.relname)
    from pg_inherits h
    join pg_class c on c.oid = h.inhrelid
    where h.inhparent = o.oid
      and o.relkind = 'r'
  ) as "inherited by",
  (select string_agg(option, ', ' order by option) from unnest(o.reloptions) option) as options,
  pg_get_partkeydef(o.oid) as "partition key",
  (select d.relname from pg_partitioned_table t join pg_class d on d.oid = t.partdefid where t.partrelid = o.oid)
    as "default partition"
from {ours}
order by o.relname
"""

_COLUMNS = r"""
select o.relname || '.' || a.attname as name,
  format_type(a.atttypid, a.atttypmod) as type,
  case when a.attnotnull then 'yes' end as "not null",
  a.attidentity::text as identity,
  a.attgenerated::text as generated,
  (select c.collname from pg_collation c where c.oid = a.attcollation) as collation,
  -- (In dollar quotes: backslashes in others depend on standard_conforming_strings.)
  regexp_replace(pg_get_expr(d.adbin, d.adrelid), $$'.*?(\w+)'::regclass$$, $$\1$$) as default,
  nullif(
    concat_ws(
      ', ',
      'increment by ' || nullif(s.seqincrement, 1),
      'cache ' || nullif(s.seqcache, 1),
      case when s.seqcycle then 'cycle' end,
      'maxvalue ' || nullif(s.seqmax, 9223372036854775807)
    ),
    ''
  ) as sequence
from {ours}
join pg_attribute a on a.attrelid = o.oid and a.attnum > 0 and not a.attisdropped
left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
left join pg_depend y
  on y.classid = 'pg_class'::regclass
  and y.refclassid = 'pg_class'::regclass
  and y.refobjid = o.oid
  and y.refobjsubid = a.attnum
  and y.deptype in ('i', 'a')
  and exists (select from pg_sequence q where q.seqrelid = y.objid)
left join pg_sequence s on s.seqrelid = y.objid
order by o.relname, a.attnum
"""

_INDEXES = """
select x.relname as name,
  o.relname as table,
  replace(replace(pg_get_indexdef(i.indexrelid),
    format(' ON %I.', o.nspname), ' ON '), format(' ON ONLY %I.', o.nspname), ' ON ONLY ') as definition,
  case when not (i.indisvalid and i.indisready) then 'yes' end as invalid
from {ours}
join pg_index i on i.indrelid = o.oid
join pg_class x on x.oid = i.indexrelid
order by x.relname
"""

_STAGES = stages.SCHEMA_NAME.format("cast(:schema as text)")

# Not null is a fact of the column: only since PostgreSQL 18 is it a constraint too.
_CONSTRAINTS = """
select o.relname || '.' || k.conname as name, pg_get_constraintdef(k.oid) as definition
from {ours}
join pg_constraint k on k.conrelid = o.oid and k.contype <> 'n'
order by o.relname, k.conname
"""


_SCHEMAS = """
select 'stages' as name
from pg_namespace n
where n.nspname = {stages}
"""

_TRIGGERS = """
select o.relname || '.' || t.tgname as name,
  replace(replace(pg_get_triggerdef(t.oid),
    format(' ON %I.', o.nspname), ' ON '), format(' EXECUTE FUNCTION %I.', o.nspname), ' EXECUTE FUNCTION ')
    as definition,
  case t.tgenabled when 'D' then 'yes' end as disabled,
  -- an ordinary session fires no trigger that is enabled for replicas alone
  case t.tgenabled when 'R' then 'replica' when 'A' then 'always' end as enabled
from {ours}
join pg_trigger t on t.tgrelid = o.oid and not t.tgisinternal
order by o.relname, t.tgname
"""

# No version has a rule: what is found is somebody's own.
_RULES = """
select o.relname || '.' || r.rulename as name,
  replace(pg_get_ruledef(r.oid), quote_ident(o.nspname) || '.', '') as definition,
  case r.ev_enabled when 'D' then 'yes' end as disabled
from {ours}
join pg_rewrite r on r.ev_class = o.oid
order by o.relname, r.rulename
"""

# A role that may create functions in a schema of the search_path could have its own called by the reader.
_PLAIN = {"search_path": "pg_catalog, pg_temp", "quote_all_identifiers": "off"}
_SETTINGS = text(
    "select current_setting('search_path') as search_path, "
    "current_setting('quote_all_identifiers') as quote_all_identifiers"
)
_SET = text(
    "select set_config('search_path', :search_path, :local), "
    "set_config('quote_all_identifiers', :quote_all_identifiers, :local)"
)

_QUERIES = {
    "table": _TABLES,
    "column": _COLUMNS,
    "index": _INDEXES,
    "constraint": _CONSTRAINTS,
    "function": _FUNCTIONS,
    "trigger": _TRIGGERS,
    "rule": _RULES,
    "schema": _SCHEMAS,
}


def read_catalog(connection: Connection, schema: str) -> Catalog:
    """Read the objects of a schema that have names of fairqueue's, of any version, and what belongs to them.

    Partitions are their table's affair and are left out. Nothing is locked, and nothing but the catalog is read.
    """
    names = {
        "schema": schema,
        "functions": sorted({name for version in versions() for name in functions(version)}),
        "tables": sorted({name for version in versions() for name in tables(version)}),
    }
    found: Catalog = {}
    with _plain(connection):
        for kind, query in _QUERIES.items():
            for row in connection.execute(
                text(query.replace("{ours}", _OURS).replace("{stages}", _STAGES)), names
            ).mappings():
                found[f"{kind} {row['name']}"] = {fact: row[fact] for fact in row if fact != "name" and row[fact]}
    return found


@contextmanager
def _plain(connection: Connection) -> Iterator[None]:
    """Set what makes the catalog's texts the same everywhere, and lets no function but PostgreSQL's own be called.

    They are as they were when this ends. Where a statement failed, its transaction's end does that.
    """
    before = connection.execute(_SETTINGS).one()._asdict()
    # In AUTOCOMMIT a transaction's setting would be over with the statement.
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
    """Return what :func:`read_catalog` reads of a correct installation of a version; do not change it.

    Each ``vN/catalog.json`` has what differs from the version before.

    Raises:
        ValueError: The version is not known.
    """
    return _frozen(checked_version(version))


@cache
def _frozen(version: int) -> Catalog:
    changes: dict[str, dict[str, str] | None] = json.loads((folder(version) / "catalog.json").read_text("utf-8"))
    known = _before(version) | changes
    return {name: facts for name, facts in known.items() if facts is not None}


def changed_catalog(version: int, catalog: Catalog) -> dict[str, dict[str, str] | None]:
    """Return what ``vN/catalog.json`` holds: what differs from the version before; None for what is gone."""
    before = _before(version)
    return {name: facts for name, facts in catalog.items() if before.get(name) != facts} | {
        name: None for name in before if name not in catalog
    }


def _before(version: int) -> dict[str, dict[str, str] | None]:
    return {} if version == versions()[0] else {**_frozen(version - 1)}
