"""The program ``fairqueue``: its commands, and the execution of a command line."""

# No ``from __future__ import annotations``: the program reads the annotations when it starts.
import re
import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module, metadata
from typing import Annotated, cast

import typer
from typer.main import get_command

from sqlalchemy_fairqueue.cli.errors import CommandError, ExitStatus, usage_error
from sqlalchemy_fairqueue.cli.flags import Group
from sqlalchemy_fairqueue.cli.output import discard_results, print_error, print_message, results, write_error, writing

_USAGE_ERROR = cast("type[Exception]", typer.BadParameter.__mro__[2])
"""click's base class of usage errors. Some versions of typer have a copy of click, so it is found through typer."""

_NO_COMMAND = re.compile(r"No such command '([^']*)'\.")
# Words that people may try, with the command that they mean.
_MEANT = {
    **dict.fromkeys(("info", "list", "queues", "status"), "stats"),
    **dict.fromkeys(("beat", "run", "start"), "worker"),
    **dict.fromkeys(("inspect", "ps"), "workers list"),
    **dict.fromkeys(("redrive", "requeue"), "dead redrive"),
    **dict.fromkeys(("check", "health"), "doctor"),
    "drain": "worker --drain",
    "failed": "dead list",
    "flower": "dashboard",
    "monitor": "top",
    "retry": "messages retry",
}

_EXIT_STATUSES = """\
Exit status: 0 done; 1 a problem was found, or a named object was not; 2 the command line cannot be used; 3 the database
is away; 4 the schema is missing or of another version; 5 the database refused; 74 stdout cannot be written.
"""


_GROUPS = {
    "configure": "How a queue, a channel or a plan is served.",
    "dead": "Dead letters: messages that will not be tried again.",
    "messages": "Messages that are not settled: which there are, and why they wait.",
    "groups": "Groups: messages that one message follows when the last has ended.",
    "history": "The history: a record of attempts.",
    "plans": "Plans: policies with a name, which channels follow.",
    "schedules": "Schedules: messages that recur.",
    "workers": "Workers: which hold or wait for messages; ask one to stop.",
    "spark": "The data pipeline: bulk loads and the archive; report takes --engine spark.",
}
# Each command with its function. A command of a group has the group before its name.
_COMMANDS = {
    "worker": "worker:worker",
    "stats": "stats:stats",
    "channels": "stats:channels",
    "trend": "stats:trend",
    "pause": "controls:pause",
    "resume": "controls:resume",
    "configure queue": "configuration:configure_queue",
    "configure channel": "configuration:configure_channel",
    "configure limit": "configuration:configure_limit",
    "configure plan": "configuration:configure_plan",
    "limits": "configuration:limits",
    "dead list": "dead_letters:list_dead",
    "dead groups": "dead_letters:group_dead",
    "dead show": "dead_letters:show_dead",
    "dead redrive": "dead_letters:redrive_dead",
    "dead purge": "dead_letters:purge_dead",
    "messages list": "messages:list_messages",
    "messages show": "messages:show_message",
    "messages cancel": "messages:cancel",
    "messages move": "messages:move_messages",
    "messages retry": "messages:retry_messages",
    "groups list": "groups:list_groups",
    "groups show": "groups:show_group",
    "groups cancel": "groups:cancel_group",
    "plans list": "configuration:list_plans",
    "plans remove": "configuration:remove_plan",
    "schedules list": "schedules:list_schedules",
    "schedules show": "schedules:show_schedule",
    "schedules set": "schedules:set_schedule",
    "schedules pause": "schedules:pause_schedule",
    "schedules resume": "schedules:resume_schedule",
    "schedules run": "schedules:run_schedule",
    "schedules remove": "schedules:remove_schedule",
    "workers list": "workers:list_workers",
    "workers stop": "workers:stop_worker",
    "cancel": "messages:cancel",
    "purge": "controls:purge",
    "erase": "controls:erase",
    "audit": "audits:list_audits",
    "history prune": "upkeep:prune_history",
    "usage": "usage:usage",
    "doctor": "upkeep:doctor",
    "roles": "upkeep:roles",
    "top": "top:top",
    "metrics": "serving:metrics",
    "dashboard": "serving:dashboard",
    "report": "report:make_report",
    "spark enqueue": "spark:enqueue_file",
    "spark archive": "spark:archive_history",
    "spark compact": "spark:compact_files",
}
_PANELS = {
    "Commands that show": (
        "stats channels trend top messages dead groups limits plans workers audit usage roles doctor report"
    ),
    "Commands that change": "pause resume configure cancel purge erase schedules history",
    "Commands that run": "worker dashboard metrics spark",
}
_PANEL = {name: panel for panel, names in _PANELS.items() for name in names.split()}
# Options that a command lacks. A worker is given Queue objects, which know their schemas. Roles, shared limits and
# erasures are of a whole installation, not of one queue.
_WITHOUT = {
    "worker": frozenset({"schema", "queue"}),
    **dict.fromkeys(("roles", "limits", "configure limit", "erase"), frozenset({"queue"})),
}


