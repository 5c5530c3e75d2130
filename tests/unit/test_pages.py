"""Pages that the site does not have lead somewhere, and pages say what is defined. Sphinx checks all other links."""

import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import pytest

import sqlalchemy_fairqueue
from sqlalchemy_fairqueue.sql.catalog import expected_catalog
from sqlalchemy_fairqueue.values.fields import Definition
from sqlalchemy_fairqueue.values.messages import Enqueue
from sqlalchemy_fairqueue.values.policies import POLICY
from sqlalchemy_fairqueue.values.settings import SETTINGS, PolicyOf
from tests.policies import SETTING_WORDS, WORDS

_ROOT = Path(__file__).parents[2]
_DOCS = _ROOT / "docs"
_INVARIANTS = _DOCS / "invariants.md"
_RULE = re.compile(r"^### (I\d+) .*?(?=^##)", re.MULTILINE | re.DOTALL)
_PROOF = re.compile(r"^- Proved by (.*?)(?=^- |^$)", re.MULTILINE | re.DOTALL)
_CHECK = re.compile(r"^\| the .*$", re.MULTILINE)
_CODE = re.compile(r"`([^`]+)`")
_TESTS = re.compile(r"\btests/[\w/.:]+|\btest_\w+(?:\.py)?")

pytestmark = pytest.mark.skipif(not _DOCS.is_dir(), reason="the installed wheel is tested without the docs")


def _anchors(page: Path) -> set[str]:
    text = page.read_text()
    headings = (re.sub(r"[^\w\- ]", "", title.lower()) for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE))
    return {title.replace(" ", "-") for title in headings} | set(re.findall(r'<a id="([^"]+)">', text))


@pytest.mark.parametrize("page", [_ROOT / "README.md", *sorted(_ROOT.glob(".github/*.md"))], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Every link to another page, or a place on one, has its end there."""
    dead = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if "://" not in link and (not target.exists() or (anchor and anchor not in _anchors(target))):
            dead.append(link)
    assert dead == []


@pytest.mark.parametrize(
    ("heading", "definitions", "words"), [("field", POLICY, WORDS), ("setting", SETTINGS, SETTING_WORDS)]
)
def test_the_guide_has_every_field(
    heading: str, definitions: Mapping[str, Definition], words: Mapping[str, str]
) -> None:
    """The guide of limits lists the fields of a policy, and the settings of a queue, as they are defined; the error is
    the table that it should have.
    """
    table = f"| {heading} | such as | meaning | a change holds |\n|---|---|---|---|\n"
    for name, one in definitions.items():
        if not isinstance(one, PolicyOf):
            meaning = f"{one.help} None: {one.none}." if one.none else one.help
            table += f"| `{name}` | `{words[name]}` | {meaning} | {one.holds} |\n"
    assert table in (_DOCS / "howto" / "limits.md").read_text("utf-8"), table


def test_a_field_has_the_name_of_its_column() -> None:
    """A field of a message, a policy or a queue is a column of that name, but for those that the glossary names."""
    glossary = (_DOCS / "glossary.md").read_text("utf-8").partition("## Names")[2]
    renamed, others = set(), set()
    for names, columns in re.findall(r"^\| (.*) \| (.*) \|$", glossary, re.MULTILINE):
        renamed |= {*re.findall("`(.*?)`", names)}
        others |= {*re.findall("`(.*?)`", columns)}
    catalog = [name for name in expected_catalog(1) if name.startswith("column ")]
    assert others <= {name.rpartition(".")[2] for name in catalog}
    kept = {name.rpartition(".")[2] for name in catalog if re.match(r"column fq_(message|channel_state|queue)\.", name)}
    assert {*(field.name for field in fields(Enqueue)), *POLICY, *SETTINGS} - kept == renamed


def _is_there(test: str) -> bool:
    path, _, function = test.partition("::")
    file = _ROOT / path
    return file.exists() and (not function or f"def {function}(" in file.read_text())


def test_each_invariant_has_a_proof() -> None:
    """A rule that nothing proves is a hope. Proofs are files and functions of tests, each by its whole path, and what
    the model defines: they are there.
    """
    text = _INVARIANTS.read_text()
    rules = {rule[1]: _PROOF.search(rule[0]) for rule in _RULE.finditer(text)}
    assert rules.keys() == {f"I{number}" for number in range(1, len(rules) + 1)}
    assert [name for name, proof in rules.items() if proof is None] == []

    tests = {test for code in _CODE.findall(text) for test in _TESTS.findall(code)}
    assert tests
    assert sorted(test for test in tests if not _is_there(test)) == []
    proofs = " ".join([*_PROOF.findall(text), *_CHECK.findall(text)])
    names = {name for code in _CODE.findall(proofs) if "tests/" not in code for name in code.split(".")}
    for module in (_ROOT / "tests" / "model").glob("*.py"):
        names -= {module.stem, *re.findall(r"^ *(?:def|class) (\w+)", module.read_text(), re.MULTILINE)}
    assert sorted(names - set(sqlalchemy_fairqueue.__all__)) == []


def test_sessions_run_files_that_are_there() -> None:
    """The sessions of nox name files of tests, which may have been renamed."""
    named = re.findall(r'"((?:\w+/)+test_\w+)"', (_ROOT / "noxfile.py").read_text())
    assert named
    assert [name for name in named if not (_ROOT / "tests" / f"{name}.py").is_file()] == []
