"""Fixtures with a local hub, and processes that use it.

huggingface_hub reads its settings when it is imported, so each process has its own environment.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from hub_server import HubServer

ROOT = Path(__file__).parent.parent.parent
Done = subprocess.CompletedProcess[str]
_CLI = (sys.executable, "-c", "from audit_pipeline.cli import main; main()")


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with HubServer() as server:
        yield server
    assert server.unknown == [], "a client asks for something that this hub does not know"
    assert server.leaked == [], "the token was sent to the storage"


@pytest.fixture
def run(hub: HubServer, tmp_path: Path) -> Callable[..., Done]:
    """Run a process that uses the hub, with the cache and the data folder of the test."""

    def run(*command: str, **variables: str) -> Done:
        own = {"CORPUS_AUDIT_DATA": str(tmp_path / "data"), "PYTHONPATH": str(ROOT), **variables}
        environment = hub.environment(tmp_path / "hub-home", **own)
        return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)

    return run


@pytest.fixture
def cli(run: Callable[..., Done]) -> Callable[..., Done]:
    """Run our command line: ``cli("score", "--model", ...)``."""
    return partial(run, *_CLI)


@pytest.fixture
def call_in_process(run: Callable[..., Done]) -> Callable[..., Any]:
    """Return a function that calls a function of in_process.py in a new process, once per argument."""

    def call_in_process(function: str, *arguments: Any, **variables: str) -> Any:
        script = str(Path(__file__).parent / "in_process.py")
        done = run(sys.executable, script, function, json.dumps(arguments), **variables)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return call_in_process


@pytest.fixture
def configured(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Return a function that writes a file of entries and returns the variable that names its folder."""

    def write(file: str, common: dict[str, Any], /, **entries: dict[str, Any]) -> dict[str, str]:
        folder = tmp_path / "config"
        folder.mkdir(exist_ok=True)
        content = {Path(file).stem: {name: {**common, **entry} for name, entry in entries.items()}}
        (folder / file).write_text(yaml.safe_dump(content))
        return {"CORPUS_AUDIT_CONFIG": str(folder)}

    return write
