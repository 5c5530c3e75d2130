"""The site of all versions: a folder for each release and for the present sources, with links between them.

Each version is built by its own sources, in a checkout and an environment of its own: ``nox -s docs`` of its noxfile
writes its pages into ``build/site``. Here the pages are only copied, and links to the other versions are put where the
templates have left a comment for them. So pages of old releases learn of newer ones without being built anew. The links
are relative and plain HTML: they work at any address, without a script.

``nox -s site`` runs this in the root of the repository.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

LATEST = "latest"
STABLE = "stable"
SWITCHER = "<!-- versions of this page -->"
NOTE = "<!-- note on this version -->"
_RELEASE = re.compile(r"v(\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class _Version:
    """A version that readers can choose: its label in the list, and the folder that the list leads to."""

    label: str
    folder: str


def newest_of_each_minor(tags: Iterable[str]) -> dict[str, str]:
    """The versions that have pages, the newest first, and the tag of each: ``{"0.2": "v0.2.1", "0.1": "v0.1.0"}``.

    A patch only corrects, so that its pages replace those of the release that it corrects. Tags that are no release are
    left out, pre-releases among them.
    """
    found = {tag: tuple(map(int, match.groups())) for tag in tags if (match := _RELEASE.fullmatch(tag))}
    ordered = sorted(found, key=lambda tag: found[tag])
    newest = {".".join(map(str, found[tag][:2])): tag for tag in ordered}
    return dict(sorted(newest.items(), key=lambda item: found[item[1]], reverse=True))


def build_all(tags: Sequence[str] | None, folder: Path, build: Callable[[Path], None]) -> Path:
    """Build what is missing of the newest release of each minor version, and the present sources; put them together.

    Args:
        tags: The releases. None: all tags of the repository.
        folder: Gets the pages of each tag in ``sites/``, where they are looked for first, and the site of all versions
            in ``versions/``.
        build: Builds the pages of the sources in a folder into its ``build/site``.

    Returns:
        The folder with the site.
    """
    if tags is None:
        tags = _git("tag").decode().split()
    releases = newest_of_each_minor(tags)
    for tag in releases.values():
        if not (folder / "sites" / tag / "index.html").is_file():
            sources = folder / "sources" / tag
            _check_out(tag, sources)
            build(sources)
            shutil.copytree(sources / "build" / "site", folder / "sites" / tag, dirs_exist_ok=True)
    build(Path())
    sites = {name: folder / "sites" / tag for name, tag in releases.items()}
    assemble({LATEST: Path("build", "site"), **sites}, folder / "versions")
    return folder / "versions"


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], check=True, capture_output=True).stdout  # noqa: S607 - that of the PATH


def _check_out(tag: str, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(fileobj=io.BytesIO(_git("archive", tag))) as sources:
        # Python 3.11.0 to 3.11.3 have no filters; what git writes of a repository of ours needs none.
        filters = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        sources.extractall(folder, **filters)  # type: ignore[arg-type]  # noqa: S202


def _build_by_nox(sources: Path) -> None:
    subprocess.run([sys.executable, "-m", "nox", "-f", sources / "noxfile.py", "-s", "docs"], check=True)


def assemble(sites: Mapping[str, Path], folder: Path) -> None:
    """Write the site of all versions into a folder, in place of what is there.

    Args:
        sites: The built pages of each version: "latest" for the present sources, and releases like "0.1", the newest
            first.
        folder: It gets a folder for each of them, "stable" with the pages of the newest release, an ``index.html`` that
            leads to the current version, and an ``llms.txt`` that lists its pages.

    Raises:
        ValueError: A page has not exactly one place for the links and one for the note, so that its templates are not
            those of this site.
    """
    shutil.rmtree(folder, ignore_errors=True)
    releases = [name for name in sites if name != LATEST]
    current = STABLE if releases else LATEST
    parts = {**sites, **({STABLE: sites[releases[0]]} if releases else {})}
    versions = [_Version(f"{LATEST} (not released)", LATEST)] if LATEST in sites else []
    versions += [
        _Version(f"{name} ({STABLE})", STABLE) if name == releases[0] else _Version(name, name) for name in releases
    ]
    for name, site in parts.items():
        shutil.copytree(site, folder / name, ignore=shutil.ignore_patterns(".doctrees"))
    for name, site in parts.items():
        newest = name == STABLE or name in releases[:1]
        shown = STABLE if newest else name
        for page in site.rglob("*.html"):
            path = page.relative_to(site)
            text = page.read_text()
            if text.count(SWITCHER) != 1 or text.count(NOTE) != 1:
                raise ValueError(f"{page} has not one comment {SWITCHER} and one {NOTE}; see docs/_templates")
            links = _switcher(versions, shown, folder, Path(name, path))
            note = "" if newest or not releases else _note(name, releases[0], _link(folder, current, Path(name, path)))
            (folder / name / path).write_text(text.replace(SWITCHER, links).replace(NOTE, note))
    _write_front_door(folder, current)


def _link(folder: Path, version: str, page: Path) -> str:
    """From a page of one version to the same page of another, or to its first page where it has no such page."""
    same = Path(version, *page.parts[1:])
    target = same if (folder / same).is_file() else Path(version, "index.html")
    return escape(Path(os.path.relpath(target, page.parent)).as_posix())


def _switcher(versions: Iterable[_Version], shown: str, folder: Path, page: Path) -> str:
    items, label = [], shown
    for version in versions:
        here = version.folder == shown
        label = version.label if here else label
        current = ' aria-current="true"' if here else ""
        items.append(f'<li><a href="{_link(folder, version.folder, page)}"{current}>{escape(version.label)}</a></li>')
    listed = "\n".join(items)
    return f'<details class="versions"><summary>Version: {escape(label)}</summary>\n<ul>\n{listed}\n</ul></details>'


def _note(name: str, newest: str, link: str) -> str:
    what = (
        "These pages describe the development version, which is not released."
        if name == LATEST
        else f"These pages describe version {escape(name)}, which is not the newest."
    )
    return f'<div class="version-note" role="note">{what} <a href="{link}">Read about {escape(newest)}.</a></div>'


def _write_front_door(folder: Path, current: str) -> None:
    (folder / "index.html").write_text(
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>sqlalchemy-fairqueue</title>\n'
        f'<meta http-equiv="refresh" content="0; url={current}/">\n<p><a href="{current}/">{current}</a></p>\n</html>\n'
    )
    pages = folder / current / "llms.txt"
    if pages.is_file():
        (folder / "llms.txt").write_text(pages.read_text().replace("](", f"]({current}/"))


if __name__ == "__main__":
    # --releases v0.1.0 v0.2.0: those instead of all tags, also if none is named.
    given = sys.argv[2:] if sys.argv[1:2] == ["--releases"] else None
    print(f"open {build_all(given, Path('build'), _build_by_nox) / 'index.html'}")  # noqa: T201 - a person started it
