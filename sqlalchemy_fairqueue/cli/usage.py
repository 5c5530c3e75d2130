"""``usage``: what channels used in a month, for invoices."""

# No ``from __future__ import annotations``: the program reads the annotations when it starts.
import csv
from datetime import MAXYEAR, UTC, datetime
from typing import Annotated

from sqlalchemy_fairqueue.cli.errors import usage_error
from sqlalchemy_fairqueue.cli.installation import open_installation
from sqlalchemy_fairqueue.cli.options import Options, Spec
from sqlalchemy_fairqueue.cli.output import Result, print_message, writing
from sqlalchemy_fairqueue.cli.tables import Column, Table, number_column
from sqlalchemy_fairqueue.doctor.usage import read_usage
from sqlalchemy_fairqueue.formats import format_value

_TABLE = Table(
    Column("queue"),
    Column("channel", style="bold"),
    number_column("messages"),
    number_column("attempts"),
    number_column("seconds", get=lambda one: one.time.total_seconds(), shown=lambda seconds: f"{seconds:,.3f}"),
    number_column("cost"),
)


def _month(text: str) -> datetime:
    found = datetime.strptime(text, "%Y-%m").replace(tzinfo=UTC)
    if found.year == MAXYEAR:
        raise ValueError(text)
    return found


def usage(
    options: Options,
    *,
    month: Annotated[datetime | None, Spec(metavar="MONTH", parse=_month, shown="this one")] = None,
    csv_: bool = False,
) -> Result | None:
    """Count what each channel used in a month: completed messages, attempts, and the time and cost of the attempts.

    The figures come from the history. The queue must have recorded its history in that month, and must still keep it.

    Options:
        month: The month in UTC, like 2026-11.
        csv_: Print comma-separated values.
    """
    if csv_ and options.json:
        raise usage_error("--csv and --json are two formats; give one")
    with open_installation(options) as installation:
        if installation.target.queue:
            installation.single_queue()
        with installation.engine.connect() as connection:
            found = read_usage(connection, installation.schema, month or installation.now(), installation.target.queue)
    name = f"{found.since:%Y-%m}"
    if found.pruned_until:
        print_message(f"attempts of {name} before {format_value(found.pruned_until)} UTC are pruned, and not counted")
    documents = _TABLE.documents(found.channels)
    if csv_:
        with writing() as out:
            names = [column.member for column in _TABLE.members]
            rows = csv.DictWriter(out, names, lineterminator="\n")
            rows.writeheader()
            # Before Python 3.13 a carriage return alone, which ends a row for some readers, is not quoted.
            quoted = csv.DictWriter(out, names, lineterminator="\n", quoting=csv.QUOTE_ALL)
            for document in documents:
                (quoted if "\r" in f"{document['queue']}{document['channel']}" else rows).writerow(document)
        return None
    document = {"month": name, "pruned_until": found.pruned_until, "channels": documents}
    return Result(document, _TABLE.listing(found.channels, f"the history has no attempts of {name}"))
