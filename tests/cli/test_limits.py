"""``limits``, ``configure limit`` and ``configure queue --limit``."""

from sqlalchemy import Engine

from tests.cli.conftest import Cli
from tests.cli.messages import QUEUE, enqueue, lease


def test_limits(cli: Cli, engine: Engine) -> None:
    """A limit is made, changed, drawn from, shown and removed; what is not named stays."""
    assert cli("limits").out == "schema 'public' has no shared limits\n"
    cli("configure", "limit", "api", "--max-concurrency", "5", "--rate", "50/s", "--burst", "3")
    made = cli("configure", "limit", "api", "--max-concurrency", "2", "--json").document["limits"]
    rate = {"interval_seconds": 0.02, "burst": 3, "of": "messages"}
    assert made == [
        {
            "name": "api", "max_concurrency": 2, "max_cost_out": None, "rate": rate, "current_concurrency": 0,
            "current_cost": 0, "queues": [],
        }
    ]  # fmt: skip
    changed = cli("configure", "queue", "--queue", "documents", "--limit", "api", "--json").document
    assert changed["limits"] == ["api"]
    enqueue(engine, "a", "b", "c")
    lease(engine, 10)
    headings, row = cli("limits").rows()
    assert (headings[:2], row) == (["limit", "leased"], ["api", "2", "2", "-", "-", "50/s", "3", "documents"])
    assert ["limits", "api"] in cli("configure", "queue").rows()


def test_removal(cli: Cli, engine: Engine) -> None:
    """A limit that a queue draws from stays, with what to do."""
    QUEUE.limits.configure(engine, "api", rate="5/s")
    QUEUE.configure(engine, limits=["api"])
    refused = cli("configure", "limit", "api", "--remove")
    assert refused.status == 2
    assert "the limit api is that of documents" in refused.err
    cli("configure", "queue", "--no-limit")
    assert cli("configure", "limit", "api", "--remove").out == "schema 'public' has no shared limit 'api'\n"


def test_contradictions(cli: Cli) -> None:
    """What contradicts itself, and a limit that is not there, is refused."""
    for words in (
        ["limit", "api", "--remove", "--rate", "5/s"],
        ["limit", "api", "--max-concurrency", "5", "--no-max-concurrency"],
        ["queue", "--queue", "q", "--limit", "api", "--no-limit"],
        ["queue", "--queue", "q", "--limit", "api"],
    ):
        assert cli("configure", *words).status == 2
