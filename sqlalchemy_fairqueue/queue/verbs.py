"""Types of a queue's verbs: each is written once, for sync targets, and awaited where its target is async.

A decorator of this module changes a method's type and nothing else. What the method returns comes from ``_perform``,
``_ask`` or ``on``, which give a coroutine where the target is async.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Protocol

    from sqlalchemy import Connection, Engine
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_scoped_session
    from sqlalchemy.orm import Session, scoped_session

    PlainSession = Session | scoped_session[Any]
    AwaitedSession = AsyncSession | async_scoped_session[Any]
    AnySession = PlainSession | AwaitedSession
    Where = PlainSession | Connection | Engine
    AsyncWhere = AwaitedSession | AsyncConnection | AsyncEngine
    RecordedWhere = AnySession | Connection | Engine
    SentWhere = AsyncConnection | AsyncEngine

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")

if TYPE_CHECKING:
    S_contra = TypeVar("S_contra", contravariant=True)
    W_contra = TypeVar("W_contra", contravariant=True)
    A_contra = TypeVar("A_contra", contravariant=True)
    R_co = TypeVar("R_co", covariant=True)

    class BoundVerb(Protocol[W_contra, A_contra, P, R_co]):
        """A verb of one queue: awaited where its target is async."""

        @overload
        def __call__(self, where: W_contra, /, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
        @overload
        def __call__(self, where: A_contra, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]: ...

    class Verb(Protocol[S_contra, W_contra, A_contra, P, R_co]):
        """A method of a class that is a verb of its objects."""

        @overload
        def __get__(self, instance: None, owner: type[Any]) -> Callable[Concatenate[Any, W_contra, P], R_co]: ...
        @overload
        def __get__(self, instance: S_contra, owner: type[Any]) -> BoundVerb[W_contra, A_contra, P, R_co]: ...


def verb(method: Callable[Concatenate[S, Where, P], R]) -> Verb[S, Where, AsyncWhere, P, R]:
    """Type what talks with the database wherever it is called: it is awaited on async sessions too."""
    return method  # pyright: ignore[reportReturnType] - of pyright: a function has a __get__ too


def recorded(method: Callable[Concatenate[S, RecordedWhere, P], R]) -> Verb[S, RecordedWhere, SentWhere, P, R]:
    """Type what is recorded on a session, sync or async, which returns at once; elsewhere it is sent at once."""
    return method  # pyright: ignore[reportReturnType] - of pyright: a function has a __get__ too


def on_engine(method: Callable[Concatenate[S, Engine, P], R]) -> Verb[S, Engine, AsyncEngine, P, R]:
    """Type what needs transactions of its own, and so an engine."""
    return method  # pyright: ignore[reportReturnType] - of pyright: a function has a __get__ too


def on_session(function: Callable[Concatenate[PlainSession, P], R]) -> BoundVerb[PlainSession, AwaitedSession, P, R]:
    """Type a function that works on a session, and is awaited on an async one."""
    return function  # type: ignore[return-value]
