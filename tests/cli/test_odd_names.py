"""Names and texts of anything reach the screen as text: nothing is taken for markup, a terminal's control or SQL."""

from datetime import timedelta

import pytest
from sqlalchemy import Engine

from sqlalchemy_fairqueue import Queue
from tests.cli.conftest import Cli
from tests.cli.messages import ODD_NAMES, bury, enqueue, enqueue_group, lease
from tests.fixtures.database import Database
from tests.groups.conftest import fold


@pytest.mark.parametrize("name", ODD_NAMES)
def test_every_command(cli: Cli, engine: Engine, database: Database, name: str) -> None:
    """The name of a queue, a channel, a kind, a key, a worker and all else that has one; documents have it whole."""
    queue, named = Queue(name), {"kind": name, "key": name, "ordering_key": name}
    queue.schedules.set(engine, name, channel=name, every=timedelta(hours=1), kind=name)
    queue.limits.configure(engine, name, rate="9/s")
    queue.plans.configure(engine, name, weight=2)
    queue.configure_channel(engine, name, plan=name, max_backlog=1)
    [dead] = bury(engine, name, queue=queue, **named, payload={"text": name})
    [held] = enqueue(engine, name, queue=queue, **named)
    lease(engine, queue=queue)
    database.execute("update fq_lease set consumer = :name", name=name)
    enqueue(engine, name, queue=queue)
    group = enqueue_group(engine, queue=queue, then=name)
    fold(database)
    here = ("--queue", name)
    for words in (
        ["stats"], ["channels"], ["channels", name], ["top", "--once"], ["limits"], ["plans", "list"],
        ["messages", "list", name], ["messages", "show", str(held)], ["dead", "list"], ["dead", "show", str(dead)],
        ["dead", "groups"], ["groups", "list"], ["groups", "show", group], ["workers", "list"], ["schedules", "list"],
        ["configure", "queue"], ["configure", "channel", name], ["pause", name, "--by", name], ["audit"],
    ):  # fmt: skip
        found = cli(*words, *(here if words != ["limits"] else ()))
        assert (found.status, "\x1b" in found.out + found.err) == (0, False), (words, found.err)
        assert "[red]bold[/]" in found.out or name != "[red]bold[/]", words
    assert "\x1b" not in cli("channels", f"{name}?", *here).err
    assert "is full" in cli("groups", "show", group, *here).out
    message = cli("messages", "show", str(held), *here, "--json").document
    assert [message[one] for one in ("channel", "kind", "key")] == [name, name, name]
    assert [one["channel"] for one in cli("channels", name, *here, "--json").document["channels"]] == [name]


def test_how_they_are_shown(cli: Cli, engine: Engine) -> None:
    """Each is one line, with escapes for what commands the terminal."""
    enqueue(engine, *ODD_NAMES)
    found = cli("channels")
    assert len(found.out.splitlines()) == 1 + len(ODD_NAMES)
    for shown in ("[red]bold[/]", r"two\nlines", r"\x1b[2Jclear", "a  b", "köln", "x" * 300):
        assert shown in found.out


def test_names_as_arguments(cli: Cli, engine: Engine) -> None:
    """After -- a name may begin with a dash."""
    enqueue(engine, "--json")
    assert [one["channel"] for one in cli("channels", "--json", "--", "--json").document["channels"]] == ["--json"]
