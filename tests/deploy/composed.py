"""The compose file in deploy/container."""

from __future__ import annotations

import re
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
