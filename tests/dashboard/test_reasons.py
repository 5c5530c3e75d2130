"""Each reason of a wait stands on the pages of tenants, with those who take what the tenant waits for."""

from sqlalchemy import Engine

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.values.reports import Reason
from tests.dashboard.conftest import Browse
from tests.figures.test_reasons import prepare

_CULPRITS = {
    Reason.QUEUE_LIMIT: ["taken by b 100"],
    Reason.QUEUE_RATE: ["taken by b 100"],
    Reason.SHARED_LIMIT: ["api", "queue summaries has 2 out", "taken by b 100"],
    Reason.SHARED_RATE: ["api of rate", "queue summaries of rate has 2 out", "taken by b 100"],
    Reason.TURN: ["taken by b 100"],
    Reason.ORDERING_KEY: ["behind message {before} "],
}
"""Who is named, where it is somebody else."""


def test_each_reason_stands_with_its_culprit(browse: Browse, engine: Engine) -> None:
    """The pages of all tenants, of those with the reason, of the tenant and of its message name the reason and whose
    fault it is.
    """
    viewer = browse("viewer")
    for reason in Reason:
        queue = reason.name
        message_id = prepare(engine, reason, Queue(queue))
        pages = [viewer.get("tenants", queue=queue), viewer.get("tenants", queue=queue, reason=reason)]
        told = [page.row("a").text for page in pages]
        told.append(viewer.get("tenant", queue=queue, channel="a").text)
        if reason is not Reason.SCHEDULED:
            told.append(viewer.get("message", queue=queue, id=message_id).text.replace("#", ""))
        culprits = [word.format(before=message_id - 1) for word in _CULPRITS.get(reason, [])]
        for text in told:
            assert f" {reason} " in f"{text} ", reason
            assert [word for word in culprits if word not in text] == [], reason
        for text in told[:2]:
            assert ("taken by" in text) == ("taken by b 100" in culprits), reason
