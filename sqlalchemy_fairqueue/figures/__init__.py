"""Figures of queues, channels and tenants, computed in one place for ``top``, the metrics and the dashboard.

They are read in one snapshot, and their times are by the database's clock. Nothing here changes or locks anything.
"""
