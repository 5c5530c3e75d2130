"""The business tables, and the queue.

Revision ID: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the tables and install the queue, in one transaction."""
    op.create_table(
        "customer",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String, nullable=False, unique=True),
    )
    op.create_table(
        "upload",
        sa.Column("key", sa.String, primary_key=True),
        sa.Column("customer_id", sa.Integer, sa.ForeignKey("customer.id"), nullable=False),
        sa.Column("path", sa.String, nullable=False),
        sa.Column("uploaded_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
    )
    op.create_table(
        "source_stats",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("upload_key", sa.String, sa.ForeignKey("upload.key"), index=True, nullable=False),
        sa.Column("lines", sa.Integer, nullable=False),
        sa.Column("functions", sa.Integer, nullable=False),
        sa.Column("classes", sa.Integer, nullable=False),
        sa.Column("imports", sa.Integer, nullable=False),
        sa.Column("error", sa.String),
        sa.Column("parsed_at", sa.DateTime(timezone=True), server_default=sa.func.clock_timestamp(), nullable=False),
    )
    op.create_fairqueue(version=1)  # type: ignore[attr-defined]


def downgrade() -> None:
    """Drop them."""
    op.drop_fairqueue(version=1)  # type: ignore[attr-defined]
    op.drop_table("source_stats")
    op.drop_table("upload")
    op.drop_table("customer")
