"""The plain job table that the demo compares the queue with.

Revision ID: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the table; its primary key is the order in which jobs are served."""
    op.create_table(
        "fifo_job",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("upload_key", sa.String, nullable=False),
        sa.Column("leased_to", sa.String),
        sa.Column("leased_until", sa.DateTime(timezone=True)),
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table("fifo_job")
