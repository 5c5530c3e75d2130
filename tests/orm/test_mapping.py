"""The three ways to have mapped classes, beside what a user has already."""

from typing import Any

import pytest
from sqlalchemy import Engine, ForeignKey, Index, MetaData, String, Table, orm, select
from sqlalchemy.orm import DeclarativeBase, Mapped, MappedAsDataclass, Session, mapped_column, relationship
from sqlalchemy.schema import CreateSchema

from sqlalchemy_fairqueue import models
from sqlalchemy_fairqueue.models import MessageMixin, make_models
from tests.fixtures.database import Database, install
from tests.orm.rows import enqueue


class WithColumns(DeclarativeBase):
    """A Base that gives every class a key and a column."""

    id: Mapped[int] = mapped_column(primary_key=True)
    created_by: Mapped[str]


class AsDataclass(MappedAsDataclass, DeclarativeBase):
    """A Base that makes dataclasses."""


@pytest.fixture
def base() -> type[Any]:
    """A Base of the test's own, which brings nothing."""
    return type("Base", (DeclarativeBase,), {})


@pytest.mark.parametrize("kind", [WithColumns, AsDataclass])
def test_any_base(engine: Engine, kind: type[Any]) -> None:
    """Whatever a Base brings to its own classes, the made models read what is installed."""
    made = make_models(kind)
    enqueue(engine, {"n": 1})
    with Session(engine) as session:
        message = session.scalars(select(made.Message)).one()
        assert (message.payload, message.channel.name) == ({"n": 1}, "alice")
    assert "fq_message" in kind.metadata.tables


def test_users_class_of_the_same_name() -> None:
    """A user's own Message and Channel are still found by their names."""

    class Base(DeclarativeBase):
        pass

    class Channel(Base):
        __tablename__ = "television_channel"
        id: Mapped[int] = mapped_column(primary_key=True)
        messages: Mapped[Any] = relationship("Message")

    class Message(Base):
        __tablename__ = "text_message"
        id: Mapped[int] = mapped_column(primary_key=True)
        channel_id: Mapped[int] = mapped_column(ForeignKey("television_channel.id"))

    make_models(Base)
    make_models(Base, "apps")
    orm.configure_mappers()
    assert Channel.messages.property.mapper.class_ is Message


def test_users_relationship_to_a_made_class(engine: Engine, database: Database) -> None:
    """A user's class relates to messages by a column of its own."""

    class Base(DeclarativeBase):
        pass

    made = make_models(Base)

    class Upload(Base):
        __tablename__ = "upload"
        id: Mapped[int] = mapped_column(primary_key=True)
        message_id: Mapped[int]
        message: Mapped[Any] = relationship(
            made.Message, primaryjoin=lambda: orm.foreign(Upload.message_id) == made.Message.id, viewonly=True
        )

    database.execute("create table upload (id int primary key, message_id bigint)")
    message_id = enqueue(engine, "hello")
    with Session(engine) as session, session.begin():
        session.add(Upload(id=1, message_id=message_id))
    with Session(engine) as session:
        assert session.get_one(Upload, 1).message.payload == "hello"


def test_mixins_with_own_names_schema_and_columns(engine: Engine, base: type[Any]) -> None:
    """Mixins give classes of the user's own, under any name, in any schema, with further columns."""
    names = ("Message", "Channel", "ChannelState", "DeadLetter", "Lease", "QueueConfig")
    given: dict[str, Any] = {"__fairqueue_schema__": "apps"}
    own: dict[str, Any] = {
        name: type(f"Own{name}", (getattr(models, f"{name}Mixin"), base), dict(given)) for name in names[1:]
    }
    work: Any = type("Work", (MessageMixin, base), {**given, "note": mapped_column(String)})
    with engine.begin() as connection:
        connection.execute(CreateSchema("apps"))
        install(connection, schema="apps")
        connection.exec_driver_sql("alter table apps.fq_message add column note text default 'theirs'")
        enqueue(connection, 1, schema="apps")
    with Session(engine) as session:
        found = session.scalars(select(work)).one()
        assert (found.note, found.channel.name, found.lease) == ("theirs", "alice", None)
        assert isinstance(found.channel, own["Channel"])
        assert isinstance(found.channel.state, own["ChannelState"])
        assert (found.channel.dead_letters, found.channel.queue_config) == ([], None)
    assert {*own.values(), work} == {mapper.class_ for mapper in base.registry.mappers}


