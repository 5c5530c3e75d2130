"""The units of the page about deployment: they parse, fit together, and their command lines run a worker."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from configparser import ConfigParser
from datetime import timedelta
from importlib.metadata import metadata
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from prometheus_client import CollectorRegistry
from sqlalchemy import Engine

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.formats import parse_duration
from sqlalchemy_fairqueue.metrics import QueueCollector
from tests.docs.pages import DOCS, blocks
from tests.fixtures.database import Database
from tests.fixtures.options import PATIENCE
from tests.fixtures.ports import reserved_port
from tests.worker.helpers import until

_BLOCKS = [(block.language, block.text) for block in blocks(DOCS / "howto" / "deploy.md")]
_PORT = "8080"
_DATABASE_URL = "DATABASE_URL"
_SHOP = """
import os

from sqlalchemy import create_engine
from sqlalchemy_fairqueue import Queue

engine = create_engine(os.environ["DATABASE_URL"])
queue = Queue("documents")


@queue.handler
def handle(delivery):
    print("handled", delivery.payload, flush=True)
"""


def _text(language: str, part: str = "") -> str:
    [found] = [text for name, text in _BLOCKS if name == language and part in text]
    return found


def _unit() -> ConfigParser:
    unit = ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(_text("ini"))
    return unit


def _image() -> dict[str, list[str]]:
    """The instructions of the Dockerfile, each with its arguments."""
    found: dict[str, list[str]] = {}
    for line in _text("dockerfile").splitlines():
        instruction, _, rest = line.partition(" ")
        found.setdefault(instruction, []).append(rest)
    return found


def _compose() -> Any:
    return yaml.safe_load(_text("yaml", "services:"))["services"]


def _container() -> Any:
    [container] = _pod()["containers"]
    return container


def _pod() -> Any:
    return yaml.safe_load(_text("yaml", "kind: Deployment"))["spec"]["template"]["spec"]


def _systemd_command() -> list[str]:
    return [word.replace("%H", "host").replace("%i", "1") for word in shlex.split(_unit()["Service"]["ExecStart"])]


def _docker_command() -> list[str]:
    return [str(word) for word in json.loads(_image()["CMD"][0])]


def _kubernetes_command() -> list[str]:
    return [str(word) for word in _container()["command"]]


COMMANDS = {"systemd": _systemd_command, "docker": _docker_command, "kubernetes": _kubernetes_command}


def _grace(command: list[str]) -> timedelta:
    return parse_duration(command[command.index("--grace") + 1])


def _is_done(queue: Queue, engine: Engine) -> bool:
    stats = queue.stats(engine)
    return stats.ready == stats.leased == 0


@pytest.mark.many(1)
@pytest.mark.parametrize("where", COMMANDS)
def test_the_command_line_runs(database: Database, engine: Engine, tmp_path: Path, where: str) -> None:
    """It handles a message, answers the probes of its unit, and ends well at the supervisor's SIGTERM."""
    program, *arguments = COMMANDS[where]()
    assert Path(program).name == "fairqueue"
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "queues.py").write_text(_SHOP)
    queue = Queue("documents")
    queue.enqueue(engine, channel="a", payload=where)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "FAIRQUEUE"))}
    with (
        reserved_port() as port,
        subprocess.Popen(
            [Path(sys.executable).parent / "fairqueue", *(word.replace(_PORT, str(port)) for word in arguments)],
            cwd=tmp_path,
            env=kept | {_DATABASE_URL: database.url.render_as_string(hide_password=False)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as worker,
    ):
        try:
            until(lambda: worker.poll() is not None or _is_done(queue, engine), f"{where} has handled it")
            for probe in ("livenessProbe", "readinessProbe") if where == "kubernetes" else ():
                asked = _container()[probe]["httpGet"]
                assert str(asked["port"]) == _PORT
                with urlopen(f"http://127.0.0.1:{port}{asked['path']}", timeout=PATIENCE.total_seconds()) as answer:
                    assert answer.status == 200
            worker.send_signal(signal.SIGTERM)
            said, logged = worker.communicate(timeout=PATIENCE.total_seconds())
        finally:
            worker.kill()
    assert worker.returncode == 0, logged
    assert f"handled {where}" in said


def test_the_supervisors_wait() -> None:
    """Each supervisor waits for longer than the grace before it kills, and starts the worker again."""
    service = _unit()["Service"]
    assert timedelta(seconds=int(service["TimeoutStopSec"])) > _grace(_systemd_command())
    assert (service["KillMode"], service["Restart"]) == ("mixed", "always")
    compose = _compose()["worker"]
    # The image's command runs.
    assert "command" not in compose
    assert parse_duration(compose["stop_grace_period"]) > _grace(_docker_command())
    assert compose["restart"] == "always"
    assert timedelta(seconds=_pod()["terminationGracePeriodSeconds"]) > _grace(_kubernetes_command())
    assert _image()["STOPSIGNAL"] == ["SIGTERM"]


def test_the_names() -> None:
    """The units set the variable of the application and install extras that exist; the migration comes first."""
    assert _unit()["Service"]["Environment"].partition("=")[0] == _DATABASE_URL
    assert [one["name"] for one in _container()["env"]] == [_DATABASE_URL]
    services = _compose()
    assert all(list(one["environment"]) == [_DATABASE_URL] for one in services.values())
    assert services["migrate"]["command"] == "alembic upgrade head"
    assert services["worker"]["depends_on"] == {"migrate": {"condition": "service_completed_successfully"}}
    installed = shlex.split(_image()["RUN"][0])
    [package] = [word for word in installed if word.startswith("sqlalchemy-fairqueue[")]
    extras = metadata("sqlalchemy-fairqueue").get_all("Provides-Extra") or []
    assert package.partition("[")[2].rstrip("]") in extras


def test_the_scalers_ask_for_what_workers_hold_or_could_take(database: Database, engine: Engine) -> None:
    """The statement of one scaler gives it from the database, the expression of the other from the metrics."""
    queue = Queue("documents")
    queue.configure_channel(engine, "limited", max_concurrency=1)
    for channel in ("a", "a", "limited", "limited"):
        queue.enqueue(engine, channel=channel, payload=1)
    queue.dequeue(engine)
    [trigger] = yaml.safe_load(_text("yaml", "kind: ScaledObject"))["spec"]["triggers"]
    assert database.value(trigger["metadata"]["query"].replace("fairqueue.", "")) == 3

    [other] = yaml.safe_load(_text("yaml", "type: prometheus"))
    selectors = re.findall(r'sum\(fairqueue_(\w+)\{queue="documents",state="(\w+)"\}\)', other["metadata"]["query"])
    assert len(selectors) == 2
    registry = CollectorRegistry()
    registry.register(QueueCollector(engine, queue))
    found = [
        registry.get_sample_value(f"fairqueue_{name}", {"queue": "documents", "state": state})
        for name, state in selectors
    ]
    assert found == [1, 2]
