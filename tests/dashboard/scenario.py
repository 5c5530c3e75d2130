"""A busy installation: tenants that wait for each of the reasons, workers, and dead letters."""

from datetime import timedelta

from sqlalchemy import Engine, text

from sqlalchemy_fairqueue import Delivery, Queue
from sqlalchemy_fairqueue.figures.shared import SharedFigures
from tests.cli.messages import enqueue, lease

DOCUMENTS, MAILS, REPORTS = Queue("documents"), Queue("mails"), Queue("reports")

_REFUSED = "Traceback (most recent call last):\nSMTPRecipientsRefused: mailbox 4711 is unavailable"
_TIMEOUT = "Traceback (most recent call last):\nTimeoutError: no answer from 10.0.3.17 within 30 s"


def put(engine: Engine, queue: Queue, channel: str, count: int, kind: str = "parse", **fields: object) -> None:
    """Enqueue messages of a tenant."""
    payload = {"upload": f"{channel}/1.pdf", "pages": count}
    enqueue(engine, *[channel] * count, queue=queue, kind=kind, payload=payload, **fields)


def take(engine: Engine, queue: Queue, limit: int) -> list[Delivery]:
    """Take messages, as a consumer that goes on holding them."""
    return lease(engine, limit, queue)


def busy(engine: Engine, figures: SharedFigures) -> int:
    """Bring the installation there, with some figures of the past. Returns a message that was tried."""
    for queue in (DOCUMENTS, MAILS):
        queue.configure(engine, history=True)
    DOCUMENTS.plans.configure(engine, "free", max_concurrency=2, max_backlog=2000)
    DOCUMENTS.plans.configure(engine, "business", weight=3, rate="50/s")
    DOCUMENTS.configure_channel(engine, "umbrella", plan="business")
    put(engine, DOCUMENTS, "umbrella", 1)
    DOCUMENTS.retry(engine, take(engine, DOCUMENTS, 1), delay=timedelta(0), error=_TIMEOUT)
    tried = take(engine, DOCUMENTS, 1)
    DOCUMENTS.retry(engine, tried, delay=timedelta(minutes=4), error=_REFUSED)
    DOCUMENTS.configure_channel(engine, "globex", plan="free", weight=2)
    DOCUMENTS.configure_channel(engine, "initech", rate="1/h, burst 1")
    DOCUMENTS.configure_channel(engine, "northwind", weight=3)
    put(engine, DOCUMENTS, "globex", 40)
    put(engine, DOCUMENTS, "initech", 25)
    take(engine, DOCUMENTS, 3)
    put(engine, DOCUMENTS, "acme-industries", 1840)
    take(engine, DOCUMENTS, 16)
    put(engine, DOCUMENTS, "hooli", 12)
    DOCUMENTS.pause(engine, "hooli")
    put(engine, DOCUMENTS, "umbrella", 9, delay=timedelta(hours=2))
    put(engine, DOCUMENTS, "northwind", 6)
    take(engine, DOCUMENTS, 2)
    put(engine, DOCUMENTS, "müller & söhne", 4)
    put(engine, DOCUMENTS, "soylent", 3)
    put(engine, MAILS, "acme-industries", 60, "welcome")
    letters = take(engine, MAILS, 50)
    MAILS.bury(engine, letters[:31], reason="20 of 20 attempts failed", error=_REFUSED)
    MAILS.bury(engine, letters[31:44], reason="20 of 20 attempts failed", error=_TIMEOUT)
    put(engine, REPORTS, "northwind", 14, "monthly")
    for number in range(24):
        put(engine, MAILS, "northwind", (number * 7) % 11 + 2, "welcome")
        MAILS.complete(engine, take(engine, MAILS, (number * 5) % 9 + 3))
        figures.forget()
        figures.get()
    MAILS.purge(engine, "acme-industries")
    with engine.begin() as connection:
        connection.execute(text("select fq_keep_samples('{documents,mails}')"))
        connection.execute(
            text(
                "insert into fq_sample (queue, at, channel, ready, oldest_wait, served, failed)"
                " select s.queue, s.at - 60000000::bigint * n, s.channel, s.ready * (80 - n) / 80, s.oldest_wait + n,"
                " 30 + n % 17, n % 5 from fq_sample s cross join generate_series(1, 70) n"
            )
        )
    return tried[0].message_id


def set_aside(engine: Engine, channel: str, *, queue: str = "documents", words: str = "bad") -> None:
    """A channel that a dequeue has paused, as ``fq_set_aside`` leaves one."""
    Queue(queue).pause(engine, channel)
    problem = f"message 900 is set aside, for it cannot be delivered: {words}"
    of_channel = text("update fq_channel_state s set problem = :problem from fq_channel c where c.id = s.channel_id"
                      " and c.queue = :queue and c.name = :channel")  # fmt: skip
    with engine.begin() as connection:
        connection.execute(of_channel, {"problem": problem, "queue": queue, "channel": channel})
