"""Valid and invalid entries of chat_models.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from audit_pipeline.errors import ConfigError
from audit_pipeline.extras.chat.config import ChatModel, load_chat_models
from audit_pipeline.pipeline.whole_configuration import load_configuration

SHIPPED = Path(__file__).parents[3] / "config"
LOCAL = {"model": "openai/made", "url": "http://127.0.0.1:8000/v1"}
HOSTED = {"model": "anthropic/made", "key_env": "MADE_KEY"}


def load(folder: Path, **entries: dict[str, Any]) -> Any:
    (folder / "chat_models.yaml").write_text(yaml.safe_dump({"chat_models": entries}))
    return load_chat_models(folder)


def test_the_shipped_file_has_no_entry_and_a_valid_example(tmp_path: Path) -> None:
    assert list(load_chat_models(SHIPPED)) == list(load_chat_models(tmp_path)) == []
    assert load_configuration(SHIPPED).problems_of("chat_models.yaml") == ()
    lines = (SHIPPED / "chat_models.yaml").read_text().splitlines()
    example = "\n".join(line[2:] for line in lines if line.startswith("#  "))
    entries = load(tmp_path, **yaml.safe_load(example))
    assert entries.problems == ()
    assert sorted(entry.host for entry in entries.values()) == ["127.0.0.1:8000", "api.anthropic.com"]


def test_an_invalid_entry_is_reported_and_skipped(tmp_path: Path) -> None:
    entries = load(tmp_path, good=LOCAL, bad={**LOCAL, "temprature": 1})
    assert list(entries) == ["good"]
    (problem,) = load_configuration(tmp_path).problems_of("chat_models.yaml")
    assert "temprature" in str(problem)
    with pytest.raises(ConfigError):
        entries.get_entry("bad")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"model": "openai/", "url": "http://x/v1"}, "is invalid. Write openai/NAME"),
        ({"model": "azure/made", "url": "http://x/v1"}, "is invalid. Write openai/NAME"),
        ({"model": "openai/made"}, "a commercial provider requires an API key"),
        ({**LOCAL, "url": "127.0.0.1:8000"}, "url must be the address"),
        ({**LOCAL, "url": "http://me:word@host/v1"}, "url must not contain a key"),
        ({**LOCAL, "url": "http://host/v1?key=abc"}, "url must not contain a key"),
        ({**LOCAL, "price_in": 1.0}, "Only one of price_in and price_out"),
        ({**LOCAL, "max_cost": 1.0}, "max_cost requires"),
        ({**LOCAL, "temperature": 0.0}, "greater than 0"),
        ({**LOCAL, "answer_tokens": 99}, "greater than or equal to 100"),
    ],
)
def test_invalid_entries_are_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        ChatModel(name="made", **fields)


def test_recipient_and_cost_of_an_entry() -> None:
    entry = ChatModel(name="made", **HOSTED, price_in=2.0, price_out=10.0)
    assert (entry.address, entry.host) == ("https://api.anthropic.com/v1", "api.anthropic.com")
    assert "api.anthropic.com" in entry.recipient_notice
    assert entry.cost_of(500_000, 100_000) == pytest.approx(2.0)
    assert ChatModel(name="made", **LOCAL).cost_of(1, 1) is None


def test_another_revision_or_address_is_another_model() -> None:
    entries = [LOCAL, *({**LOCAL, **other} for other in ({"revision": "b"}, {"url": "http://x/v1"}))]
    entries.append({**LOCAL, "interface": "completions"})
    assert len({ChatModel(name="made", **fields).fingerprint for fields in entries}) == 4
    same = ChatModel(name="other", **LOCAL, answer_tokens=100, price_in=1.0, price_out=1.0)
    assert same.fingerprint == ChatModel(name="made", **LOCAL).fingerprint
