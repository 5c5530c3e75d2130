"""Scenarios in a file: what it may say, and what is said of it when it may not."""

import re
from pathlib import Path
from typing import Any

import pytest

from sqlalchemy_fairqueue import ChannelPolicy, Rate
from sqlalchemy_fairqueue.cli.errors import CommandError
from sqlalchemy_fairqueue.cli.report import scenarios_in
from sqlalchemy_fairqueue.spark import Scenario

_FILE = """
[[scenario]]
name = "one line"
discipline = "fifo"

[[scenario]]
name = "customer-7 with three workers"
fair_by = "cost"
workers = 16
batch = 2
max_concurrency = 12
defaults = { weight = 2 }
policies = { customer-7 = { max_concurrency = 3 }, "trial-*" = { rate = "4/s, burst 5" } }
"""


def test_file(tmp_path: Path) -> None:
    """A table a scenario, with what Scenario and ChannelPolicy take, in their words."""
    file = tmp_path / "scenarios.toml"
    file.write_text(_FILE)

    policies = {"customer-7": ChannelPolicy(max_concurrency=3), "trial-*": ChannelPolicy(rate=Rate(4, burst=5))}
    values: Any = {"fair_by": "cost", "workers": 16, "batch": 2, "max_concurrency": 12, "policies": policies}
    assert scenarios_in(file) == [
        Scenario(name="one line", discipline="fifo"),
        Scenario(name="customer-7 with three workers", defaults=ChannelPolicy(weight=2), **values),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "there is no scenario to replay"),
        ("[[scenario]", "at line 1"),
        ("[[scenarios]]", "the file has 'scenarios'; it may have scenario"),
        ("scenario = 3", "scenario is 3"),
        ("scenario = [3]", "scenario 1 is 3"),
        ("[[scenario]]\nworkers = 3", "scenario 1 has no name"),
        ("[[scenario]]\nname = 'x'\nworkers = 0", "workers is 0"),
        ("[[scenario]]\nname = 'x'\npolicies = 1", "policies of scenario 1 is 1"),
        ("[[scenario]]\nname = 'x'\ndefaults = {rate = 1}", "rate is 1"),
        ("[[scenario]]\nname = 'x'\n[[scenario]]\nname = 'x'", "two scenarios are called 'x'"),
    ],
)
def test_refused(tmp_path: Path, text: str, words: str) -> None:
    """What cannot be replayed is named by file, key and value."""
    file = tmp_path / "scenarios.toml"
    file.write_text(text)

    with pytest.raises(CommandError, match=re.escape(words)) as caught:
        scenarios_in(file)
    assert repr(str(file)) in str(caught.value)


def test_no_file(tmp_path: Path) -> None:
    """A file that is not there is named."""
    with pytest.raises(CommandError, match=r"missing\.toml' cannot be read"):
        scenarios_in(tmp_path / "missing.toml")
