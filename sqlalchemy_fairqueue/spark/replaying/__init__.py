"""The what-if replay: a recorded history, done again under other policies.

``trace`` takes from a history what came and how long it took; ``simulator`` does with it what dequeue would, on
``rows``; ``playing`` puts both together for one queue and scenario, and ``frames`` does that for many on a cluster.
"""

from __future__ import annotations
