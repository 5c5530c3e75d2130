"""Which part may know which (the design's rule), checked from the imports."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import alembic_ext
import sqlalchemy_fairqueue

_ROOT = Path(sqlalchemy_fairqueue.__file__).parent
_PACKAGE = "sqlalchemy_fairqueue"

# Part by part, what it may import from the package. Leaves may know whatever they like, and nobody knows them.
_MAY_KNOW = {
    "sql": set[str](),
    "errors": {"sql"},
    "times": set[str](),
    "asynchronous": set[str](),
    "codecs": {"errors"},
    "values": {"errors", "times"},
    "engines": {"asynchronous", "errors"},
    "statements": {"errors", "sql"},
    "installation": {"errors", "sql", "statements"},
    "models": {"errors", "times", "codecs", "sql", "values"},
    "unit_of_work": {"asynchronous", "errors", "times", "values", "engines", "statements", "installation"},
    "consumer": {"errors", "times", "codecs", "values", "statements", "installation", "unit_of_work"},
    "queue": {
        "asynchronous",
        "errors",
        "times",
        "codecs",
        "values",
        "engines",
        "statements",
        "installation",
        "unit_of_work",
        "consumer",
    },
    "worker": {
        "asynchronous",
        "errors",
        "times",
        "sql",
        "codecs",
        "values",
        "engines",
        "statements",
        "installation",
        "unit_of_work",
        "consumer",
        "queue",
    },
    "": {"errors", "codecs", "values", "queue", "models", "worker"},
}
_LEAVES = {"cli", "demo", "testing", "spark", "embedded", "__main__"}


def _files(root: Path) -> list[Path]:
    return sorted(root.rglob("*.py"))


def _part(file: Path) -> str:
    first = file.relative_to(_ROOT).parts[0].removesuffix(".py")
    return "" if first == "__init__" else first


def _imports(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} imports relatively"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _known(file: Path) -> set[str]:
    """The parts of the package that a file imports; "" is the package itself."""
    known = set()
    for name in _imports(file):
        package, _, rest = name.partition(".")
        if package == _PACKAGE:
            part = rest.split(".")[0]
            known.add(part if (_ROOT / part).is_dir() or (_ROOT / f"{part}.py").is_file() else "")
    return known


@pytest.mark.parametrize("file", _files(_ROOT), ids=lambda file: str(file.relative_to(_ROOT)))
def test_parts(file: Path) -> None:
    """A module imports only from the parts that its own part may know."""
    part = _part(file)
    if part in _LEAVES:
        # A leaf may know another only if it says so here: the demo runs on the embedded server, and the demo and the
        # command line make reports.
        assert _known(file) & (_LEAVES - {part}) <= {"embedded"} | ({"spark"} if part in {"cli", "demo"} else set())
        return
    assert part in _MAY_KNOW, f"{part} has no line in the rule"
    assert _known(file) - {part} <= _MAY_KNOW[part]


@pytest.mark.parametrize("file", _files(_ROOT), ids=lambda file: str(file.relative_to(_ROOT)))
def test_nobody_knows_alembic_ext_or_the_tests(file: Path) -> None:
    """The package never imports its Alembic side or its tests; a demo's migration is a user's, and does."""
    roots = {name.partition(".")[0] for name in _imports(file)}
    assert "tests" not in roots
    if _part(file) not in _LEAVES:
        assert not roots & {"alembic", "alembic_ext"}


@pytest.mark.parametrize("file", _files(Path(alembic_ext.__file__).parent), ids=lambda file: file.name)
def test_alembic_ext(file: Path) -> None:
    """alembic_ext knows the SQL, the models and the errors below them, and nothing else of the package."""
    assert _known(file) <= {"errors", "sql", "models"}


def test_the_rule_has_no_dead_lines() -> None:
    """Every part that exists has its line, and the rule knows no circle."""
    parts = {_part(file) for file in _files(_ROOT)}
    assert parts <= set(_MAY_KNOW) | _LEAVES
    order = list(_MAY_KNOW)
    for part, known in _MAY_KNOW.items():
        assert all(order.index(other) < order.index(part) for other in known), part
