"""A small installation of its own: tiny models, three benchmarks of made-up dated texts, and `corpus-audit dev` on it.

What belongs here: making the folders, and starting and ending the services, for scripts that drive the real thing from
outside (tests/ui, bench). What does not: fixtures of tests that run in one process (made_workspace.py).
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import requests
import yaml
from made_workspace import WORDS, temporal
from tiny_models import save_model

START_SECONDS = 180.0
_COMMAND = Path(sys.executable).with_name("corpus-audit")
_NEWER = ["satellite", "drone", "battery", "podcast"]
_FAMILIES = ("llama", "gpt_neox", "phi3")


@dataclass(frozen=True)
class LiveWorkspace:
    """The folders of an installation."""

    root: Path

    @property
    def config(self) -> Path:
        return self.root / "config"

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of a process of this installation."""
        named = {
            "CORPUS_AUDIT_DATA": str(self.data),
            "CORPUS_AUDIT_CONFIG": str(self.config),
            "DAGSTER_HOME": str(self.data / "dagster_home"),
            "OMP_NUM_THREADS": "1",
            "PYTHONWARNINGS": "ignore",
        }
        return {**os.environ, **named}

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a file of the configuration atomically."""
        temporary = self.config / f".{name}.tmp"
        temporary.write_text(yaml.safe_dump(dict(content), sort_keys=False), encoding="utf-8")
        temporary.replace(self.config / f"{name}.yaml")

    def read(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = yaml.safe_load((self.config / f"{name}.yaml").read_text(encoding="utf-8"))
        return found

    def add_model(self, number: int) -> str:
        """Save a tiny model, add it to models.yaml, and return its name."""
        name = f"tiny-{'abcdefgh'[number]}"
        save_model(self.root / "models" / name, _FAMILIES[number % len(_FAMILIES)], seed=number)
        entry = {"path": str(self.root / "models" / name), "release_date": "2024-06-01"}
        self.write("models", {"models": {**self.read("models")["models"], name: entry}})
        return name

    def run(self, *arguments: str, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        """Run the command line on this installation."""
        return subprocess.run(
            [str(_COMMAND), *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    @contextmanager
    def services(self) -> Iterator[str]:
        """Run `corpus-audit dev` on a free port, and yield its address."""
        process, address = start_services(self)
        try:
            yield address
        finally:
            end(process)


def launch(workspace: LiveWorkspace, **environment: str) -> tuple[subprocess.Popen[bytes], str]:
    """Start `corpus-audit dev` on free ports, with its output in dev.log.

    Returns:
        The process, for :func:`end`, and the address of the UI.
    """
    port, report_port = map(str, find_free_ports(2))
    command = [str(_COMMAND), "dev", "--port", port, "--report-port", report_port]
    with (workspace.root / "dev.log").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            command,
            env={**workspace.environment, **environment},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    return process, f"http://127.0.0.1:{port}"


def start_services(workspace: LiveWorkspace, **environment: str) -> tuple[subprocess.Popen[bytes], str]:
    """Launch `corpus-audit dev`, and wait until it responds."""
    process, address = launch(workspace, **environment)
    try:
        _wait_until_up(address, process)
    except (RuntimeError, KeyboardInterrupt, SystemExit):
        end(process)
        raise
    return process, address


def make(root: Path, models: int = 2, documents: int = 40) -> LiveWorkspace:
    """Write models, texts and configuration under ``root``."""
    made = LiveWorkspace(root)
    made.config.mkdir(parents=True)
    made.data.mkdir()
    made.write("models", {"models": {}})
    for number in range(models):
        made.add_model(number)
    texts = root / "texts.jsonl"
    texts.write_text("".join(json.dumps(row) + "\n" for row in _documents(documents)), encoding="utf-8")
    local = {"path": str(texts), "text_column": "text", "date_column": "date", "group_column": "book"}
    made.write("sources", {"local_files": local})
    made.write("benchmarks", {"benchmarks": {"made": family([8, 12, 16])}})
    return made


def family(words: list[int], **changes: Any) -> dict[str, Any]:
    """Return the entry of a family on the made-up texts."""
    return temporal(words, **{"sources": ["local_files"], "windows_per_document": 3, **changes})


def _documents(count: int) -> Iterator[dict[str, str]]:
    for number in range(count):
        old = number % 2 == 0
        chosen = random.Random(number).choices(WORDS if old else [*WORDS, *_NEWER], k=90)
        yield {
            "text": " ".join(chosen),
            "date": f"{2020 if old else 2025}-03-{1 + number % 28:02}",
            "book": f"book {number}",
        }


def find_free_ports(count: int) -> list[int]:
    """Return different ports that are free on the loopback address."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def _wait_until_up(address: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        if process.poll() is not None:
            raise RuntimeError(f"the services ended at once, with {process.returncode}")
        try:
            if requests.get(f"{address}/server_info", timeout=2).ok and graphql(address, _LOCATIONS):
                return
        except requests.RequestException:
            time.sleep(0.5)
    raise RuntimeError(f"{address} does not answer")


_LOCATIONS = "{ repositoriesOrError { __typename } }"


def graphql(address: str, query: str, **variables: Any) -> Any:
    """Return the data of a GraphQL query. Raise RuntimeError if the response has errors."""
    answer = requests.post(f"{address}/graphql", json={"query": query, "variables": variables}, timeout=120).json()
    if answer.get("errors"):
        raise RuntimeError(answer["errors"][0]["message"])
    return answer["data"]


def end(process: subprocess.Popen[Any]) -> None:
    """End a process and its children."""
    if process.poll() is not None:
        return
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for child in children:
        if child.is_running():
            child.kill()
