"""The columns of each table, as a class from which its mixin derives: ``columns.fq_message``.

``catalog.json`` lists the columns. Type checkers read ``columns.pyi``, which ``python -m tests.orm.stubs`` writes.
"""

from sqlalchemy_fairqueue.models.tables import columns_of as __getattr__  # noqa: F401 - a module asks it for a class
