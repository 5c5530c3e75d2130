"""The page on models: its examples run."""

import re
from pathlib import Path
from types import ModuleType

from sqlalchemy import Engine
from sqlalchemy.orm import DeclarativeBase, Session

import sqlalchemy_fairqueue
from sqlalchemy_fairqueue import Queue, models

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
    message_id = Queue("documents").enqueue(engine, channel="customer-7", payload={}, key="report").message_id
    with Session(engine) as session:
        assert [message.id for message in session.scalars(vars(page)["of_the_key"])] == [message_id]


def test_names_exist() -> None:
    """Every attribute that the page names is one of the class."""
    named = set(re.findall(r"`(\w+)\.(\w+)`", _PAGE.read_text()))
    known = {(name, attribute) for name, attribute in named if hasattr(models, name)}
    assert ("Message", "key") in known
    assert {(name, attribute) for name, attribute in known if not hasattr(getattr(models, name), attribute)} == set()
