"""An Alembic environment of a user's, made by Alembic's own template and driven by its command line."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from importlib.util import cache_from_source
from io import StringIO
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import pytest
from alembic.config import CommandLine, Config
from sqlalchemy import URL

from sqlalchemy_fairqueue.sql import files
from tests.sql.client import kernel, open_kernel

__all__ = ["kernel", "open_kernel"]

LADDER = Path(__file__).with_name("ladder")
VERSIONS = (1, 2)
LATEST = VERSIONS[-1]
SHIPPED = LATEST - 1
ODD = 'My "odd" %:sch\'e$$ma'

REVISION = '''\
"""A migration of the user's."""

import sqlalchemy as sa
from alembic import op

import alembic_ext

revision = {revision!r}
down_revision = {down!r}


def upgrade():
{upgrade}


def downgrade():
{downgrade}
'''


@dataclass(frozen=True, slots=True)
class Project:
    """A folder with an ``alembic.ini`` and migrations."""

    root: Path

    def point_at(self, *urls: URL, search_path: str | None = None) -> None:
        """Let the environment use a database, or several, and a search_path if one is given."""
        options = {} if search_path is None else {"options": f"-csearch_path={search_path}"}
        given = [url.update_query_dict(options).render_as_string(hide_password=False) for url in urls]
        lines = iter(f"sqlalchemy.url = {url.replace('%', '%%')}" for url in given)
        self.ini.write_text(re.sub(r"(?m)^sqlalchemy\.url = .*", lambda _: next(lines), self.ini.read_text()))

    @property
    def ini(self) -> Path:
        """The configuration file."""
        return self.root / "alembic.ini"

    def migration(self, revision: str, upgrade: str, downgrade: str = "pass", *, down: str | None = None) -> None:
        """Write a migration."""
        bodies = {"upgrade": indent(dedent(upgrade), "    "), "downgrade": indent(dedent(downgrade), "    ")}
        path = self.root / "migrations" / "versions" / f"{revision}_.py"
        path.write_text(REVISION.format(revision=revision, down=down, **bodies))
        # Python takes bytecode for fresh as long as the source has the same size and the same second of change.
        Path(cache_from_source(str(path))).unlink(missing_ok=True)

    def edit_env(self, before: str, after: str) -> None:
        """Change a line of ``env.py``, as a user would."""
        env = self.root / "migrations" / "env.py"
        text = env.read_text()
        assert before in text
        env.write_text(text.replace(before, after))

    def run(self, *arguments: str) -> str:
        """Do what ``alembic ...`` does, and return what it printed. Its errors come through as they are."""
        printed = StringIO()
        command_line = CommandLine()
        options = command_line.parser.parse_args(["--raiseerr", *arguments])
        config = Config(str(self.ini), stdout=printed, output_buffer=printed, cmd_opts=options)
        command_line.run_cmd(config, options)
        return printed.getvalue()

    def autogenerate(self, revision: str) -> str:
        """Let Alembic write a migration, and return its two functions."""
        self.run("revision", "--autogenerate", "--rev-id", revision, "-m", "made")
        return self.body(revision)

    def body(self, revision: str) -> str:
        """The functions of a migration."""
        text = next((self.root / "migrations" / "versions").glob(f"{revision}_*.py")).read_text()
        return text[text.index("def upgrade") :]

    def run_program(self, *commands: Sequence[str]) -> str:
        """Run the program ``alembic ...`` itself, one command after the other, and return what it printed."""
        program = f"from alembic.config import main\nfor command in {commands!r}: main(command)"
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=self.root,
            env={**os.environ, "PYTHONWARNINGS": "error"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def climbed() -> list[Traversable]:
    """The folders of the shipped versions and of the one that only tests climb to."""
    return [*files.FOLDERS[:SHIPPED], *(LADDER / f"v{version}" for version in VERSIONS[SHIPPED:])]


@pytest.fixture(autouse=True)
def ladder(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version after the shipped one, for steps to climb: it adds a table, a column, an index and functions."""
    monkeypatch.setattr(files, "FOLDERS", climbed())


@pytest.fixture
def make_project(tmp_path: Path) -> Callable[[str], Project]:
    """Make an environment from a template of Alembic's, without migrations."""

    def make(template: str) -> Project:
        made = Project(tmp_path)
        made.run("init", "--template", template, str(tmp_path / "migrations"))
        # The logging of the test run stays as it is.
        made.edit_env("    fileConfig(config.config_file_name)", "    pass")
        return made

    return make


@pytest.fixture
def project(make_project: Callable[[str], Project]) -> Project:
    """An environment from the generic template, without migrations."""
    return make_project("generic")


@pytest.fixture(
    params=[None, ODD, pytest.param("UPPER", marks=pytest.mark.whole)],
    ids=["default", "odd", "upper"],
)
def schema(request: pytest.FixtureRequest) -> Any:
    """Schemas that fairqueue is installed in."""
    return request.param
