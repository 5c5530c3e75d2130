import pytest

from sqlalchemy_fairqueue import Queue


@pytest.fixture
def queue() -> Queue:
    """A queue that remembers nothing of other tests."""
    return Queue("documents")
