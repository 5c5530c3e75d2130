"""Files of an archive that hold rows which another file holds, too: a run that compacts leaves them for a moment.

Readers of an archive pass over them. This module must not open files.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_FILE = re.compile(r"(.*/)?day=(\d{4}-\d{2}-\d{2})/history-(\d+)-(\d+)\.parquet")


def superseded(paths: Iterable[str]) -> set[str]:
    """The paths of files whose rows are all in another one: that of the same day from before or until after.

    Args:
        paths: Paths of files, with slashes. Those that no run names so are never superseded.
    """
    days: dict[str, list[tuple[int, int, str]]] = {}
    for path in paths:
        if found := _FILE.fullmatch(path):
            days.setdefault(found[2], []).append((int(found[3]), -int(found[4]), path))
    covered = set()
    for files in days.values():
        reached = -1
        for _, high, path in sorted(files):
            if -high <= reached:
                covered.add(path)
            reached = max(reached, -high)
    return covered


def has_gap(paths: Iterable[str]) -> bool:
    """Whether a day lacks a file between others, or before them: its folder was listed while a run compacted it."""
    days: dict[str, list[tuple[int, int]]] = {}
    for path in paths:
        if found := _FILE.fullmatch(path):
            days.setdefault(found[2], []).append((int(found[3]), int(found[4])))
    for files in days.values():
        reached = 0
        for low, high in sorted(files):
            if low > reached:
                return True
            reached = max(reached, high)
    return False
