"""Which package index is used: that which pip is configured with."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from dataclasses import dataclass

_PIP_SECTIONS = ("global", "install", "download")


@dataclass(frozen=True)
class Index:
    """A package index: its endpoint, the certificates to trust, and how patient to be with it (seconds).

    ``endpoint`` None is the one that pip has by default.
    """

    endpoint: str | None = None
    certificates: str | None = None
    proxy: str | None = None
    timeout: float = 60.0
    attempts: int = 3
    pause: float = 1.0


def read_configured_index() -> Index:
    """The index, certificates and proxy that pip is configured with, else the library's own default.

    PIP_INDEX_URL, PIP_CERT and PIP_PROXY go before pip's files. Extra indexes and folders of links are ignored.
    """
    settings = parse_pip_settings(_run_pip_config_list())
    names = {"index-url": "PIP_INDEX_URL", "cert": "PIP_CERT", "proxy": "PIP_PROXY"}
    endpoint, certificates, proxy = (os.environ.get(names[key]) or settings.get(key) or None for key in names)
    return Index(endpoint, certificates, proxy)


def parse_pip_settings(listing: str) -> dict[str, str]:
    """The settings in the output of ``pip config list`` that hold for downloads, in pip's order of precedence."""
    found: dict[str, dict[str, str]] = {section: {} for section in _PIP_SECTIONS}
    for line in listing.splitlines():
        match = re.fullmatch(r"([\w-]+)\.([\w-]+)=('.*'|\".*\")", line.strip())
        if match and match.group(1) in found:
            found[match.group(1)][match.group(2)] = str(ast.literal_eval(match.group(3))).strip()
    return {key: value for section in _PIP_SECTIONS for key, value in found[section].items()}


def _run_pip_config_list() -> str:
    command = [sys.executable, "-m", "pip", "config", "list", "--disable-pip-version-check"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    # An environment without pip (made by another installer) has no configuration of pip's to follow.
    return done.stdout if done.returncode == 0 else ""
