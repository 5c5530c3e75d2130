"""The page on models: its examples run."""

import re
from types import ModuleType

from sqlalchemy import Engine
from sqlalchemy.orm import DeclarativeBase, Session

from sqlalchemy_fairqueue import Queue, models
from tests.docs.pages import DOCS, blocks

_PAGE = DOCS / "models.md"


def test_examples_run(engine: Engine) -> None:
    """The examples of the page run one after the other, on a Base and an engine of the reader's."""

    class Base(DeclarativeBase):
        """The application's tables."""

    page = ModuleType("page")
    vars(page).update(Base=Base, engine=engine)
    for block in blocks(_PAGE):
        exec(compile(block.text, str(_PAGE), "exec"), vars(page))  # noqa: S102 - our own page
    message_id = Queue("documents").enqueue(engine, channel="customer-7", payload={}, key="report").message_id
    with Session(engine) as session:
        assert [message.id for message in session.scalars(vars(page)["of_the_key"])] == [message_id]


def test_names_exist() -> None:
    """Every attribute that the page names is one of the class."""
    named = set(re.findall(r"`(\w+)\.(\w+)`", _PAGE.read_text()))
    known = {(name, attribute) for name, attribute in named if hasattr(models, name)}
    assert ("Message", "key") in known
    assert {(name, attribute) for name, attribute in known if not hasattr(getattr(models, name), attribute)} == set()
