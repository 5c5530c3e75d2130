"""The names of the mapped classes, each with its mixin, and a dataclass that holds the classes of an installation.

Type checkers read ``classes.pyi``, which ``python -m tests.orm.stubs`` writes.
"""

from dataclasses import make_dataclass

from sqlalchemy_fairqueue.models import applications

MIXINS = {
    name.removesuffix("Mixin"): mixin
    for name, mixin in vars(applications).items()
    if name.endswith("Mixin") and hasattr(mixin, "__tablename__")
}
_DOC = """The mapped classes of one installation. Each is documented at its mixin: ``Audit`` at :class:`AuditMixin`.

See Also:
    :func:`make_models`
"""
Models = make_dataclass("Models", MIXINS, frozen=True, slots=True, namespace={"__doc__": _DOC, "__module__": __name__})
__all__ = sorted([*MIXINS, *(f"{name}Mixin" for name in MIXINS)])  # noqa: PLE0605 - it is a list
