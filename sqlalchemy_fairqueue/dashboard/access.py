"""Decides who may see and change what in the dashboard, and logs what users did."""

from __future__ import annotations

import inspect
import logging
import re
import secrets
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.responses import Response

from sqlalchemy_fairqueue.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import Request

    Decision = Response | None
    Authorize = Callable[[Request], "Access | Decision | Awaitable[Access | Decision]"]

audit_logger = logging.getLogger("sqlalchemy_fairqueue.dashboard.audit")

CSRF_COOKIE = "fairqueue_csrf"
CSRF_FIELD = "csrf"
_TOKEN_BYTES = 32
_TOKEN = re.compile(rf"[0-9a-f]{{{2 * _TOKEN_BYTES}}}")
_PORTS = {"http": 80, "https": 443}


class Role(StrEnum):
    """The rights of a user of the dashboard. They have nothing to do with roles of PostgreSQL.

    See Also:
        :class:`Access`
    """

    VIEWER = "viewer"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Access:
    """A user who may see the dashboard, and the user's rights.

    Attributes:
        name: The user's name, for the record of actions.
        role: A viewer sees; an operator also changes.
        payloads: Whether the user sees payloads, headers, results and error texts of messages.

    Example:
        >>> support, on_call = Access("ann"), Access("ben", Role.OPERATOR, payloads=True)
        >>> support.operates, on_call.operates
        (False, True)
    """

    name: str
    role: Role = Role.VIEWER
    payloads: bool = False

    def __post_init__(self) -> None:
        """Refuse an unknown role, which would silently be a viewer."""
        if self.role not in set(Role):
            raise InvalidArgument(f"role is {self.role!r:.80}; give Role.VIEWER or Role.OPERATOR")
        object.__setattr__(self, "role", Role(self.role))

    @property
    def operates(self) -> bool:
        """Whether the user may change something."""
        return self.role is Role.OPERATOR


ANYBODY = Access("anybody")
"""The user of a dashboard that has no callback."""


class Refused(Exception):
    """The callback ``authorize`` gave an answer in place of the page, such as a redirect to a login."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status_code)
        self.response = response


async def access_of(request: Request, authorize: Authorize | None) -> Access:
    if authorize is None:
        return ANYBODY
    decision = authorize(request)
    found = await decision if inspect.isawaitable(decision) else decision
    if isinstance(found, Response):
        raise Refused(found)
    if found is None:
        raise HTTPException(403, "You may not see this dashboard.")
    if not isinstance(found, Access):
        raise TypeError(f"authorize returned {found!r:.80}; return an Access, None or a Response")
    return found


def csrf_token(request: Request) -> str:
    found = request.cookies.get(CSRF_COOKIE, "")
    return found if _TOKEN.fullmatch(found) else secrets.token_hex(_TOKEN_BYTES)


def check_origin(request: Request, form: Mapping[str, str]) -> None:
    origin = request.headers.get("origin")
    foreign = origin is not None and not _is_own(request, origin)
    crossed = request.headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}
    cookie, sent = request.cookies.get(CSRF_COOKIE, ""), form.get(CSRF_FIELD, "")
    known = _TOKEN.fullmatch(cookie) and secrets.compare_digest(cookie.encode(), sent.encode())
    if foreign or crossed or not known:
        raise HTTPException(403, "The form has expired or came from another site. Open the page again.")


def _is_own(request: Request, origin: str) -> bool:
    try:
        sender, site = urlsplit(origin), urlsplit(f"//{request.headers.get('host', '')}")
        default = _PORTS[sender.scheme]
        own = (site.hostname, site.port or default) == (sender.hostname, sender.port or default)
    except (KeyError, ValueError):
        # The origin is the word "null", or cannot be parsed.
        return False
    # A proxy may have ended TLS, so an https origin may send a request that arrives as http, but not the reverse.
    return own and bool(site.hostname) and not (request.scope["scheme"] == "https" and sender.scheme == "http")


def record(access: Access, action: str, queue: str, outcome: str, **subject: Any) -> None:
    about = {name: value for name, value in subject.items() if value is not None}
    words = "".join(f" {name}={value!r:.200}" for name, value in about.items())
    audit_logger.info(
        "%r did %s on queue %r%s: %s",
        access.name, action, queue, words, outcome,
        extra={
            "fairqueue_user": access.name, "fairqueue_action": action, "fairqueue_queue": queue,
            "fairqueue_subject": about,
        },
    )  # fmt: skip
