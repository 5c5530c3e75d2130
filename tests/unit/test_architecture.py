"""The layers of the package, checked from the imports: who may know whom, no cycles, and SQL in one place."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import alembic_ext
import sqlalchemy_fairqueue

_ROOT = Path(sqlalchemy_fairqueue.__file__).parent
_PACKAGE = "sqlalchemy_fairqueue"

_BASE = {"texts", "errors", "times", "codecs", "values"}
# The layers from the bottom up: what each part may import from the package. "" is the package itself.
_MAY_KNOW = {
    "texts": set[str](),
    "errors": {"texts"},
    "times": set[str](),
    "codecs": {"texts", "errors"},
    "values": {"texts", "errors", "times"},
    "formats": {"texts", "errors", "times", "values"},
    "drawings": set[str](),
    "sql": set[str](),
    "database": _BASE | {"sql"},
    "models": _BASE | {"sql"},
    "unit_of_work": _BASE | {"database"},
    "watching": {"database"},
    "queue": _BASE | {"database", "unit_of_work", "watching"},
    "figures": _BASE | {"database", "queue"},
    "worker": _BASE | {"sql", "database", "unit_of_work", "queue", "figures"},
    "reports": {"values", "worker"},
    "logs": set[str](),
    "first_process": set[str](),
    "": {"first_process", "watching", "errors", "codecs", "values", "database", "queue", "models", "worker"},
}
# Leaves may know what they like, and nobody knows them, but for these: demo and tests run on the embedded server, the
# demo and the command line make reports, with replays in them, in the process or by Spark, and the command line serves
# metrics and the dashboard. Both of these show what doctor finds.
_LEAVES = {
    *("cli", "dashboard", "demo", "doctor", "embedded", "metrics", "otel", "reporting", "sentry", "spark", "testing"),
}
_KNOWN_LEAVES = {
    "cli": {"dashboard", "doctor", "embedded", "metrics", "reporting", "spark"},
    "dashboard": {"doctor"},
    "demo": {"embedded", "reporting", "spark"},
    "spark": {"reporting"},
    "testing": {"embedded"},
}

# Parts that write SQL of their own, with the reason.
_WRITES_SQL = {
    "sql": "the schema",
    "database": "the calls",
    "models": "server defaults and partial indexes",
    "embedded": "creates and drops databases",
    "reporting": "reads the history and the policies on a connection of its own",
    "spark": "readers and loads on the driver's own connections",
    "demo": "an application, which queries its tables and the models",
    "testing": "reads messages through the models",
    "cli": "whether Spark's executors come to the database of the engine",
    "doctor": "the checks, and where fairqueue is installed, in .sql files",
}
_EXECUTING = {"execute", "executemany", "exec_driver_sql", "scalar", "scalars", "stream", "stream_scalars"}
_WRITING = {"sqlalchemy.text", "sqlalchemy.sql.text", "sqlalchemy.select", "sqlalchemy.func"}


_MODULES = {
    ".".join(file.relative_to(_ROOT).with_suffix("").parts).removesuffix("__init__").removesuffix("."): file
    for file in sorted(_ROOT.rglob("*.py"))
}


def _part(module: str) -> str:
    return module.partition(".")[0]


@cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def _imports(node: ast.AST) -> Iterator[str]:
    """The full names that are imported anywhere below a node."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "a relative import"
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        else:
            yield from _imports(child)


@cache
def _imported(file: Path) -> frozenset[str]:
    """The full names that a file imports."""
    return frozenset(_imports(_tree(file)))


def _known(file: Path) -> set[str]:
    """The modules of the package that a file imports."""
    known = set()
    for name in _imported(file):
        package, _, rest = name.partition(".")
        if package == _PACKAGE:
            while rest not in _MODULES:
                rest = rest.rpartition(".")[0]
            known.add(rest)
    return known


def test_layers() -> None:
    """A module imports only from the parts that its own part may know, and never Alembic, our side of it or tests."""
    too_much = {}
    for module, file in _MODULES.items():
        part = _part(module)
        known = {_part(other) for other in _known(file)} - {part}
        too_much[module] = {name.partition(".")[0] for name in _imported(file)} & {"tests", "alembic", "alembic_ext"}
        if part in _LEAVES:
            too_much[module] |= known & _LEAVES - _KNOWN_LEAVES.get(part, set())
        else:
            too_much[module] |= known - _MAY_KNOW[part]
    assert {module: names for module, names in too_much.items() if names} == {}


def test_the_layers_have_no_dead_lines() -> None:
    """Every part is in a layer or a leaf, and no layer knows one that comes after it."""
    assert {_part(module) for module in _MODULES} == set(_MAY_KNOW) | _LEAVES
    order = list(_MAY_KNOW)
    for part, known in _MAY_KNOW.items():
        assert all(order.index(other) < order.index(part) for other in known), part


def test_no_cycles() -> None:
    """No module imports itself by way of others, not even for its types: each is read after those that it knows."""
    graph = {module: _known(file) - {module} for module, file in _MODULES.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"import cycle: {' -> '.join(error.args[1])}")


@cache
def _sql_in(file: Path) -> list[str]:
    """Where a file writes or executes SQL."""
    return [f"imports {name}" for name in _imported(file) if name in _WRITING] + [
        f"calls {node.func.attr} in line {node.lineno}"
        for node in ast.walk(_tree(file))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _EXECUTING
    ]


def test_sql_is_called_by_database_alone() -> None:
    """Nothing else writes or executes a statement; a part that need not do so is no exemption."""
    found = {module: sql for module, file in _MODULES.items() if (sql := _sql_in(file))}
    assert {module: sql for module, sql in found.items() if _part(module) not in _WRITES_SQL} == {}
    assert {_part(module) for module in found} == set(_WRITES_SQL)


def test_statements_of_commands_read_the_catalog_alone() -> None:
    """Where fairqueue is installed is asked of the catalog; only the checks name its functions and tables."""
    files = [_ROOT / "doctor" / "queries" / f"{name}.sql" for name in ("installed", "other_schemas")]
    assert [file.name for file in files if "fairqueue." in file.read_text()] == []


def test_alembic_ext() -> None:
    """alembic_ext knows the SQL, the models and the errors below them, and nothing else of the package."""
    files = Path(alembic_ext.__file__).parent.rglob("*.py")
    known = {_part(module) for file in files for module in _known(file)}
    assert known <= {"texts", "errors", "sql", "models"}


def test_texts_name_no_file_of_the_repository() -> None:
    """Who installed the wheel has no docs/: errors and docstrings name pages of the documentation."""
    named = re.compile(r"docs/[\w/]*|README\.md")
    assert {module: found for module, file in _MODULES.items() if (found := named.findall(file.read_text()))} == {}
