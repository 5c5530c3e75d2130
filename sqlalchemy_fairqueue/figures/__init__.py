"""Figures of queues and channels, computed in one place for ``top``, the metrics and the dashboard.

``read_figures`` and ``take_sample`` each read all from one snapshot. ``read_figures`` needs a REPEATABLE READ
transaction. The other functions run several statements in the caller's transaction. In READ COMMITTED, PostgreSQL's
default, each statement sees a later moment. Times are by the database's clock. Nothing here changes or locks anything.
"""
