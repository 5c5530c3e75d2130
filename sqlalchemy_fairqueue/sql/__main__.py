"""Prints a script for psql: ``python -m sqlalchemy_fairqueue.sql install 1 --schema queue | psql -v ON_ERROR_STOP=1``.

The script is one transaction. With Alembic use the operations, or ``alembic upgrade --sql``.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.sql.statements import (
    downgrade_statements,
    drop_statements,
    install_statements,
    upgrade_statements,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def script(arguments: list[str]) -> str:
    parser = argparse.ArgumentParser(prog="python -m sqlalchemy_fairqueue.sql", description="Print a script for psql.")
    ways = parser.add_subparsers(dest="way", required=True)
    for way, (_, numbers) in _WAYS.items():
        command = ways.add_parser(way)
        command.add_argument("versions", type=int, nargs=numbers, metavar="VERSION")
        command.add_argument("--schema", help="the schema; without it, the connection's default schema")
    given = parser.parse_args(arguments)
    make, _ = _WAYS[given.way]
    statements = make(*given.versions, given.schema)
    return "".join(f"{statement};\n" for statement in ("begin", *statements, "commit"))


_WAYS: dict[str, tuple[Callable[..., Iterator[str]], int]] = {
    "install": (install_statements, 1),
    "upgrade": (upgrade_statements, 2),
    "downgrade": (downgrade_statements, 2),
    "drop": (drop_statements, 1),
}

if __name__ == "__main__":
    sys.stdout.write(script(sys.argv[1:]))
