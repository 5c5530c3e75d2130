"""Simulation of one queue: its recorded history is dequeued again under another scenario. Nothing here needs Spark.

``replay`` takes arrivals and durations from the history; ``simulator`` dequeues them, on the rows of ``state``.
"""

from __future__ import annotations
