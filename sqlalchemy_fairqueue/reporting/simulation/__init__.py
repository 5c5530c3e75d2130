"""Simulation of queues: a recorded history is replayed under other policies.

``replay`` takes arrivals and durations from a history, for one queue and scenario; ``simulator`` dequeues them as the
queue would, on the rows of ``state``. Nothing here needs Spark.
"""

from __future__ import annotations
