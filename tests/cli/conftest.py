"""The command line, in this process or in one of its own, on a database of the test's own."""

import io
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, NullPool, create_engine

from sqlalchemy_fairqueue.cli.options import APP_VARIABLE, DATABASE_URL_VARIABLE
from sqlalchemy_fairqueue.cli.program import main
from sqlalchemy_fairqueue.doctor import examination
from tests.cli.messages import Findings, Repair, levels
from tests.cli.processes import Outcome, Process
from tests.cli.shops import Shop
from tests.fixtures.database import Database, install
from tests.fixtures.forks import Fork
from tests.fixtures.waits import Waits

PROGRAM = [sys.executable, "-m", "sqlalchemy_fairqueue.cli"]


Cli = Callable[..., Outcome]


class Terminal(io.StringIO):
    """A stdin that people sit at."""

    def isatty(self) -> bool:
        """They do."""
        return True


def install_into(database: Database, schema: str | None = None) -> None:
    """Install fairqueue as a migration does."""
    engine = create_engine(database.url, poolclass=NullPool)
    with engine.begin() as connection:
        install(connection, schema=schema)


def say_version(database: Database, version: int) -> None:
    """Let an installation say that it is of another version."""
    function = "create or replace function fq_version() returns smallint"
    database.execute(f"{function} immutable language sql as 'select {version}'")


@pytest.fixture
def named(database: Database, monkeypatch: pytest.MonkeyPatch) -> Database:
    """The database, named by the environment."""
    monkeypatch.setenv(DATABASE_URL_VARIABLE, database.url.render_as_string(hide_password=False))
    monkeypatch.delenv(APP_VARIABLE, raising=False)
    return database


@pytest.fixture
def bare_cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    """Run a command line in this process, no database named: ``bare_cli("stats", "--json")``."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)

    def run(*words: str, answer: str | None = None) -> Outcome:
        monkeypatch.setattr(sys, "stdin", io.StringIO() if answer is None else Terminal(answer))
        capsys.readouterr()
        status = main(words)
        out, err = capsys.readouterr()
        assert "Traceback" not in err or "--debug" in words, err
        return Outcome(status, out, err)

    return run


@pytest.fixture
def cli(bare_cli: Cli, named: Database) -> Cli:
    """Run a command line in this process, on the test's database; *answer* is typed at a terminal."""
    assert named.name
    return bare_cli


Start = Callable[..., AbstractContextManager[Process]]


@pytest.fixture
def start(named: Database, tmp_path: Path) -> Start:
    """Runs a command line in a process of its own, which is ended with the block at the latest.

    It is forked from one that has imported the command, unless a *program* is given, `PROGRAM` for example.
    """
    assert named.name

    @contextmanager
    def run(
        *words: str,
        program: Sequence[str] | None = None,
        stdout: int = subprocess.PIPE,
        full: Sequence[int] = (),
        **environment: str,
    ) -> Iterator[Process]:
        kept = {name: value for name, value in os.environ.items() if name not in {"FORCE_COLOR", "COLUMNS"}}
        made: Process
        if program is None:
            made = Fork(["python", *PROGRAM[1:], *words], tmp_path, kept | environment, full)
        else:
            made = subprocess.Popen(
                [*program, *words],
                cwd=tmp_path,
                env=kept | environment,
                text=True,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=subprocess.PIPE,
            )
        with made as process:
            try:
                yield process
            finally:
                process.kill()

    return run


@pytest.fixture
def module(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Write a module of an application into the folder of the test, and return its name: ``module("queue = ...")``."""
    names = []

    def write(source: str) -> str:
        name = f"app_{uuid.uuid4().hex}"
        names.append(name)
        (tmp_path / f"{name}.py").write_text(source)
        return name

    yield write
    for name in names:
        sys.modules.pop(name, None)


@pytest.fixture
def shop(engine: Engine, database: Database, module: Callable[[str], str], start: Start, waits: Waits) -> Shop:
    """Where workers are started and watched; their handlers write to a table ``parsed``."""
    database.execute("create table parsed (id bigint)")
    return Shop(engine, module, start, waits)


_MAKERS = {
    "autovacuum": {"vacuum"},
    "signals": {"queues"},
    "notifications": {"server"},
    "privileges": {"privileges", "ownership", "row_security"},
}
"""Subjects of findings that checks of other names make."""


@contextmanager
def only(check: str) -> Iterator[None]:
    """Let doctor make the checks of one subject alone."""
    made = tuple(one for one in examination._CHECKS if one.subject in _MAKERS.get(check, {check}))
    assert made, check
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(examination, "_CHECKS", made)
        yield


@pytest.fixture
def findings(cli: Cli) -> Findings:
    """Doctor's findings about a subject: ``findings("drift")``. Only its check is made."""

    def of(check: str, *words: str) -> list[dict[str, Any]]:
        with only(check):
            document = cli("doctor", "--json", *words).document
        return [one for one in document["findings"] if one["check"] == check]

    return of


@pytest.fixture
def repair(cli: Cli, findings: Findings) -> Repair:
    """Let doctor repair what one check finds, so that it finds nothing: ``repair("sequences")``."""

    def of(check: str) -> None:
        with only(check):
            assert cli("doctor", "--repair", "--yes").status == 0
        assert levels(findings(check)) == ["ok"]

    return of
