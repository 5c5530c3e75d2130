"""Options of every command. The page on the command line says where their values come from."""

# Annotations are read when the program starts, so that they must not be postponed.
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, TypeVar

import typer

DATABASE_URL_VARIABLE = "FAIRQUEUE_DATABASE_URL"
APP_VARIABLE = "FAIRQUEUE_APP"

_TARGET_PANEL = "Target"
_OUTPUT_PANEL = "Output"

DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        "--database-url",
        metavar="URL",
        help=f"postgresql://user@host/database. Default: ${DATABASE_URL_VARIABLE}, which keeps it out of ps.",
        rich_help_panel=_TARGET_PANEL,
    ),
]
App = Annotated[
    str | None,
    typer.Option(
        "--app",
        metavar="MODULE:NAME",
        help="A Queue or an Engine of the application, which names the database, schema and queue. "
        f"Default: ${APP_VARIABLE}.",
        rich_help_panel=_TARGET_PANEL,
    ),
]
AppDirectory = Annotated[
    str,
    typer.Option(
        "--app-dir",
        metavar="FOLDER",
        help="The folder that comes first on the module search path.",
        rich_help_panel=_TARGET_PANEL,
    ),
]
Schema = Annotated[
    str | None,
    typer.Option(
        "--schema",
        metavar="NAME",
        help="The schema that fairqueue is installed in. Default: the application's, or the first on the search_path.",
        rich_help_panel=_TARGET_PANEL,
    ),
]
QueueName = Annotated[
    str | None,
    typer.Option(
        "--queue",
        metavar="NAME",
        help="Default: the application's; else all for stats, channels, top and doctor, the only one for others.",
        rich_help_panel=_TARGET_PANEL,
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="One JSON document instead of a table.", rich_help_panel=_OUTPUT_PANEL)
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of a failure.", rich_help_panel=_OUTPUT_PANEL)]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

P = TypeVar("P")


def option_parser(parse: Callable[[str], P]) -> Callable[[str], P]:
    """A parser of an option, from a function that raises ValueError."""

    def parsed(words: str | P) -> P:
        try:
            # A default comes as it is.
            return parse(words) if isinstance(words, str) else words
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error

    return parsed


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Values of the options that every command has.

    Attributes:
        database_url: The database, None if not given.
        app: ``module:name`` of a Queue or an Engine, None if not given.
        app_dir: The folder that comes first on the module search path.
        schema: The schema of the installation, None if not given.
        queue: Name of the queue, None if not given.
        json: Whether stdout takes one JSON document.
        debug: Whether a failure shows its traceback.
    """

    database_url: DatabaseUrl = None
    app: App = None
    app_dir: AppDirectory = "."
    schema: Schema = None
    queue: QueueName = None
    json: Json = False
    debug: Debug = False
