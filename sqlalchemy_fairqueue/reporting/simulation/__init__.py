"""Simulation of queues: a recorded history is replayed under other policies.

``trace`` takes arrivals and durations from a history; ``simulator`` dequeues them as the queue would, on the rows of
``state``; ``replay`` puts both together for one queue and scenario. Nothing here needs Spark.
"""

from __future__ import annotations
