"""The page of invariants: each has a proof, and the proofs are there."""

import re
from pathlib import Path

import pytest

import sqlalchemy_fairqueue

_ROOT = Path(__file__).parents[2]
_PAGE = _ROOT / "docs" / "invariants.md"
_RULE = re.compile(r"^### (I\d+) .*?(?=^##)", re.MULTILINE | re.DOTALL)
_PROOF = re.compile(r"^- Proved by (.*?)(?=^- |^$)", re.MULTILINE | re.DOTALL)
_CHECK = re.compile(r"^\| the .*$", re.MULTILINE)
_CODE = re.compile(r"`([^`]+)`")
_TESTS = re.compile(r"\btests/[\w/.:]+|\btest_\w+(?:\.py)?")

pytestmark = pytest.mark.skipif(not _PAGE.exists(), reason="the installed wheel is tested without the docs")


def _is_there(test: str) -> bool:
    path, _, function = test.partition("::")
    file = _ROOT / path
    return file.exists() and (not function or f"def {function}(" in file.read_text())


def test_each_invariant_has_a_proof() -> None:
    """A rule that nothing proves is a hope."""
    rules = {rule[1]: _PROOF.search(rule[0]) for rule in _RULE.finditer(_PAGE.read_text())}
    assert rules.keys() == {f"I{number}" for number in range(1, len(rules) + 1)}
    assert [name for name, proof in rules.items() if proof is None] == []


def test_the_tests_that_the_page_names_are_there() -> None:
    """Files and functions of tests, each by its whole path, and what the model defines, if it stands for a proof."""
    text = _PAGE.read_text()
    tests = {test for code in _CODE.findall(text) for test in _TESTS.findall(code)}
    assert tests
    assert sorted(test for test in tests if not _is_there(test)) == []

    proofs = " ".join([*_PROOF.findall(text), *_CHECK.findall(text)])
    names = {name for code in _CODE.findall(proofs) if "tests/" not in code for name in code.split(".")}
    for module in (_ROOT / "tests" / "model").glob("*.py"):
        names -= {module.stem, *re.findall(r"^ *(?:def|class) (\w+)", module.read_text(), re.MULTILINE)}
    assert sorted(names - set(sqlalchemy_fairqueue.__all__)) == []
