"""Figures of queues and channels, computed in one place for ``top``, the metrics and the dashboard.

``read_figures`` and ``take_sample`` each read all from one snapshot; the connection of ``read_figures`` must be in a
REPEATABLE READ transaction. The other functions read by several statements in the caller's transaction, so by default
their figures are of several moments. All times are by the database's clock. Nothing here changes or locks anything.
"""
