"""The program ``fairqueue``: its commands, and the execution of a command line."""

# Annotations are read when the program starts, so that they must not be postponed.
import re
import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib import metadata
from typing import Annotated, cast

import typer
from typer.main import get_command

from sqlalchemy_fairqueue.cli.configure_commands import configure_channel, configure_queue
from sqlalchemy_fairqueue.cli.controls import cancel, pause, resume
from sqlalchemy_fairqueue.cli.dashboard import dashboard
from sqlalchemy_fairqueue.cli.dead_letters import list_dead, purge_dead, redrive_dead, show_dead
from sqlalchemy_fairqueue.cli.doctor import doctor
from sqlalchemy_fairqueue.cli.errors import CommandError, ExitStatus, usage_error
from sqlalchemy_fairqueue.cli.groups import cancel_group, list_groups, show_group
from sqlalchemy_fairqueue.cli.history import prune_history
from sqlalchemy_fairqueue.cli.limits import configure_limit, limits
from sqlalchemy_fairqueue.cli.messages import list_messages, move_messages, retry_messages, show_message
from sqlalchemy_fairqueue.cli.metrics import metrics
from sqlalchemy_fairqueue.cli.output import discard_results, print_message, results, write_error, writing
from sqlalchemy_fairqueue.cli.plans import configure_plan, list_plans, remove_plan
from sqlalchemy_fairqueue.cli.purge import purge
from sqlalchemy_fairqueue.cli.report import make_report
from sqlalchemy_fairqueue.cli.roles import roles
from sqlalchemy_fairqueue.cli.runner import Command, add_command, print_error
from sqlalchemy_fairqueue.cli.schedule_commands import (
    list_schedules,
    pause_schedule,
    remove_schedule,
    resume_schedule,
    run_schedule,
    set_schedule,
)
from sqlalchemy_fairqueue.cli.spark.commands import COMMANDS as SPARK_COMMANDS
from sqlalchemy_fairqueue.cli.stats import channels, stats
from sqlalchemy_fairqueue.cli.top.command import top
from sqlalchemy_fairqueue.cli.worker import worker
from sqlalchemy_fairqueue.cli.worker_commands import list_workers, stop_worker

_USAGE_ERROR = cast("type[Exception]", typer.BadParameter.__mro__[2])
"""Base of typer's usage errors. Some versions of typer bring their own click, others import it."""

_NO_COMMAND = re.compile(r"No such command '([^']*)'\.")
# What people write for a command whose name is not similar.
_MEANT = {
    "beat": "worker",
    "check": "doctor",
    "drain": "worker --drain",
    "failed": "dead list",
    "flower": "dashboard",
    "health": "doctor",
    "info": "stats",
    "inspect": "workers list",
    "list": "stats",
    "monitor": "top",
    "ps": "workers list",
    "queues": "stats",
    "redrive": "dead redrive",
    "requeue": "dead redrive",
    "retry": "messages retry",
    "run": "worker",
    "start": "worker",
    "status": "stats",
}

_EXIT_STATUSES = """\
Exit status: 0 done; 1 a problem was found, or a named object was not; 2 the command line cannot be used; 3 the database
is away; 4 the schema is missing or of another version; 5 the database refused; 74 stdout cannot be written.
"""


program = typer.Typer(
    name="fairqueue",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    epilog=_EXIT_STATUSES,
    context_settings={"help_option_names": ["-h", "--help"]},
)
dead = typer.Typer(no_args_is_help=True, help="Dead letters: messages that will not be tried again.")
messages = typer.Typer(no_args_is_help=True, help="Messages that are not settled: which there are, and why they wait.")
configure = typer.Typer(no_args_is_help=True, help="How a queue, a channel or a plan is served.")
plans = typer.Typer(no_args_is_help=True, help="Plans: policies with a name, which channels follow.")
schedules = typer.Typer(no_args_is_help=True, help="Schedules: messages that recur.")
groups = typer.Typer(no_args_is_help=True, help="Groups: messages that one message follows when the last has ended.")
history = typer.Typer(no_args_is_help=True, help="The history: a record of attempts.")
workers = typer.Typer(no_args_is_help=True, help="Workers: which hold or wait for messages; ask one to stop.")
spark = typer.Typer(no_args_is_help=True, help="The data pipeline: bulk loads, archive, fairness report, replay.")


