"""``fairqueue spark``: the data pipeline from the command line, on a local Spark or the cluster that settings name.

Each command is a plain function of ``sqlalchemy_fairqueue.spark`` with a session around it. Spark itself is imported
only when one runs.
"""
