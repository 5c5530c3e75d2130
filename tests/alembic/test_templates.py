"""Environments from Alembic's other templates: several databases in one, and asyncio."""

from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import make_url

from tests.alembic.catalog import catalog
from tests.alembic.conftest import LATEST, Project
from tests.alembic.environments import MODELS, code, environment
from tests.alembic.migrations import calls
from tests.fixtures.database import Database, MakeDatabase

pytestmark = pytest.mark.installed

CREATED = f"op.create_fairqueue(version={LATEST})"
DROPPED = f"op.drop_fairqueue(version={LATEST})"

SEVERAL = """
class Other(sa.orm.DeclarativeBase):
    pass

class Report(Other):
    __tablename__ = "report"
    id = sa.orm.mapped_column(sa.Integer, primary_key=True)

target_metadata = {"engine1": Base.metadata, "engine2": Other.metadata}
"""


def test_asyncio(make_project: Callable[[str], Project], empty_database: Database) -> None:
    """The template for asyncio writes, runs, checks and undoes our operations as the generic one does."""
    project = make_project("async")
    environment(project, MODELS)
    project.point_at(empty_database.url)
    upgrade, downgrade = project.autogenerate("one").split("def downgrade")
    assert (calls(upgrade), calls(downgrade)) == ([CREATED], [DROPPED])
    project.run("upgrade", "head")
    project.run("check")
    project.run("downgrade", "base")
    assert catalog(empty_database) == {}


@pytest.mark.many(1)
@pytest.mark.parametrize("other", ["postgresql", "sqlite"])
def test_several_databases(
    make_project: Callable[[str], Project], make_database: MakeDatabase, tmp_path: Path, other: str
) -> None:
    """Of several databases the one whose models are ours gets our operations, and the other sees nothing of us."""
    project = make_project("multidb")
    project.edit_env("target_metadata = {}\n", code(MODELS + SEVERAL))
    ours, theirs = make_database(installed=False), make_database(installed=False)
    elsewhere = theirs.url if other == "postgresql" else make_url(f"sqlite:///{tmp_path}/other.db")
    project.point_at(ours.url, elsewhere)

    written = project.autogenerate("one")
    parts = [part for part in written.split("def ") if "grade_engine" in part]
    assert [calls(part)[:1] for part in parts if "engine1" in part] == [[CREATED], [DROPPED]]
    assert not [part for part in parts if "engine2" in part and "fairqueue" in part]
    project.run("upgrade", "head")
    assert ours.value("select fq_version()") == LATEST
    assert "fq_" not in str(catalog(theirs))
    project.run("check")
    project.run("downgrade", "base")
    assert catalog(ours) == {}


def test_base_of_the_application(
    project: Project, empty_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An env.py that asks for the models of the application, which has made them, runs as often as it likes."""
    (tmp_path / "shop_of_the_users.py").write_text(code(MODELS))
    monkeypatch.syspath_prepend(tmp_path)
    written = "from shop_of_the_users import Base\nimport alembic_ext\n"
    project.edit_env("target_metadata = None\n", f"{written}{MODELS}\ntarget_metadata = Base.metadata\n")
    project.point_at(empty_database.url)
    project.autogenerate("one")
    project.run("upgrade", "head")
    project.run("check")
