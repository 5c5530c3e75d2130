"""Privileges on functions: taken from PUBLIC; those of functions that are made again are noted and given back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.sql.schema import block, part, quoted_literal

if TYPE_CHECKING:
    from collections.abc import Iterable


def close_functions(functions: Iterable[str], schema: str | None) -> str:
    """Return a block that revokes functions from PUBLIC, and makes the tables' owner theirs."""
    names = ", ".join(map(quoted_literal, functions))
    return block(part("close_functions", functions=names), schema, {"v_made": "record"})


def note_privileges(functions: Iterable[str], schema: str | None) -> str:
    """Return a block that writes down who may call the functions."""
    return block(
        part("note_privileges", grants=part("held_privileges"), names=", ".join(map(quoted_literal, functions))), schema
    )


def give_back_privileges(schema: str | None) -> str:
    """Return a block that grants exactly what was written down in the transaction."""
    return block(
        part("give_back_privileges", grants=part("held_privileges")),
        schema,
        {"v_function": "record", "v_grant": "record"},
    )
