"""Run the migrations on the connection that the caller put into the configuration, in the caller's transaction."""

from alembic import context

import alembic_ext  # noqa: F401 - gives migrations op.create_fairqueue()
from sqlalchemy_fairqueue.demo.app import fifo  # noqa: F401 - its table belongs to the metadata
from sqlalchemy_fairqueue.demo.app.models import Base

context.configure(connection=context.config.attributes["connection"], target_metadata=Base.metadata)
with context.begin_transaction():
    context.run_migrations()
