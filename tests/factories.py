"""factory-boy factories: values with everything filled in, so that a test names only what it is about."""

from typing import Any

import factory


class EnqueueArguments(factory.DictFactory[dict[str, Any]]):
    """Keyword arguments of ``queue.enqueue`` for one ordinary message; each call has its own payload."""

    channel = "customer-1"
    kind = "parse"
    payload = factory.Sequence(lambda number: {"upload": f"file-{number}"})
