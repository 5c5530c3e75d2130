"""Bounds of the values of a table, as the SQL that makes the table says."""

from __future__ import annotations

import re
from functools import cache

from sqlalchemy import CheckConstraint
from sqlalchemy.sql.elements import conv

from sqlalchemy_fairqueue.sql import NEEDED_VERSION, tables

_CHECK = re.compile(r"^  constraint (\w+_check) check \(\n(.*?)\n  \)", re.MULTILINE | re.DOTALL)


def value_checks(table: str) -> list[CheckConstraint]:
    """The constraints that bound the values of a table, under the names that the installation gives them."""
    return [CheckConstraint(bounds, name=conv(name)) for name, bounds in _checks(table)]


@cache
def _checks(table: str) -> tuple[tuple[str, str], ...]:
    statements = tables(NEEDED_VERSION)[table]
    return tuple((found[1], " ".join(found[2].split())) for found in _CHECK.finditer(statements[0]))
