"""Promises of a release, as far as the sources can tell."""

import re
import runpy
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

_ROOT = Path(__file__).parents[2]
_FOLDERS = ("sqlalchemy_fairqueue", "alembic_ext")
_SOURCES = sorted(path for folder in _FOLDERS for path in _ROOT.glob(f"{folder}/**/*.py"))
pytestmark = pytest.mark.skipif(not (_ROOT / "docs").is_dir(), reason="the installed wheel is tested without the docs")


def _pyproject() -> dict[str, Any]:
    return tomllib.loads((_ROOT / "pyproject.toml").read_text())


def test_the_version_has_one_source() -> None:
    """The version is that of pyproject.toml, and no module has another."""
    assert version("sqlalchemy-fairqueue") == _pyproject()["project"]["version"]
    assert [str(path) for path in _SOURCES if re.search(r"^__version__\b", path.read_text(), re.MULTILINE)] == []


def test_the_policy_names_the_tested_pythons() -> None:
    """The versions of Python that the package claims are those of the support policy, of the matrix and of CI."""
    claimed = re.findall(r"Python :: (3\.\d+)\"", (_ROOT / "pyproject.toml").read_text())
    policy = (_ROOT / "docs/project/support.md").read_text()
    matrix = set(re.findall(r'^    \("(3\.\d+)"', (_ROOT / "noxfile.py").read_text(), re.MULTILINE))
    assert f"| Python | {', '.join(claimed)} |" in policy
    assert matrix == set(claimed)
    workflows = (_ROOT / ".github/workflows/ci.yml").read_text()
    assert set(re.findall(r"^ +(3\.\d+)$", workflows, re.MULTILINE)) == set(claimed)


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The hook of the build that fills the addresses; what it needs of hatchling is a class without anything."""
    interface = "hatchling.metadata.plugin.interface"
    for name in (interface.rsplit(".", depth)[0] for depth in range(4)):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(sys.modules[interface], "MetadataHookInterface", object, raising=False)
    config = _pyproject()["tool"]["hatch"]
    path = config["metadata"]["hooks"]["custom"]["path"]
    assert f"/{path}" in config["build"]["targets"]["sdist"]["include"]
    return SimpleNamespace(**runpy.run_path(str(_ROOT / path)))


def test_a_release_names_the_repository_that_it_comes_from(hook: Any) -> None:
    """A workflow of GitHub tells the repository; without, there are no addresses. `nox -s wheel` builds with them."""
    assert hook.urls_of({}) == {}
    found = hook.urls_of({"GITHUB_REPOSITORY": "Owner/name", "GITHUB_SERVER_URL": "https://github.com"})
    assert found.keys() == {"Homepage", "Documentation", "Changelog", "Source", "Issues"}
    assert found["Changelog"] == "https://owner.github.io/name/project/changelog.html"
    assert found["Issues"] == "https://github.com/Owner/name/issues"
    found = hook.urls_of({"GITHUB_REPOSITORY": "owner/name", "SITE_URL": "https://queue.example/docs/"})
    assert found["Documentation"] == "https://queue.example/docs/"


def test_links_of_the_readme_work_where_it_is_shown_alone(hook: Any) -> None:
    """With addresses, pages lead to the site and other files to the repository; without, nothing is changed."""
    urls = hook.urls_of({"GITHUB_REPOSITORY": "owner/name"})
    text = "![a](docs/_static/a.svg) [b](docs/cli.md#top), [c](.github/SECURITY.md) [d](https://d.example) [e](#e)"
    assert hook.linked(text, urls) == (
        "![a](https://owner.github.io/name/_static/a.svg)"
        " [b](https://owner.github.io/name/cli.html#top),"
        " [c](https://github.com/owner/name/blob/HEAD/.github/SECURITY.md) [d](https://d.example) [e](#e)"
    )
    assert hook.linked(text, {}) == text
    readme = (_ROOT / "README.md").read_text()
    found = re.findall(r"\]\(([^)]+)\)", hook.linked(readme, urls))
    assert len(found) == len(re.findall(r"\]\(", readme)) > 0
    assert [link for link in found if not link.startswith("https://")] == []


def test_an_sdist_keeps_its_addresses(hook: Any) -> None:
    """A wheel that a user builds from an sdist has the addresses of the sdist."""
    lines = ["Name: a", "Project-URL: Source, https://a.example/a, b", "Project-URL: Issues, https://a.example/i"]
    found = {"Source": "https://a.example/a, b", "Issues": "https://a.example/i"}
    assert hook.urls_of_sdist("\n".join(lines)) == found


@pytest.mark.parametrize("workflow", sorted(_ROOT.glob(".github/workflows/*.yml")), ids=lambda path: path.name)
def test_workflows(workflow: Path) -> None:
    """Each session of nox that a workflow runs is one of the noxfile. A workflow reads the sources; a job that may
    write says what for, and no job that may write runs the sources.
    """
    text = workflow.read_text()
    sessions = set(re.findall(r"^def (\w+)\(session", (_ROOT / "noxfile.py").read_text(), re.MULTILINE))
    listed = {name for names in re.findall(r"session: \[(.*)\]", text) for name in names.split(", ")}
    assert set() < listed.union(re.findall(r"nox -s (\w+)", text)) <= sessions
    assert re.findall(r"^permissions:\n((?:  .*\n)+)", text, re.MULTILINE) == ["  contents: read\n"]
    for job in re.split(r"^  (?=[\w-]+:\n)", text.partition("\njobs:\n")[2], flags=re.MULTILINE):
        granted = re.findall(r"^      [\w-]+: write\b(.*)$", job, re.MULTILINE)
        assert [reason for reason in granted if not re.match(r" # \w", reason)] == []
        assert not granted or "actions/checkout" not in job
