"""The migration of the app: its tables, the queue, and the plain job table for comparison.

In an application it is an Alembic revision. The demo calls it itself, in a new database that it drops afterwards.
"""

import sqlalchemy as sa
from alembic import op

import alembic_ext  # noqa: F401 - gives migrations op.create_fairqueue()


def upgrade() -> None:
    """Create the tables and install the queue, in one transaction."""
    op.create_table(
        "upload",
        sa.Column("key", sa.String, primary_key=True),
        sa.Column("customer", sa.String, nullable=False),
        sa.Column("path", sa.String, nullable=False),
        sa.Column("uploaded_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
    )
    op.create_table(
        "source_stats",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("upload_key", sa.String, sa.ForeignKey("upload.key"), index=True, nullable=False),
        *(sa.Column(count, sa.Integer, nullable=False) for count in ("lines", "functions", "classes", "imports")),
        sa.Column("error", sa.String),
        sa.Column("parsed_at", sa.DateTime(timezone=True), server_default=sa.func.clock_timestamp(), nullable=False),
    )
    op.create_fairqueue(version=1)  # type: ignore[attr-defined]
    op.create_table(
        "fifo_job",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("upload_key", sa.String, nullable=False),
        sa.Column("leased_to", sa.String),
        sa.Column("leased_until", sa.DateTime(timezone=True)),
    )