def _show_version(*, asked: bool) -> None:
    if asked:
        results().write(f"sqlalchemy-fairqueue {metadata.version('sqlalchemy-fairqueue')}\n")
        raise typer.Exit


def _fairqueue(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=lambda asked: _show_version(asked=asked),
            is_eager=True,
            help="Show the version of the library.",
        ),
    ] = False,
) -> None:
    """Operate fair queues that live in a PostgreSQL database."""


def make_program(names: Sequence[str] = tuple(_COMMANDS)) -> typer.Typer:
    program = typer.Typer(
        name="fairqueue",
        cls=Group,
        no_args_is_help=True,
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
        epilog=_EXIT_STATUSES,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    program.callback()(_fairqueue)
    groups = {"": program}
    for group, words in _GROUPS.items():
        if any(name.startswith(f"{group} ") for name in names):
            groups[group] = typer.Typer(no_args_is_help=True, cls=Group, help=words)
            program.add_typer(groups[group], name=group, rich_help_panel=_PANEL[group])
    for name in names:
        from sqlalchemy_fairqueue.cli.runner import add_command

        group, _, own_name = name.rpartition(" ")
        module, _, function = _COMMANDS[name].partition(":")
        command = getattr(import_module(f"sqlalchemy_fairqueue.cli.{module}"), function)
        without = _WITHOUT.get(name, frozenset[str]())
        panel = _PANEL.get(name)
        add_command(groups[group], own_name, command, without=without, prints=name == "worker", panel=panel)
    return program


def _names(words: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the commands that must be loaded to run a command line."""
    if words[:1] == ["--version"]:
        return ()
    for count in (1, 2):
        if (name := " ".join(words[:count])) in _COMMANDS:
            return (name,)
    group = tuple(name for name in _COMMANDS if name.startswith(f"{words[0]} ")) if words else ()
    return group or tuple(_COMMANDS)


@cache
def _command(names: tuple[str, ...]) -> Callable[..., int | None]:
    return get_command(make_program(names))


def main(arguments: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        with writing():
            return _status(words)
    except CommandError as error:
        print_message(str(error))
        return error.status
    except (BrokenPipeError, SystemExit):
        # typer raises SystemExit if the reader of its help has gone.
        discard_results()
        return ExitStatus.BROKEN_PIPE


def _status(words: Sequence[str]) -> int:
    try:
        status = _command(_names(words))(args=words, prog_name="fairqueue", standalone_mode=False)
    except _USAGE_ERROR as error:
        return _usage_failure(error, words)
    except typer.Abort as error:
        if isinstance(error.__cause__, KeyboardInterrupt):
            return ExitStatus.INTERRUPTED
        return _failure(CommandError("nothing was changed", ExitStatus.FOUND, "declined"), words)
    except KeyboardInterrupt:
        return ExitStatus.INTERRUPTED
    return int(status or 0)


def _usage_failure(error: Exception, words: Sequence[str]) -> int:
    context = getattr(error, "ctx", None)
    message = getattr(error, "format_message", error.__str__)()
    if type(error).__name__ == "NoArgsIsHelpError":
        # Without arguments typer raises an error whose message is the help.
        write_error(f"{message}\n" if message else "")
        return ExitStatus.USAGE
    path = context.command_path if context else "fairqueue"
    if (found := _NO_COMMAND.match(message)) and path == "fairqueue" and found[1] in _MEANT:
        message = f"{found[0]} Did you mean '{_MEANT[found[1]]}'?"
    return _failure(usage_error(f"{message} ('{path} --help' tells more)"), words)


def _failure(error: CommandError, words: Sequence[str]) -> int:
    print_error(error, json="--json" in words)
    return error.status
