"""The two ways to run the app, under one interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from sqlalchemy_fairqueue.demo.app import fair, fifo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from sqlalchemy import Engine
    from sqlalchemy.orm import Session

FAIR = "fair queue"
FIFO = "FIFO"


class Service(Protocol):
    """The interface of ``app/fair.py`` and ``app/fifo.py``."""

    def prepare(self, session: Session) -> None:
        """Set up what the service needs besides its tables."""

    def upload(self, engine: Engine, customer_id: int, files: Mapping[str, str]) -> None:
        """Store a customer's files, and line them up."""

    def run(self, engine: Engine, name: str, ended: Callable[[float | None], bool]) -> None:
        """Parse files until *ended*, which is given the seconds it may wait."""

    def held(self, session: Session, worker: str) -> Iterable[str]:
        """The keys of the uploads that are leased to a worker."""

    def waiting(self, session: Session) -> int:
        """The number of files that are not done."""


SERVICES: dict[str, Service] = {FAIR: fair, FIFO: fifo}
