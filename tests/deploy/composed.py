"""The compose file in deploy/container."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parents[2] / "deploy" / "container"
WITH_SECRETS = FOLDER / "with-secrets"
_VARIABLE = re.compile(r"\$\{(\w+):-([^}]*)\}")


def composed(name: str = "compose.yaml") -> dict[str, Any]:
    """Return a compose file with the defaults of its variables."""
    text = (FOLDER / name).read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(_VARIABLE.sub(lambda match: match[2], text))
    return found


def variables() -> set[str]:
    """Return the environment variables of the compose file."""
    return {name for name, _ in _VARIABLE.findall((FOLDER / "compose.yaml").read_text(encoding="utf-8"))}


def outside(command: list[str], ports: Mapping[str, str], home: Path) -> list[str]:
    """Return a command of the file for this machine: on loopback, with another Dagster home."""
    places = {
        "/usr/local/bin/with-secrets": str(WITH_SECRETS),
        "0.0.0.0": "127.0.0.1",
        "/srv/corpus-audit/home/workspace.yaml": str(home / "workspace.yaml"),
        **ports,
    }
    changed = [places.get(part, part) for part in command]
    return [re.sub(r"127\.0\.0\.1:(\d+)", lambda match: f"127.0.0.1:{ports[match[1]]}", part) for part in changed]
