"""Mapped classes and workers are imported when a program asks for one: who only enqueues does not pay for them."""

import subprocess
import sys

import pytest


@pytest.mark.many(1)
@pytest.mark.parametrize(
    "use",
    [
        "from sqlalchemy_fairqueue.models import Message",
        "sqlalchemy_fairqueue.models.Channel.name",
        "from sqlalchemy_fairqueue.models import metadata",
        "from sqlalchemy_fairqueue.models import *",
    ],
)
def test_mapped_at_the_first_use(use: str) -> None:
    """An import of the package maps nothing; each way to name a class finds it, also after a name that is none."""
    program = f"""
import sys
import sqlalchemy_fairqueue
assert not sys.modules.keys() & {{"sqlalchemy_fairqueue.models", "sqlalchemy_fairqueue.worker"}}
assert set(sqlalchemy_fairqueue.__all__) <= set(dir(sqlalchemy_fairqueue))
assert not sqlalchemy_fairqueue.models.metadata.tables
assert not hasattr(sqlalchemy_fairqueue.models, "Msg")
assert not sqlalchemy_fairqueue.models.metadata.tables
{use}
assert sqlalchemy_fairqueue.Worker is sqlalchemy_fairqueue.worker.Worker
assert sqlalchemy_fairqueue.models.Message is sqlalchemy_fairqueue.models.Message
assert set(sqlalchemy_fairqueue.models.__all__) <= set(dir(sqlalchemy_fairqueue.models))
"""
    subprocess.run([sys.executable, "-c", program], check=True)
