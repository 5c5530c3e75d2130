"""Plans of the requests to stop: each look-up reads a row a queue, however many stand."""

import pytest

from tests.sql.client import Kernel
from tests.sql.plans import assert_frugal

pytestmark = pytest.mark.usefixtures("cloned")


def test_requests_are_found_by_index(kernel: Kernel) -> None:
    """A worker's poll and an operator's request read a row, among thousands of requests and leases of other queues."""
    kernel.rows(
        "insert into fq_stop_request (queue, consumer, requested_by, requested_at)"
        " select 'documents', 'w' || n, 'dana', fq_now() from generate_series(1, 5000) n"
    )
    kernel.rows(
        "insert into fq_lease (id, queue, consumer, expires_at)"
        " select n, 'mails', 'w' || n, fq_now() + 3600000000 from generate_series(1, 5000) n"
    )

    def work() -> None:
        kernel.rows(
            "select * from fq_stop_requests(array['documents', 'mails']::text[], 'w17'::text, array[17], '1', 8)"
        )
        kernel.rows("select fq_request_stop('documents'::text, 'w17'::text, null::text)")

    assert_frugal(kernel, 2, work)
