from pathlib import Path
from types import ModuleType

import pytest
import sqlalchemy
from sqlalchemy import Engine

import sqlalchemy_fairqueue

_PAGE = Path(sqlalchemy_fairqueue.__file__).parents[1] / "docs" / "transactions.md"


def _examples() -> list[str]:
    return [part.partition("```")[0] for part in _PAGE.read_text().split("```python\n")[1:]]


@pytest.mark.parametrize("example", _examples())
def test_examples_run(engine: Engine, monkeypatch: pytest.MonkeyPatch, example: str) -> None:
    """Every example of the page runs as it stands, on the test's database."""
    monkeypatch.setattr(sqlalchemy, "create_engine", lambda _: engine)
    exec(compile(example, str(_PAGE), "exec"), ModuleType("example").__dict__)  # noqa: S102 - our own page
