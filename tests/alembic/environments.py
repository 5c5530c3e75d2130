"""Code that users write into their env.py: models, options and filters."""

import importlib
from hashlib import sha256
from pathlib import Path
from textwrap import dedent

from tests.alembic.conftest import Project

MODELS = """
from sqlalchemy_fairqueue.models import make_models

queue = make_models(Base)
"""


def models(schema: str | None) -> str:
    """The models of a schema."""
    return MODELS if schema is None else f"{MODELS[:-2]}, schema={schema!r})\n"


UPLOADS = """
class Account(Base):
    __tablename__ = "account"
    id = sa.orm.mapped_column(sa.Integer, primary_key=True)

class Upload(Base):
    __tablename__ = "upload"
    id = sa.orm.mapped_column(sa.Integer, primary_key=True)
    message_id = sa.orm.mapped_column(sa.ForeignKey(queue.Message.__table__.c.id))
"""

HIDE = "include_name=lambda name, type_, parents: type_ != 'table' or not name.startswith('fq_')"
"""An option that hides our tables from Alembic."""

MIXIN = """
from sqlalchemy_fairqueue.models import MessageMixin

class Account(Base):
    __tablename__ = "zz_account"
    id = sa.orm.mapped_column(sa.Integer, primary_key=True)

class Work(MessageMixin, Base):
    account_id = sa.orm.mapped_column(sa.ForeignKey("zz_account.id", name="work_account"), index=True)
"""
ADDED = ["op.add_column", "op.create_foreign_key", "op.create_index"]
"""The operations by which autogenerate adds the column of `Work` to fairqueue's table."""


def code(declared: str, *, base: str = "pass", imported: str = "import alembic_ext", more: str = "") -> str:
    """A Base with models on it, and the import that opts in."""
    made = f"class Base(sa.orm.DeclarativeBase):\n    {base}\n"
    return "\n".join(["import sqlalchemy as sa, sqlalchemy.orm", imported, made, dedent(declared), dedent(more)])


def environment(project: Project, declared: str, *, options: str = "", **more_code: str) -> None:
    """Give env.py models, and options for ``context.configure(...)``."""
    written = _in_a_module(project.root.parent, code(declared, **more_code))
    project.edit_env("target_metadata = None\n", f"{written}\ntarget_metadata = Base.metadata\n")
    if options:
        line = "connection=connection, target_metadata=target_metadata"
        project.edit_env(line, f"{line}, {options}")


def _in_a_module(folder: Path, written: str) -> str:
    """Put models into a module, as an application does: the tests of a process map the same classes once."""
    name = f"models_{sha256(written.encode()).hexdigest()}"
    file = folder / f"{name}.py"
    if not file.exists():
        file.write_text(written)
        importlib.invalidate_caches()
    path = f"import sys\nif {str(folder)!r} not in sys.path:\n    sys.path.append({str(folder)!r})"
    return f"{path}\nfrom {name} import *"
