"""Handlers that run in child processes, for test_child_processes. A child imports this module by its name.

They say through files of the folder that the payload names what they do.
"""

import asyncio
import ctypes
import importlib
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine

from sqlalchemy_fairqueue import Batch, Bury, Context, Delivery, Queue, Release, Retry

_LONG = 3600

_tenant: ContextVar[str] = ContextVar("tenant", default="nobody")


def tell(delivery: Delivery, what: str, said: object = "") -> None:
    """Say something: the file is complete when it can be seen."""
    folder = Path(delivery.payload["folder"])
    part = folder / f"{what}.{os.getpid()}.part"
    part.write_text(f"{said}")
    part.rename(folder / f"{what}-{delivery.attempt}")


def unknown_class(delivery: Delivery) -> Any:
    """End with objects of a module that the worker cannot import."""
    sys.path.insert(0, delivery.payload["folder"])
    only_here = importlib.import_module("only_here")
    if delivery.payload["how"] == "Value":
        return only_here.Value()
    raise getattr(only_here, delivery.payload["how"])


def say_pid(delivery: Delivery) -> None:
    """Tell the process and the ordering key."""
    tell(delivery, f"pid-{delivery.message_id}", f"{os.getpid()} {delivery.ordering_key}")


def set_tenant(delivery: Delivery) -> None:
    """Tell the tenant that is set, then set another one."""
    tell(delivery, f"tenant-{delivery.message_id}", _tenant.get())
    _tenant.set(delivery.channel)


def hang(delivery: Delivery) -> None:
    """Hang, with a program that was started."""
    program = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({_LONG})"])
    tell(delivery, "begun", f"{os.getpid()} {program.pid}")
    time.sleep(_LONG)


def hang_without_threads(delivery: Delivery) -> None:
    """Hang in C, so that no other Python thread of the process runs."""
    tell(delivery, "begun", f"{os.getpid()}")
    ctypes.PyDLL(None).sleep(_LONG)


def crash(delivery: Delivery) -> None:
    """End the process as the payload says."""
    how = delivery.payload["how"]
    if how == "segfault":
        ctypes.string_at(0)
    if how == "exit":
        os._exit(3)
    os.kill(os.getpid(), signal.SIGKILL)


def fail(delivery: Delivery) -> Any:
    """Return or raise as the payload says."""
    match delivery.payload["how"]:
        case "retry":
            return Retry(error="not yet")
        case "release":
            return Release(delay=timedelta(hours=1))
        case "bury":
            raise Bury("no use") from ValueError("the cause")
        case "exit":
            sys.exit("a word")
        case "generator":
            return (number for number in range(3))
        case "awaitable":
            return asyncio.sleep(0)
        case "unpicklable":
            raise _error_with_a_lock()
        case "away":
            # The directory of no server.
            create_engine("postgresql+psycopg:///x?host=/nowhere").connect()
    return object()


def _error_with_a_lock() -> Exception:
    error = RuntimeError("cannot be pickled")
    error.lock = threading.Lock()  # type: ignore[attr-defined]  # that is the point
    return error


def stop_when_told(delivery: Delivery, context: Context) -> None:
    """Return when the worker stops."""
    tell(delivery, "begun", f"{context.max_attempts} {context.lost} {context.cancelled} {context.stopping}")
    # What asks for it is in another process.
    while not context.stopping:
        time.sleep(0.005)
    tell(delivery, "told")


def settle(delivery: Delivery) -> None:
    """Settle the delivery itself."""
    engine = create_engine(delivery.payload["url"])
    Queue(delivery.queue).bury(engine, delivery, reason="it said so")
    engine.dispose()


def ignore_signals(delivery: Delivery) -> None:
    """Take what a supervisor sends to all processes of a service, and start a program that does not."""
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
    program = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({_LONG})"])
    program.terminate()
    tell(delivery, "ended", program.wait())


jobs = Queue("jobs")


@jobs.job(isolation="process")
def write(context: Context, *, path: str, amount: Decimal) -> None:
    """Write what it got."""
    Path(path).write_text(f"{amount!r} {context.delivery.attempt == 1}")


def cost_seven(_: Delivery, context: Context) -> None:
    """Say what it cost."""
    context.cost = 7


class RateLimited(Retry):
    """An outcome of the application's own, with arguments of its own."""

    def __init__(self, seconds: int = 3600, /) -> None:
        super().__init__(delay=timedelta(seconds=seconds), error="slow down")
        self.seconds = seconds


def limit_rate(delivery: Delivery) -> Any:
    """Return or raise it as the payload says."""
    outcome: Any = RateLimited()
    match delivery.payload["how"]:
        case "raised":
            raise outcome
        case "class":
            return RateLimited
        case "with a lock":
            outcome.lock = threading.Lock()
    return outcome


def wait_for_result(delivery: Delivery) -> Any:
    """Wait for the result of another message, where warnings are errors."""
    warnings.simplefilter("error")
    engine = create_engine(delivery.payload["url"])
    try:
        return Queue(delivery.queue).result(engine, delivery.payload["message_id"], timeout=timedelta(milliseconds=1))
    finally:
        engine.dispose()


def fork(_: Delivery) -> str:
    """Fork a process that returns from the handler, too, and wait for its end."""
    child = os.fork()
    return "child" if child == 0 else f"status {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}"


def die_of_poison(deliveries: list[Delivery], context: Context) -> None:
    """Die if a payload says so; else bury what is bad."""
    if any(delivery.payload == "poison" for delivery in deliveries):
        os.kill(os.getpid(), signal.SIGKILL)
    bury_bad(context, [Text(delivery.payload) for delivery in deliveries])


@dataclass
class Text:
    """What a message of a job of batches has."""

    text: str
    size: int = 0


batch_queue = Queue("documents")


def bury_bad(context: Context, texts: Sequence[Text]) -> None:
    """Bury what is bad."""
    for delivery, one in zip(context.deliveries, texts, strict=True):
        if one.text == "bad":
            context.bury(delivery, f"bad among {len(texts)}")


@batch_queue.job(batch=Batch(max_messages=5), isolation="process")
def embed(context: Context, texts: list[Text]) -> None:
    """Bury what is bad."""
    bury_bad(context, texts)
