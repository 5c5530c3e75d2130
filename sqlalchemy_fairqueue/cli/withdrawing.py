"""``cancel`` messages, and ``purge`` a channel."""

# Annotations are read when the program starts, so that they must not be postponed.
from typing import Annotated

import typer
from rich.text import Text
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue.cli.answers import Answer
from sqlalchemy_fairqueue.cli.asking import ask
from sqlalchemy_fairqueue.cli.options import Options, Yes
from sqlalchemy_fairqueue.cli.printing import counted
from sqlalchemy_fairqueue.cli.sites import no_channel, site_of
from sqlalchemy_fairqueue.cli.statuses import Status
from sqlalchemy_fairqueue.cli.tables import Column, listing, number

_WORDS = {
    "cancelled": "withdrawn",
    "leased": "a consumer has it: its worker is told, and it is not delivered again",
    "missing": "not there: done, dead, withdrawn before, or of another queue",
}


def cancel(
    options: Options, *, ids: Annotated[list[int], typer.Argument(metavar="ID...", min=1, show_default=False)]
) -> Answer:
    """Withdraw messages that are not delivered yet; the workers of delivered ones are told to stop.

    The exit status is 1 when one is not there.
    """
    with site_of(options) as site:
        queue = site.one()
        with Session(site.engine) as session, session.begin():
            receipts = {message_id: queue.cancel(session, message_id) for message_id in ids}
    outcomes = {message_id: str(receipt.outcome) for message_id, receipt in receipts.items()}
    rows = [(str(message_id), _WORDS[outcome]) for message_id, outcome in outcomes.items()]
    return Answer(
        {
            "queue": queue.name,
            "messages": [{"message_id": message_id, "outcome": outcome} for message_id, outcome in outcomes.items()],
        },
        (listing((number("id"), Column("outcome")), rows),),
        Status.FOUND if "missing" in outcomes.values() else Status.OK,
    )


def purge(options: Options, *, channel: Annotated[str, typer.Argument(metavar="CHANNEL")], yes: Yes = False) -> Answer:
    """Delete every message of a channel that is not delivered yet, for good. Asks, unless --yes is given."""
    with site_of(options) as site:
        queue = site.one()
        found = queue.channels(site.engine, channel=channel)
        if not found:
            raise no_channel(queue, channel)
        waiting = found[0].ready + found[0].scheduled
        what = f"channel {channel!r} of queue {queue.name!r}"
        ask(f"delete {counted(waiting, 'undelivered message')} of {what} for good?", yes=yes or not waiting)
        purged = queue.purge(site.engine, channel).purged or 0
    return Answer(
        {"queue": queue.name, "channel": channel, "purged": purged},
        (Text(f"{counted(purged, 'message')} of {what} deleted; delivered ones are left to their consumers"),),
    )
