"""Runs a command: makes a function a command, prints its result, reports its errors, and sets the exit status."""

from __future__ import annotations

import contextlib
import inspect
import traceback
from collections.abc import Callable
from typing import Any

import typer

from sqlalchemy_fairqueue.cli.errors import ExitStatus
from sqlalchemy_fairqueue.cli.failures import command_error
from sqlalchemy_fairqueue.cli.flags import Command
from sqlalchemy_fairqueue.cli.options import Options, common, parameters, summary
from sqlalchemy_fairqueue.cli.output import (
    Result,
    discard_results,
    print_error,
    print_result,
    stdout_for_results,
    write_error,
)

Function = Callable[..., Result | None]


def add_command(
    group: typer.Typer,
    name: str,
    function: Function,
    *,
    without: frozenset[str] = frozenset(),
    prints: bool = False,
    panel: str | None = None,
) -> None:
    """Add a function to the group as a command, with the common options except those in *without*.

    What code of the application prints goes to stderr; with *prints* it goes to stdout, unless --json is given. *panel*
    is the heading that the help lists the command under.
    """
    shared, own = common(without), parameters(function)

    def run(**given: Any) -> None:
        options = Options(**{parameter.name: given.pop(parameter.name) for parameter in shared})
        values = {parameter.name: parameter.take(given) for parameter in own}
        with contextlib.nullcontext() if prints and not options.json else stdout_for_results():
            status = run_command(lambda: function(options, **values), options)
        raise typer.Exit(status)

    taken = [option for parameter in own for option in parameter.options] + shared
    run.__doc__ = summary(function)
    run.__annotations__ = {option.name: option.annotation for option in taken}
    vars(run)["__signature__"] = inspect.Signature(taken)
    group.command(name, cls=Command, rich_help_panel=panel)(run)


def run_command(command: Callable[[], Result | None], options: Options) -> ExitStatus:
    try:
        return _run(command, options)
    except BrokenPipeError:
        discard_results()
        return ExitStatus.BROKEN_PIPE
    except KeyboardInterrupt:
        return ExitStatus.INTERRUPTED


def _run(command: Callable[[], Result | None], options: Options) -> ExitStatus:
    try:
        result = command()
        if result is not None:
            print_result(result, json=options.json)
    except (typer.Exit, typer.Abort, BrokenPipeError):
        raise
    # The application's code may raise SystemExit wherever a command calls it.
    except (Exception, SystemExit) as error:  # noqa: BLE001 - every error becomes a message; --debug shows the traceback
        if options.debug:
            write_error("".join(traceback.format_exception(error)))
        failed = command_error(error)
        print_error(failed, json=options.json)
        return failed.status
    return result.status if result is not None else ExitStatus.OK
