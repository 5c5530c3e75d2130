"""Around every command: the options that all have, its answer printed, failures told, the exit status."""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Callable
from dataclasses import fields
from typing import Any, get_type_hints

import typer

from sqlalchemy_fairqueue.cli.answers import Answer
from sqlalchemy_fairqueue.cli.failures import Failure, failure_of
from sqlalchemy_fairqueue.cli.options import Options
from sqlalchemy_fairqueue.cli.printing import console, print_document, print_message
from sqlalchemy_fairqueue.cli.statuses import Status
from sqlalchemy_fairqueue.cli.streams import forget_stdout

Command = Callable[..., Answer | None]


def command(group: typer.Typer, name: str, function: Command, *, without: frozenset[str] = frozenset()) -> None:
    """Make a function a command of the group.

    The function takes the common options as ``options``, and its own as keywords with typer's annotations. It returns
    what is to be printed, or None if it has printed that itself.

    Args:
        group: Where it belongs.
        name: What people type.
        function: What is done; its docstring is the help.
        without: Common options that have no meaning for it.
    """
    common = _common(without)
    own = inspect.signature(function).parameters.values()
    parameters = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in [*own, *common]
        if parameter.name != "options"
    ]

    def run(**given: Any) -> None:
        options = Options(**{parameter.name: given.pop(parameter.name) for parameter in common})
        raise typer.Exit(carried_out(lambda: function(options, **given), options))

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


def carried_out(work: Callable[[], Answer | None], options: Options) -> Status:
    """Do the work, print what it answers or why it failed, and return the status to exit with."""
    try:
        return _attempted(work, options)
    except BrokenPipeError:
        forget_stdout()
        return Status.BROKEN_PIPE
    except KeyboardInterrupt:
        return Status.INTERRUPTED


def _attempted(work: Callable[[], Answer | None], options: Options) -> Status:
    try:
        answer = work()
        if answer is not None:
            _print(answer, options)
    except (typer.Exit, typer.Abort, BrokenPipeError):
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, people are told in words; --debug shows where
        failure = failure_of(error)
        _tell(failure, error, options)
        return failure.status
    return answer.status if answer is not None else Status.OK


def _print(answer: Answer, options: Options) -> None:
    if options.json:
        print_document(answer.document)
    else:
        out = console()
        for part in answer.parts:
            out.print(part)
    sys.stdout.flush()


def _tell(failure: Failure, error: Exception, options: Options) -> None:
    if options.debug:
        sys.stderr.write("".join(traceback.format_exception(error)))
    print_message(str(failure), failure.remedy)
    if options.json:
        print_document({"error": error_document(failure)})
        sys.stdout.flush()


def error_document(failure: Failure) -> dict[str, object]:
    """What programs are told of a failure."""
    return {
        "kind": failure.kind,
        "message": str(failure),
        "remedy": failure.remedy,
        "status": int(failure.status),
    }
