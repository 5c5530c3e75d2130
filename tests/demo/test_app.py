from pathlib import Path

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue.demo.business import SourceStats, Upload, parse
from sqlalchemy_fairqueue.demo.run import Visit, left, upload
from sqlalchemy_fairqueue.demo.workers import SERVICES

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


@pytest.mark.parametrize("service", SERVICES)
def test_each_upload_is_parsed_once(app_engine: Engine, tmp_path: Path, service: str) -> None:
    """Both services parse what was uploaded, and then have nothing left."""
    path = tmp_path / "source.py"
    path.write_bytes(_SOURCE)
    upload(service, app_engine, Visit("Alice", {f"alice/{number}": str(path) for number in range(7)}))
    assert _left(app_engine) == 7

    def ended(allowed: float | None) -> bool:
        while not (done := _left(app_engine) == 0) and allowed is None:
            pass
        return done

    SERVICES[service].run(app_engine, "worker 1", ended)

    with Session(app_engine) as session:
        assert sorted(stats.upload_key for stats in session.query(SourceStats)) == [f"alice/{n}" for n in range(7)]


def _left(engine: Engine) -> int:
    with Session(engine) as session:
        return left(session)
