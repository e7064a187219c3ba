"""Which package index pip is configured with."""

from __future__ import annotations

from pathlib import Path

import pytest

from audit_pipeline.readers.pip_settings import Index, index_from, parse_pip_settings, read_configured_index


def test_settings_of_pip_in_its_order_of_precedence() -> None:
    listing = """
:env:.timeout='180'
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
    assert parse_pip_settings(listing + ":env:.index-url='https://env.invalid/'")["index-url"] == "https://env.invalid/"


def test_environment_goes_before_settings_and_both_before_the_default() -> None:
    settings = {"index-url": "https://set.invalid/", "cert": "set.pem", "proxy": "http://set.invalid"}
    environment = {"PIP_INDEX_URL": "https://env.invalid/", "PIP_CERT": "env.pem", "PIP_PROXY": "http://env.invalid"}
    assert index_from(settings, environment) == Index("https://env.invalid/", "env.pem", "http://env.invalid")
    assert index_from(settings, {"PIP_INDEX_URL": ""}) == Index("https://set.invalid/", "set.pem", "http://set.invalid")
    assert index_from({}, {}) == Index(None, None, None)


def test_pip_is_asked_for_its_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pip", reason="this environment has no pip to ask")
    config = tmp_path / "pip.conf"
    config.write_text("[global]\nindex-url = https://from-file.invalid/simple\ncert = /from/file.pem\n")
    for name in ("PIP_INDEX_URL", "PIP_CERT", "PIP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    index = read_configured_index()
    assert (index.endpoint, index.certificates) == ("https://from-file.invalid/simple", "/from/file.pem")