def test_one_set_of_classes_for_many_schemas(engine: Engine, base: type[Any]) -> None:
    """A session with a map of schemas reads each tenant's installation by the same classes."""
    made = make_models(base)
    schemas = ("tenant_1", "tenant_2")
    for schema in schemas:
        with engine.begin() as connection:
            connection.execute(CreateSchema(schema))
            install(connection, schema=schema)
            enqueue(connection, {"n": schema}, schema=schema)
    for schema in schemas:
        with Session(engine) as session:
            session.connection(execution_options={"schema_translate_map": {None: schema}})
            message = session.scalars(select(made.Message).where(made.Message.payload["n"].astext == schema)).one()
            assert (message.channel.name, message.channel.state.queue) == ("alice", "documents")


@pytest.mark.parametrize("given", [(Index("work_kind", "kind"),), {"schema": "apps"}, {"comment": "ours"}])
def test_table_arguments_in_the_place_of_the_mixins(base: type[Any], given: Any) -> None:
    """A class that would lose what the mixin gives the table is refused, with what to write instead."""
    lost = "fq_message_group_ix, .*fq_message_key, .*fq_message_lease_ix, .*fq_message_ready_ix"
    with pytest.raises(TypeError, match=rf"^Work maps \S*fq_message without {lost}.*: its .*, \*super\(\)"):
        type("Work", (MessageMixin, base), {"__table_args__": given, "__fairqueue_schema__": "apps"})


def test_table_arguments_beside_the_mixins() -> None:
    """What the error says works: the table has what the mixin gives it, and what the user does."""

    class Base(DeclarativeBase):
        pass

    class Work(MessageMixin, Base):
        __fairqueue_schema__ = "apps"

        @orm.declared_attr.directive
        def __table_args__(cls) -> tuple[Any, ...]:  # noqa: N805 - a declared attribute is given the class
            return (Index("work_kind", "kind"), *super().__table_args__)

    assert isinstance(Work.__table__, Table)
    assert Work.__table__.schema == "apps"
    assert {index.name for index in Work.__table__.indexes} > {"work_kind", "fq_message_ready_ix"}


def test_a_mixin_alone(engine: Engine, base: type[Any]) -> None:
    """One mixin can be mapped without its partners: then it has no relationships, and the user's attributes stay."""
    alone: Any = type("Alone", (MessageMixin, base), {"lease": "the user's"})
    enqueue(engine, "x")
    with Session(engine) as session:
        assert session.scalars(select(alone)).one().payload == "x"
    assert (hasattr(alone, "channel"), alone.lease) == (False, "the user's")


def test_twice_into_one_metadata() -> None:
    """Asked again for a schema, make_models gives the classes that are there, until the MetaData is cleared."""

    class Base(DeclarativeBase):
        metadata = MetaData(schema="apps")

    made = make_models(Base)
    assert make_models(Base) is make_models(Base, "apps") is made
    assert make_models(Base, "other") is make_models(Base, "other") is not made
    Base.metadata.clear()
    again = make_models(Base)
    assert again is not made
    assert again.Message.__table__ in Base.metadata.tables.values()


def test_beside_classes_of_the_users(base: type[Any]) -> None:
    """Where a class of the user's has one of the tables, make_models says which."""
    work = type("Work", (MessageMixin, base), {})
    with pytest.raises(ValueError, match="the MetaData has fq_message in the connection's default schema"):
        make_models(base)
    assert make_models(base, "apps").Message is not work
