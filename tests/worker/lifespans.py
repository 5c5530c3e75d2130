"""Functions around the life of a worker that note what they do."""

from collections.abc import Iterator

from sqlalchemy_fairqueue import Queue

Steps = list[str]
STARTED = ["settings", "client of x"]
STOPPED = ["say", "flush x", "client closed"]
"""What is noted of a start and a stop."""


class Client:
    """A resource."""

    def __init__(self, name: str = "client") -> None:
        self.name = name


def declare(queue: Queue, steps: Steps, *, failing: str = "") -> None:
    """Two resources of which the second takes the first, and a function for the stop."""

    def note(step: str) -> None:
        steps.append(step)
        if step == failing:
            raise OSError(f"no {step}")

    @queue.on_start
    def settings() -> str:
        note("settings")
        return "x"

    @queue.on_start
    def client(settings: str) -> Iterator[Client]:
        note(f"client of {settings}")
        try:
            yield Client(settings)
        finally:
            note("client closed")

    @queue.on_stop
    def flush(client: Client) -> None:
        note(f"flush {client.name}")

    @queue.on_stop
    def say() -> None:
        note("say")
