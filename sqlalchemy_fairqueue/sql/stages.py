"""Schema of the staging tables of bulk loads: made and dropped with the installation.

Loaders would otherwise need the right to create in the schema of the queues, where they could add functions of their
own.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy_fairqueue.sql.schema import block, part, quoted_literal

STAGE_NAME: Final = "fq_stage_[0-9]{1,18}_[0-9a-f]{12}"
"""Names of stages, as a regular expression of Python's and of PostgreSQL's. `fq_make_stage` makes the names."""
STAGE_COLUMNS: Final = frozenset({"attempt", "channel", "kind", "content"})
"""Columns that a table of that name has if it is a stage, and not the user's."""
STAGE_SCHEMA: Final = (
    "case when octet_length({0}) <= 56 then {0} || '_stages' "
    "else left({0}, 11) || '_' || left(md5({0}), 8) || '_stages' end"
)
"""SQL for the name of the schema, to be formatted with the name of the installation's: as ``fq_stage_schema()``."""

_VARIABLES = {"v_stages": "text", "v_owner": "text", "v_stage": "record"}


def make_stage_schema(schema: str | None) -> str:
    """Return a block that makes the schema of the stages if it is missing, and warns if the role may not."""
    return block(part("make_stages", name=STAGE_SCHEMA.format("v_schema")), schema, _VARIABLES)


def drop_stage_schema(schema: str | None) -> str:
    """Return a block that drops every staging table, and their schema unless it holds something else."""
    columns = f"array[{', '.join(quoted_literal(column) for column in sorted(STAGE_COLUMNS))}]"
    name = STAGE_SCHEMA.format("v_schema")
    return block(
        part("drop_stages", schema=name, name=quoted_literal(f"^{STAGE_NAME}$"), columns=columns), schema, _VARIABLES
    )
