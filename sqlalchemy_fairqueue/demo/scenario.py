"""Scenario of both runs: which customer uploads which files, and when, and when a worker is killed."""

from __future__ import annotations

import os
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from random import Random

from sqlalchemy_fairqueue.demo.errors import DemoError

BOB = "Bob"
OTHERS = ("Alice", "Carol", "Dave", "Erin", "Frank", "Grace", "Heidi", "Ivan", "Judy", "Kim")
_ACCIDENT = 0.14
"""The share of Bob's files after which a worker is killed: early, so that its lease ends while the others work."""
_NOT_OURS = {"site-packages", "dist-packages", "__pycache__"}


@dataclass(frozen=True, slots=True)
class Visit:
    """A customer who comes once, with all files.

    Attributes:
        customer: Who.
        files: Key to path.
        after: The customer comes when so many files of others are parsed.
    """

    customer: str
    files: dict[str, str]
    after: int = 0


@dataclass(frozen=True, slots=True)
class Scenario:
    """The visits of a run, the first being Bob's.

    Attributes:
        visits: In the order in which they come.
        library: Where the files are from.
        accident_after: A worker is killed when so many files are parsed.
    """

    visits: tuple[Visit, ...]
    library: Path
    accident_after: int

    @property
    def files(self) -> int:
        """The number of all files."""
        return sum(len(visit.files) for visit in self.visits)


def make_scenario(seed: int, limit: int | None) -> Scenario:
    """Give Bob the standard library, or *limit* files of it, and each of the others one to five files.

    The others come one by one while 5 to 60 percent of Bob's files are parsed: long before his backlog is gone.
    """
    random = Random(seed)  # noqa: S311 - a repeatable scenario, no secret
    library = Path(sysconfig.get_path("stdlib"))
    sources = sorted(_sources(library))
    if not sources:
        problem = f"no source files below {str(library)!r}; use a Python that has its standard library as files"
        raise DemoError(problem)
    bobs = sources if limit is None else sorted(random.sample(sources, min(limit, len(sources))))
    visits = [_visit(BOB, library, bobs)]
    for number, customer in enumerate(OTHERS):
        share = 0.05 + 0.55 * (number + random.uniform(-0.3, 0.3)) / (len(OTHERS) - 1)
        files = random.sample(sources, min(random.randint(1, 5), len(sources)))
        visits.append(_visit(customer, library, files, after=max(1, int(share * len(bobs)))))
    return Scenario(tuple(visits), library, accident_after=max(1, int(_ACCIDENT * len(bobs))))


def _sources(library: Path) -> list[Path]:
    found = []
    for folder, folders, names in os.walk(library):
        folders[:] = [name for name in folders if name not in _NOT_OURS]
        found += [Path(folder, name) for name in names if name.endswith(".py")]
    return [path for path in found if path.is_file() and os.access(path, os.R_OK)]


def _visit(customer: str, library: Path, files: list[Path], after: int = 0) -> Visit:
    return Visit(customer, {f"{customer}/{path.relative_to(library)}": str(path) for path in files}, after)
