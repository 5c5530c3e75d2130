"""Models of the small applications."""

from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Refused(Exception):
    """Raised by a request after it has enqueued."""


class Base(DeclarativeBase):
    """Models of the applications without a base of their own."""


class Order(Base):
    """An order, confirmed by a handler."""

    __tablename__ = "shop_order"

    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    confirmed: Mapped[bool] = mapped_column(default=False)
