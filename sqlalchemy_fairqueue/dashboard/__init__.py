"""A dashboard for operators, as an ASGI application (extra ``dashboard``): who waits, why, and because of whom."""

from sqlalchemy_fairqueue.dashboard.access import Access, Role
from sqlalchemy_fairqueue.dashboard.application import create_dashboard

__all__ = ["Access", "Role", "create_dashboard"]
