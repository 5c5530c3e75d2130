"""The dashboard as roles with grants see it."""

from datetime import timedelta

import httpx

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.dashboard import create_dashboard
from tests.cli.messages import bury, enqueue
from tests.dashboard.conftest import Page, visited
from tests.dashboard.test_pages import PAGES
from tests.roles.conftest import SCHEMA, Installation


def test_as_a_monitor(jobs: Installation) -> None:
    """A monitor sees every list; where operators see more, it reads which grant it lacks."""
    queue = Queue("documents", schema=SCHEMA)
    bury(jobs.owner, "customer-7", queue=queue)
    [message_id] = enqueue(jobs.owner, "customer-7", queue=queue)
    monitor = jobs.role("monitor", "monitor")
    remedy = f"op.grant_fairqueue('{monitor.name}', 'operator', schema='{SCHEMA}')"
    with visited(create_dashboard(monitor.engine, schema=SCHEMA, keep=timedelta(hours=1))) as client:
        found = {name: client.get(f"/{name}") for name in (*PAGES, "tenant?queue=documents&channel=customer-7")}
        assert {name for name, answer in found.items() if answer.status_code != httpx.codes.OK} == set()
        for name in ("dead", "tenant?queue=documents&channel=customer-7"):
            assert remedy in Page(200, found[name].text).text
        message = client.get(f"/message?queue=documents&id={message_id}")
        assert message.status_code == httpx.codes.FORBIDDEN
        assert remedy in Page(403, message.text).text


def test_without_the_grant(jobs: Installation) -> None:
    """A role that may not read, or not use the schema, reads the grant on each page, not that the database is away."""
    for actor in (jobs.role("consumer", "consumer"), jobs.role("nobody")):
        with visited(create_dashboard(actor.engine, schema=SCHEMA, keep=timedelta(hours=1))) as client:
            for page in ("", *PAGES):
                answer = client.get(f"/{page}")
                assert answer.status_code == httpx.codes.FORBIDDEN, page
                assert (
                    f"op.grant_fairqueue('{actor.name}', 'monitor', schema='{SCHEMA}')" in Page(403, answer.text).text
                )
