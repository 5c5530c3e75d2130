"""Execution of a command: its options, its result printed, its errors reported, its exit status."""

from __future__ import annotations

import contextlib
import inspect
import traceback
from collections.abc import Callable
from dataclasses import fields
from typing import Any, get_type_hints

import typer

from sqlalchemy_fairqueue.cli.errors import CommandError, ExitStatus
from sqlalchemy_fairqueue.cli.failures import command_error
from sqlalchemy_fairqueue.cli.option_groups import OptionGroup
from sqlalchemy_fairqueue.cli.options import Options
from sqlalchemy_fairqueue.cli.output import (
    console,
    discard_results,
    print_json,
    print_message,
    stdout_for_results,
    write_error,
    writing,
)
from sqlalchemy_fairqueue.cli.results import Result

Command = Callable[..., Result | None]


def add_command(
    group: typer.Typer,
    name: str,
    function: Command,
    *,
    without: frozenset[str] = frozenset(),
    prints: bool = False,
) -> None:
    """Make a function a command of the group.

    The function takes the common options as ``options``, and its own as keywords with typer's annotations, or as
    groups of them. It returns its result, or None if it has printed that itself.

    Args:
        group: The group of the command.
        name: The command's name.
        function: The command; its docstring is the help.
        without: Common options that have no meaning for it.
        prints: Whether stdout is the application's as well, which runs in it.
    """
    common = _common(without)
    own = [each for each in inspect.signature(function).parameters.values() if each.name != "options"]
    groups = {each.name: found for each in own if (found := OptionGroup.of(each.annotation)) is not None}
    parameters = [
        option.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for each in [*own, *common]
        for option in (groups[each.name].parameters() if each.name in groups else [each])
    ]

    def run(**given: Any) -> None:
        options = Options(**{parameter.name: given.pop(parameter.name) for parameter in common})
        given |= {name: options_of.take(given) for name, options_of in groups.items()}
        # Handlers of a worker print to its stdout, unless that takes a document.
        own = contextlib.nullcontext() if prints and not options.json else stdout_for_results()
        with own:
            status = run_command(lambda: function(options, **given), options)
        raise typer.Exit(status)

    run.__doc__ = function.__doc__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    vars(run)["__signature__"] = inspect.Signature(parameters)
    group.command(name)(run)


def _common(without: frozenset[str]) -> list[inspect.Parameter]:
    hints = get_type_hints(Options, include_extras=True)
    return [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in fields(Options)
        if field.name not in without
    ]


def run_command(command: Callable[[], Result | None], options: Options) -> ExitStatus:
    """Run a command, print its result or its error, and return the exit status."""
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
            _print_result(result, options)
    except (typer.Exit, typer.Abort, BrokenPipeError):
        raise
    # An application may end the process from anywhere that it is called from.
    except (Exception, SystemExit) as error:  # noqa: BLE001 - every error becomes a message; --debug shows the traceback
        if options.debug:
            write_error("".join(traceback.format_exception(error)))
        failed = command_error(error)
        print_error(failed, json=options.json)
        return failed.status
    return result.status if result is not None else ExitStatus.OK


def _print_result(result: Result, options: Options) -> None:
    if options.json:
        print_json(result.document)
    else:
        out = console()
        with writing():
            for part in result.parts:
                out.print(part)


def print_error(error: CommandError, *, json: bool) -> None:
    """Write the error to stderr, and as a JSON document to stdout if one was asked for."""
    print_message(str(error), error.remedy)
    # If that cannot be written, stderr has it.
    with contextlib.suppress(CommandError):
        if json:
            print_json({"error": error.document()})
