"""The site of all versions: the releases of a repository and its present sources, with links between them."""

import re
import runpy
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

_DOCS = Path(__file__).parents[2] / "docs"
_PAGE = "<html><body>\n<!-- note on this version -->\n<!-- versions of this page -->\n{}</body></html>"
_LINK = re.compile(r'<a href="([^"]+)"( aria-current="true")?>([^<]+)</a>')

pytestmark = pytest.mark.skipif(not _DOCS.is_dir(), reason="the installed wheel is tested without the docs")


@pytest.fixture(scope="module")
def versioned() -> Any:
    """The program that puts the site together. It is part of no package."""
    return SimpleNamespace(**runpy.run_path(str(_DOCS / "_ext" / "versioned_site.py")))


def _write(folder: Path, pages: Mapping[str, str]) -> None:
    for name, text in pages.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(_PAGE.format(text))


def _links(page: Path) -> dict[str, Path]:
    """The links of the list of versions on a page, by their labels."""
    [listed] = re.findall(r'<details class="versions">.*?</details>', page.read_text(), re.DOTALL)
    return {label: (page.parent / link).resolve() for link, _, label in _LINK.findall(listed)}


def _current(page: Path) -> list[str]:
    return [label for _, current, label in _LINK.findall(page.read_text()) if current]


def _note(page: Path) -> str:
    return "".join(re.findall(r'<div class="version-note" role="note">(.*?)</div>', page.read_text()))


@pytest.fixture
def site(versioned: Any, tmp_path: Path) -> Path:
    """Two releases and the present sources; each has a page that the one before did not have."""
    trees = {name: tmp_path / name for name in ("latest", "0.2", "0.1")}
    _write(trees["0.1"], {"index.html": "", "howto/gone.html": ""})
    _write(trees["0.2"], {"index.html": "", "howto/retry.html": ""})
    _write(trees["latest"], {"index.html": "", "howto/retry.html": "", "howto/new.html": ""})
    (trees["0.2"] / "llms.txt").write_text("- [Retry](_sources/howto/retry.md.txt)\n")
    folder = tmp_path / "site"
    versioned.assemble(trees, folder)
    return folder


def test_every_version_has_an_address(site: Path) -> None:
    """Each release, the newest one and the present sources are folders; the site begins at the newest release."""
    assert {path.name for path in site.iterdir() if path.is_dir()} == {"0.1", "0.2", "stable", "latest"}
    assert 'content="0; url=stable/"' in (site / "index.html").read_text()
    assert (site / "stable/howto/retry.html").is_file()
    assert (site / "llms.txt").read_text() == "- [Retry](stable/_sources/howto/retry.md.txt)\n"


def test_pages_lead_to_themselves_in_other_versions(site: Path) -> None:
    """The list of versions leads to the same page of each version, and to the first page where there is no such one."""
    assert _links(site / "latest/howto/retry.html") == {
        "latest (not released)": site / "latest/howto/retry.html",
        "0.2 (stable)": site / "stable/howto/retry.html",
        "0.1": site / "0.1/index.html",
    }
    pages = [page for page in site.rglob("*.html") if page != site / "index.html"]
    assert len(pages) == 2 + 2 + 2 + 3
    assert [link for page in pages for link in _links(page).values() if not link.is_file()] == []


def test_pages_say_which_version_they_are_of(site: Path) -> None:
    """The list marks the version that is open; the newest release is the stable one under both of its addresses."""
    pages = [site / name / "index.html" for name in ("latest", "0.2", "stable", "0.1")]
    assert [_current(page) for page in pages] == [
        ["latest (not released)"],
        ["0.2 (stable)"],
        ["0.2 (stable)"],
        ["0.1"],
    ]


