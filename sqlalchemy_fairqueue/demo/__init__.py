"""The demo, and the example to read: a small app that parses uploaded Python files for its customers.

Read in this order: ``business`` knows no queue. ``migration`` makes its tables and installs the queue. ``fair`` is the
whole use of the library; ``fifo`` is the same with a plain job table. The rest runs both beside each other:
``workers`` (their processes), ``run`` (which customer uploads what, and when, and a worker that is killed), ``screen``
and ``report``.

Nothing else in the package may import it.
"""
