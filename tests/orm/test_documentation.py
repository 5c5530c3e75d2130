"""The page on models: its examples run."""

from pathlib import Path
from types import ModuleType

from sqlalchemy import Engine
from sqlalchemy.orm import DeclarativeBase

import sqlalchemy_fairqueue

_PAGE = Path(sqlalchemy_fairqueue.__file__).parents[1] / "docs" / "models.md"


def test_examples_run(engine: Engine) -> None:
    """The examples of the page run one after the other, on a Base and an engine of the reader's."""

    class Base(DeclarativeBase):
        """The application's tables."""

    page = ModuleType("page")
    vars(page).update(Base=Base, engine=engine)
    examples = [part.partition("```")[0] for part in _PAGE.read_text().split("```python\n")[1:]]
    assert examples
    for example in examples:
        exec(compile(example, str(_PAGE), "exec"), vars(page))  # noqa: S102 - our own page
