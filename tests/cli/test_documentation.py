import re
import shlex
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

import sqlalchemy_fairqueue
from sqlalchemy_fairqueue.cli.program import program
from sqlalchemy_fairqueue.cli.results import ExitStatus
from tests.cli.conftest import Cli
from tests.cli.messages import QUEUE, bury, enqueue

_PAGE = Path(sqlalchemy_fairqueue.__file__).parents[1] / "docs" / "cli.md"
_TEXT = _PAGE.read_text() if _PAGE.is_file() else ""
_GROUP = UUID("0b5c8a52-7a3e-4a0c-9d55-0c1a4f1f2a77")
_BLOCK = re.compile(r"(<!-- not run -->\n)?```console\n(.*?)```", re.DOTALL)


def _examples() -> list[str]:
    return [
        line
        for skipped, block in _BLOCK.findall(_TEXT)
        for line in block.splitlines()
        if line.startswith("fairqueue ") and not skipped
    ]


def _commands() -> list[str]:
    groups = {group.name: group.typer_instance for group in program.registered_groups}
    alone = [str(command.name) for command in program.registered_commands]
    return alone + [
        f"{name} {command.name}" for name, group in groups.items() if group for command in group.registered_commands
    ]


@pytest.mark.parametrize("example", _examples())
def test_examples_run(cli: Cli, engine: Engine, example: str) -> None:
    """Every example of the page runs as it stands."""
    assert 3 in bury(engine, *["customer-7"] * 6)
    assert 17 in enqueue(engine, *["customer-7"] * 11)
    QUEUE.configure_plan(engine, "gold", weight=5)
    with Session(engine) as session, session.begin():
        group = QUEUE.group(session)
        group.id = _GROUP
        with group:
            pass

    found = cli(*shlex.split(example)[1:])
    # doctor finds that the server of the tests has no autovacuum.
    assert found.status == (1 if "doctor" in example else 0), found.err


@pytest.mark.parametrize("command", _commands())
def test_every_command_is_there(command: str) -> None:
    """The page has every command."""
    assert re.search(rf"fairqueue {command}\b", _TEXT), command


@pytest.mark.parametrize("status", list(ExitStatus))
def test_every_status_is_there(status: ExitStatus) -> None:
    """The page has every exit status."""
    assert f"\n| {status.value} |" in _TEXT


def test_every_option_is_there(cli: Cli) -> None:
    """The page has every option of every command, those for new channels by their rule."""
    missing = set()
    for command in _commands():
        options = set(re.findall(r"(--[a-z][a-z-]+)", cli(*command.split(), "--help").out))
        missing |= {(command, option) for option in options if option.replace("--no-channel-", "--no-") not in _TEXT}
    assert {
        (command, option)
        for command, option in missing
        if option.replace("--channel-", "--") not in _TEXT and option not in {"--help", "--notify", "--listen"}
    } == set()
