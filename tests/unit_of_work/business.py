"""The business side of the tests: one table beside the queue, and queries for what was committed."""

from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from sqlalchemy_fairqueue import Queue
from tests.fixtures.database import Database


class Base(DeclarativeBase):
    """The application's tables."""


class Upload(Base):
    """A file that a customer sent."""

    __tablename__ = "upload"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)


QUEUE = Queue("documents")


def channels(database: Database) -> list[str]:
    """The channels of all committed messages, in the order in which these were added."""
    rows = database.rows("select c.name from fq_message m join fq_channel c on c.id = m.channel_id order by m.id")
    return [row.name for row in rows]


def taken(database: Database) -> tuple[list[str], list[str]]:
    """Return and remove what was committed: the channels of the messages, and the names of the uploads."""
    found = channels(database), uploads(database)
    database.execute("delete from fq_message")
    database.execute("delete from upload")
    return found


def uploads(database: Database) -> list[str]:
    """The names of all committed uploads."""
    return [row.name for row in database.rows("select name from upload order by name")]
