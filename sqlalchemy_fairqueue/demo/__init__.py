"""The demo and example to read: a small app that parses uploaded Python files for its customers.

Read in this order: ``business`` knows no queue. ``fair`` is all that uses the library; ``fifo`` is the same with a
plain job table. The rest runs both: ``workers`` (their processes), ``run`` (their database, the uploads of customers,
and a worker that is killed), ``screen`` and ``report``.

Nothing else in the package may import it.
"""
