"""factory-boy factories: values with everything filled in, so that a test names only what it is about."""

from factory.base import Factory
from factory.declarations import Sequence

from sqlalchemy_fairqueue.values.messages import Enqueue


class EnqueueFactory(Factory[Enqueue]):
    """One ordinary message; each has its own payload."""

    class Meta:
        """What is made."""

        model = Enqueue

    channel = "customer-1"
    kind = "parse"
    payload = Sequence(lambda number: {"upload": f"file-{number}"})
