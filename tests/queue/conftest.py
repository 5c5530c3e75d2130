import pytest

from sqlalchemy_fairqueue import Queue
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database


@pytest.fixture
def queue() -> Queue:
    """A queue that remembers nothing of other tests."""
    return Queue("documents")


@pytest.fixture
def still(clock: Clock, database: Database) -> Clock:
    """A clock that goes on only when it is put forward."""
    database.execute(
        "create or replace function fq_now() returns bigint language sql volatile parallel safe as"
        " $$ select 2000000000000000 + last_value from public.test_clock $$"
    )
    return clock
