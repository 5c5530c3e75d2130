import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import typer
from sqlalchemy import Engine
from sqlalchemy.orm import Session

import sqlalchemy_fairqueue
from sqlalchemy_fairqueue.cli.errors import ExitStatus
from sqlalchemy_fairqueue.cli.program import make_program
from sqlalchemy_fairqueue.values.policies import POLICY
from sqlalchemy_fairqueue.values.settings import SETTINGS
from tests.cli.conftest import Cli
from tests.cli.messages import QUEUE, bury, enqueue

_PAGE = Path(sqlalchemy_fairqueue.__file__).parents[1] / "docs" / "cli.md"
_TEXT = _PAGE.read_text() if _PAGE.is_file() else ""
_GROUP = UUID("0b5c8a52-7a3e-4a0c-9d55-0c1a4f1f2a77")
_TOGETHER = re.compile(
    r"fairqueue (stats|channels|top|limits|roles|doctor|trend|usage|history|pause|resume|configure"
    r"|\w+ (list|show|groups))\b"
)
"""What reads, and what changes settings alone."""
_BLOCK = re.compile(r"(<!-- not run -->\n)?```console\n(.*?)```", re.DOTALL)


def _examples() -> list[str]:
    return [
        line
        for skipped, block in _BLOCK.findall(_TEXT)
        for line in block.splitlines()
        if line.startswith("fairqueue ") and not skipped
    ]


def _runs() -> list[list[str]]:
    """The examples that have a database together: each its own, but for those that change no messages."""
    together = [example for example in _examples() if _TOGETHER.match(example)]
    return [*([example] for example in _examples() if example not in together), *([together] if together else [])]


def _in_sentences() -> list[tuple[str, str]]:
    """The commands that sentences and tables of all pages name, without those with placeholders in capitals."""
    found = []
    for page in [*_PAGE.parent.rglob("*.md"), _PAGE.parents[1] / "README.md"] if _TEXT else []:
        name = page.relative_to(_PAGE.parents[1]).as_posix()
        text = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for command in re.findall(r"(?<!`)`(fairqueue\s[^`]+)`(?!`)", text):
            words = " ".join(command.replace("\\|", "|").split())
            if not re.search(r"[A-Z|]{2,}|\b[A-Z]\b|\.\.\.|[<|]", words):
                found.append((name, words))
    return sorted(set(found))


def _commands() -> list[str]:
    program = make_program()
    groups = {group.name: group.typer_instance for group in program.registered_groups}
    alone = [str(command.name) for command in program.registered_commands]
    return alone + [
        f"{name} {command.name}" for name, group in groups.items() if group for command in group.registered_commands
    ]


@pytest.mark.parametrize("examples", _runs(), ids=lambda run: run[0] if len(run) == 1 else "together")
def test_examples_run(cli: Cli, engine: Engine, examples: list[str]) -> None:
    """Every example of the page runs as it stands."""
    assert 3 in bury(engine, *["customer-7"] * 6)
    assert 17 in enqueue(engine, *["customer-7"] * 11)
    QUEUE.plans.configure(engine, "gold", weight=5)
    with Session(engine) as session, session.begin():
        group = QUEUE.group(session)
        group.id = _GROUP
        with group:
            pass

    for example in examples:
        found = cli(*shlex.split(example)[1:])
        # doctor finds that the server of the tests has no autovacuum.
        assert found.status == (1 if "doctor" in example and "--repair" not in example else 0), (example, found.err)


def _refusal(command: Any, words: str) -> str | None:
    """What the command line would say to these words. What a sentence leaves out is no error."""
    context: Any = None
    name, *rest = shlex.split(words)
    try:
        while True:
            context = command.make_context(name, rest, parent=context)
            if not hasattr(command, "commands"):
                return None
            rest = [*context._protected_args, *context.args]
            name, command, rest = command.resolve_command(context, rest)
    except Exception as error:  # noqa: BLE001 - the class is of typer's own click, or of the one that is installed
        left_out = type(error).__name__ in {"MissingParameter", "BadOptionUsage", "NoArgsIsHelpError", "Exit"}
        return None if left_out else f"{words}: {error}"


def test_commands_in_sentences() -> None:
    """A command that a sentence of any page names has only words that the command line takes."""
    found = _in_sentences()
    assert len(found) > 50
    # Reading the signatures of all commands takes longer than all the words.
    command = typer.main.get_command(make_program())
    assert [(page, said) for page, words in found if (said := _refusal(command, words))] == []


def test_every_command_and_status_is_there() -> None:
    """The page has every command and every exit status."""
    assert [command for command in _commands() if not re.search(rf"fairqueue {command}\b", _TEXT)] == []
    assert [status for status in ExitStatus if f"\n| {status.value} |" not in _TEXT] == []


def _options(command: Any, name: str) -> Iterator[tuple[str, str]]:
    """The long options of a command, or of those below it, each with the command."""
    context = command.make_context(name, [], resilient_parsing=True)
    if hasattr(command, "commands"):
        for below in command.list_commands(context):
            yield from _options(command.get_command(context, below), f"{name} {below}")
        return
    for parameter in command.params:
        yield from ((name, one) for one in (*parameter.opts, *parameter.secondary_opts) if one.startswith("--"))


def test_every_option_is_there() -> None:
    """The page has every option of every command; those of fields, and those for new channels, by their rule."""
    known = " ".join([_TEXT, *(f"--{name.replace('_', '-')}" for name in {**POLICY, **SETTINGS})])
    options = list(_options(typer.main.get_command(make_program()), "fairqueue"))
    assert len(options) > 200
    missing = set()
    for command, option in options:
        plain = option.replace("--no-", "--").replace("--channel-", "--")
        if option not in known and plain not in known and option not in {"--notify", "--listen"}:
            missing.add((command, option))
    assert missing == set()
