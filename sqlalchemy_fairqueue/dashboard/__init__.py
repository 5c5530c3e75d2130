"""A dashboard for operators, as an ASGI application: who waits, why, and because of whom.

It needs the extra ``dashboard``. It reads for everybody through one shared set of figures, and changes something only
for those whom the application's callback calls operators.
"""

from sqlalchemy_fairqueue.dashboard.access import Access, Role
from sqlalchemy_fairqueue.dashboard.application import create_dashboard

__all__ = ["Access", "Role", "create_dashboard"]