def _show_version(*, asked: bool) -> None:
    if asked:
        try:
            words = f" {metadata.version('sqlalchemy-fairqueue')}"
        except metadata.PackageNotFoundError as error:
            # The package runs from a zipapp, or from a folder that was copied.
            words = f", version unknown: {error}"
        results().write(f"sqlalchemy-fairqueue{words}\n")
        raise typer.Exit


@program.callback()
def fairqueue(
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


_COMMANDS: tuple[tuple[typer.Typer, str, Command], ...] = (
    (program, "worker", worker),
    (program, "stats", stats),
    (program, "channels", channels),
    (program, "pause", pause),
    (program, "resume", resume),
    (configure, "queue", configure_queue),
    (configure, "channel", configure_channel),
    (configure, "limit", configure_limit),
    (configure, "plan", configure_plan),
    (program, "limits", limits),
    (dead, "list", list_dead),
    (dead, "show", show_dead),
    (dead, "redrive", redrive_dead),
    (dead, "purge", purge_dead),
    (messages, "list", list_messages),
    (messages, "show", show_message),
    (messages, "cancel", cancel),
    (messages, "move", move_messages),
    (messages, "retry", retry_messages),
    (groups, "list", list_groups),
    (groups, "show", show_group),
    (groups, "cancel", cancel_group),
    (plans, "list", list_plans),
    (plans, "remove", remove_plan),
    (schedules, "list", list_schedules),
    (schedules, "set", set_schedule),
    (schedules, "pause", pause_schedule),
    (schedules, "resume", resume_schedule),
    (schedules, "run", run_schedule),
    (schedules, "remove", remove_schedule),
    (workers, "list", list_workers),
    (workers, "stop", stop_worker),
    (program, "cancel", cancel),
    (program, "purge", purge),
    (history, "prune", prune_history),
    (program, "doctor", doctor),
    (program, "roles", roles),
    (program, "top", top),
    (program, "metrics", metrics),
    (program, "dashboard", dashboard),
    (program, "report", make_report),
    *((spark, name, function) for name, function in SPARK_COMMANDS),
)
# The queues of an application know their names and schemas; grants and shared limits are of an installation.
_WITHOUT = {
    worker: frozenset({"schema", "queue"}),
    **dict.fromkeys((roles, limits, configure_limit), frozenset({"queue"})),
}
for _group, _name, _function in _COMMANDS:
    add_command(_group, _name, _function, without=_WITHOUT.get(_function, frozenset()), prints=_function is worker)
program.add_typer(configure, name="configure")
program.add_typer(dead, name="dead")
program.add_typer(messages, name="messages")
program.add_typer(groups, name="groups")
program.add_typer(history, name="history")
program.add_typer(plans, name="plans")
program.add_typer(schedules, name="schedules")
program.add_typer(workers, name="workers")
program.add_typer(spark, name="spark")


@cache
def _command() -> Callable[..., int | None]:
    """The program as typer reads it from the signatures of all commands: that takes longer than most command lines."""
    return get_command(program)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return the exit status.

    Args:
        arguments: The words after the program's name. Default: those of the process.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        with writing():
            return _status(words)
    except CommandError as error:
        print_message(str(error))
        return error.status
    except (BrokenPipeError, SystemExit):
        # typer ends the program where nobody reads its help.
        discard_results()
        return ExitStatus.BROKEN_PIPE


def _status(words: Sequence[str]) -> int:
    try:
        status = _command()(args=words, prog_name="fairqueue", standalone_mode=False)
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
        # The error is the help.
        write_error(f"{message}\n" if message else "")
        return ExitStatus.USAGE
    path = context.command_path if context else "fairqueue"
    if (found := _NO_COMMAND.match(message)) and path == "fairqueue" and found[1] in _MEANT:
        message = f"{found[0]} Did you mean '{_MEANT[found[1]]}'?"
    return _failure(usage_error(f"{message} ('{path} --help' tells more)"), words)


def _failure(error: CommandError, words: Sequence[str]) -> int:
    print_error(error, json="--json" in words)
    return error.status
