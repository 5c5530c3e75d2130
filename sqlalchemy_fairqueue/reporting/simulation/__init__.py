"""Simulation of one queue: its recorded history is dequeued again under another scenario. Nothing here needs Spark.

``replay`` takes arrivals and durations from the history; ``simulator`` delivers the messages again, event by event;
``state`` defines the rows that ``simulator`` works on.
"""

from __future__ import annotations
