from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue.demo.app import fair, fifo
from sqlalchemy_fairqueue.demo.app.models import Base, Customer, SourceStats, Upload
from sqlalchemy_fairqueue.demo.app.parsing import parse
from sqlalchemy_fairqueue.demo.services import Service

_SOURCE = b"""
import a
class B:
    def c(self):
        try:
            from d import e
        except ImportError:
            async def f(): ...
"""


def test_definitions_are_counted_however_deep(tmp_path: Path) -> None:
    """Parsing counts lines, functions, classes and imports in blocks of blocks."""
    path = tmp_path / "source.py"
    path.write_bytes(_SOURCE)
    found = parse(Upload(key="alice/source.py", path=str(path)))
    assert (found.lines, found.functions, found.classes, found.imports, found.error) == (8, 2, 1, 2, None)


@pytest.mark.parametrize("source", [b"print 'two'", b"a\0b", b"# coding: nonsense\n", b"\xff = 1"])
def test_what_is_no_python_gives_a_result_with_its_error(tmp_path: Path, source: bytes) -> None:
    """A file that does not parse is not lost: its result says why."""
    path = tmp_path / "source.py"
    path.write_bytes(source)
    found = parse(Upload(key="alice/source.py", path=str(path)))
    assert (found.functions, found.classes, found.imports) == (0, 0, 0)
    assert found.error


def test_the_migrations_make_what_the_models_say(app_engine: Engine) -> None:
    """Alembic finds no difference between the app's models and its migrated database."""
    with app_engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"include_name": lambda name, kind, _: kind != "table" or name in Base.metadata.tables}
        )
        assert compare_metadata(context, Base.metadata) == []


@pytest.mark.parametrize("service", [fair, fifo])
def test_each_upload_is_parsed_once(app_engine: Engine, tmp_path: Path, service: Service) -> None:
    """Both services parse what was uploaded, and then have nothing left."""
    path = tmp_path / "source.py"
    path.write_bytes(_SOURCE)
    with Session(app_engine) as session, session.begin():
        session.add(Customer(id=1, name="Alice"))
        service.prepare(session)
    service.upload(app_engine, 1, {f"alice/{number}": str(path) for number in range(7)})

    def ended(allowed: float | None) -> bool:
        while not (done := _waiting(app_engine, service) == 0) and allowed is None:
            pass
        return done

    service.run(app_engine, "worker 1", ended)

    with Session(app_engine) as session:
        assert sorted(stats.upload_key for stats in session.query(SourceStats)) == [f"alice/{n}" for n in range(7)]


def _waiting(engine: Engine, service: Service) -> int:
    with Session(engine) as session:
        return service.waiting(session)
