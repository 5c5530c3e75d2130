"""Staging tables of bulk loads: dropping fairqueue also drops those that failed loads left behind.

Otherwise the next load drops them, but there is none where fairqueue is gone.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy_fairqueue.sql.schema import block, quoted_literal

NAME: Final = "fq_stage_[0-9]{1,18}_[0-9a-f]{12}"
"""What a stage is called, as a regular expression of Python's and of PostgreSQL's. `fq_make_stage` makes the names."""
COLUMNS: Final = frozenset({"attempt", "channel", "kind", "content"})
"""Columns that a table of that name has if it is a stage, and not the user's."""

# The schema's owner may drop what others have made in it.
_DROP = """\
  for v_stage in
    select format('%I.%I', n.nspname, c.relname) as name, c.relowner::regrole as owner,
      pg_has_role(c.relowner, 'usage') or pg_has_role(n.nspowner, 'usage') as ours
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = v_schema
      and c.relkind = 'r'
      and c.relpersistence = 'u'
      and c.relname ~ {name}
      and array(select a.attname::text from pg_attribute a where a.attrelid = c.oid) @> {columns}
    order by c.relname collate "C"
  loop
    if v_stage.ours then
      execute 'drop table ' || v_stage.name;
    else
      raise warning 'staging table % belongs to role % and stays; let that role drop it', v_stage.name, v_stage.owner;
    end if;
  end loop;"""


def drop_stages(schema: str | None) -> str:
    """A block that drops every staging table, and warns of those that belong to a role that the migration is not in."""
    columns = f"array[{', '.join(quoted_literal(column) for column in sorted(COLUMNS))}]"
    return block(_DROP.format(name=quoted_literal(f"^{NAME}$"), columns=columns), schema, {"v_stage": "record"})
