"""Objects of a schema, one by one, as PostgreSQL's catalog describes them."""

from tests.fixtures.database import Database

Catalog = dict[str, tuple[object, ...]]

_QUERIES = {
    "relation": """
        select c.relname, c.relkind, c.relreplident, c.reloptions, c.relpersistence,
          pg_get_partkeydef(c.oid), pg_get_expr(c.relpartbound, c.oid)
        from pg_class c where c.relnamespace = to_regnamespace(:quoted)
    """,
    "column": """
        select c.relname || '.' || a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
          a.attcollation::regcollation::text, row_number() over (partition by c.oid order by a.attnum),
          pg_get_expr(d.adbin, d.adrelid)
        from pg_attribute a join pg_class c on c.oid = a.attrelid
        left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
        where c.relnamespace = to_regnamespace(:quoted) and c.relkind in ('r', 'p') and a.attnum > 0
          and not a.attisdropped
    """,
    "index": """
        select c.relname, pg_get_indexdef(c.oid), i.indisprimary from pg_index i join pg_class c on c.oid = i.indexrelid
        where c.relnamespace = to_regnamespace(:quoted)
    """,
    "constraint": """
        select k.conrelid::regclass || '.' || k.conname, pg_get_constraintdef(k.oid), k.convalidated
        from pg_constraint k where k.connamespace = to_regnamespace(:quoted)
    """,
    "function": """
        select p.proname || repeat(' again', (row_number() over (partition by p.proname order by p.oid) - 1)::int),
          pg_get_functiondef(p.oid), p.prosrc, p.proacl::text from pg_proc p
        where p.pronamespace = to_regnamespace(:quoted)
    """,
    "trigger": """
        select t.tgrelid::regclass || '.' || t.tgname, pg_get_triggerdef(t.oid), t.tgenabled
        from pg_trigger t join pg_class c on c.oid = t.tgrelid
        where c.relnamespace = to_regnamespace(:quoted) and not t.tgisinternal
    """,
    "schema": """
        select 'of the stages', n.nspacl::text, n.nspowner from pg_namespace n
        where n.nspname = replace(btrim(:quoted, '"'), '""', '"') || '_stages'
    """,
}


def catalog(database: Database, schema: str | None = None, *, kinds: tuple[str, ...] = tuple(_QUERIES)) -> Catalog:
    """Every object of the schema, ``{"relation fq_message": (...), ...}``."""
    quoted = '"' + (schema or "public").replace('"', '""') + '"'
    return {
        f"{kind} {row[0]}": tuple(row)
        for kind in kinds
        for row in database.rows(_QUERIES[kind], quoted=quoted)
        if "alembic_version" not in row[0]
    }
