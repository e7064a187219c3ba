"""Which package index pip is configured with."""

from __future__ import annotations

from pathlib import Path

import pytest

from audit_pipeline.readers.distributions import parse_pip_settings, read_configured_index

NAMES = ("PIP_INDEX_URL", "PIP_CERT", "PIP_PROXY")


def test_settings_of_pip_in_its_order_of_precedence() -> None:
    listing = """
:env:.index-url='https://env.invalid/'
global.cert='/etc/ssl/one.pem'
global.extra-index-url='file:///a file:///b'
global.index-url='https://global.invalid/simple'
install.index-url='https://install.invalid/simple'
freeze.index-url='https://freeze.invalid/simple'
something else
"""
    settings = parse_pip_settings(listing)
    assert settings["index-url"] == "https://install.invalid/simple"
    assert settings["cert"] == "/etc/ssl/one.pem"


def test_pip_is_asked_for_its_configuration_and_the_environment_goes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pip", reason="this environment has no pip to ask")
    config = tmp_path / "pip.conf"
    config.write_text("[global]\nindex-url = https://from-file.invalid/simple\ncert = /from/file.pem\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    for name in NAMES:
        monkeypatch.setenv(name, "")
    index = read_configured_index()
    assert (index.endpoint, index.certificates, index.proxy) == (
        "https://from-file.invalid/simple",
        "/from/file.pem",
        None,
    )
    for name in NAMES:
        monkeypatch.setenv(name, f"https://{name}.invalid/")
    index = read_configured_index()
    assert (index.endpoint, index.certificates, index.proxy) == tuple(f"https://{name}.invalid/" for name in NAMES)