def test_old_and_unreleased_pages_have_a_note(site: Path) -> None:
    """Pages of another version than the newest release say so, and lead to the page there."""
    assert _note(site / "0.1/howto/gone.html") == (
        "These pages describe version 0.1, which is not the newest. "
        '<a href="../../stable/index.html">Read about 0.2.</a>'
    )
    assert _note(site / "latest/howto/retry.html") == (
        "These pages describe the development version, which is not released. "
        '<a href="../../stable/howto/retry.html">Read about 0.2.</a>'
    )
    assert [_note(site / name / "howto/retry.html") for name in ("0.2", "stable")] == ["", ""]


def test_what_the_links_are_made_of(site: Path) -> None:
    """Links and notes need no script, no inline style and no other address."""
    text = "".join(page.read_text() for page in site.rglob("*.html"))
    assert re.findall(r"<script|style=|https?:", text) == []


def test_before_the_first_release(versioned: Any, tmp_path: Path) -> None:
    """Without a release the site is that of the present sources, and has no note."""
    _write(tmp_path / "pages", {"index.html": ""})
    versioned.assemble({"latest": tmp_path / "pages"}, tmp_path / "site")
    assert 'url=latest/"' in (tmp_path / "site/index.html").read_text()
    assert _note(tmp_path / "site/latest/index.html") == ""


def test_pages_of_other_templates_are_refused(versioned: Any, tmp_path: Path) -> None:
    """A page without a place for the links is told, by its path."""
    _write(tmp_path / "pages", {"index.html": ""})
    (tmp_path / "pages/other.html").write_text("<html></html>")
    with pytest.raises(ValueError, match=r"other\.html has not one comment"):
        versioned.assemble({"latest": tmp_path / "pages"}, tmp_path / "site")


def test_the_templates_have_the_places(versioned: Any) -> None:
    """The site's own templates leave the comments that the links and the note take."""
    texts = [page.read_text() for page in (_DOCS / "_templates").rglob("*.html")]
    assert sum(text.count(versioned.SWITCHER) for text in texts) == 1
    assert sum(text.count(versioned.NOTE) for text in texts) == 1


def test_a_patch_replaces_the_pages_that_it_corrects(versioned: Any) -> None:
    """One site a minor version, by number and not by text; what is no release has none."""
    tags = ["v0.9.1", "v0.10.0", "v0.9.10", "v1.0.0rc1", "other", "v0.9.2"]
    assert list(versioned.newest_of_each_minor(tags).items()) == [("0.10", "v0.10.0"), ("0.9", "v0.9.10")]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repository with three releases, and one file that each commit changes."""
    monkeypatch.chdir(tmp_path)
    who = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false", "-c", "tag.gpgsign=0")

    def git(*arguments: str) -> None:
        subprocess.run(["git", *who, *arguments], check=True, capture_output=True)  # noqa: S607 - the one of the PATH

    git("init")
    for version in ("v0.1.0", "v0.1.1", "v0.2.0", "next"):
        Path("version").write_text(version)
        git("add", "version")
        git("commit", "--message", version)
        if version != "next":
            git("tag", version)


@pytest.mark.usefixtures("repository")
def test_each_release_is_built_by_its_own_sources(versioned: Any) -> None:
    """Tags of git are built in checkouts of their own, once; the present sources each time."""
    built = []

    def build(sources: Path) -> None:
        version = (sources / "version").read_text()
        built.append(version)
        _write(sources / "build/site", {"index.html": f"pages of {version}"})

    versioned.build_all(None, Path("build"), build)
    site = versioned.build_all(None, Path("build"), build)
    assert built == ["v0.2.0", "v0.1.1", "next", "next"]
    found = {page.parent.name: page.read_text() for page in site.glob("*/index.html")}
    assert {name: re.findall(r"pages of ([^<]+)", text) for name, text in found.items()} == {
        "latest": ["next"],
        "stable": ["v0.2.0"],
        "0.2": ["v0.2.0"],
        "0.1": ["v0.1.1"],
    }
    versioned.build_all([], Path("build"), build)
    assert {path.name for path in site.iterdir()} == {"latest", "index.html"}
