"""Titles of models, with the facts about the files in brackets."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from audit_pipeline.errors import ModelError
from audit_pipeline.models.config import ModelEntry, load_models
from audit_pipeline.models.display_title import find_model_title, format_model_title, read_gguf_format
from audit_pipeline.models.locate import locate
from audit_pipeline.store.files import write_json
from audit_pipeline.store.paths import DEFAULTS, DataPaths


@pytest.mark.parametrize(
    ("fields", "weights_format", "title"),
    [
        ({"title": "SmolLM2-135M", "hub": "a/SmolLM2-135M-Instruct"}, None, "SmolLM2-135M (Instruct)"),
        ({"title": "SmolLM2 135M instruct", "hub": "a/SmolLM2-135M-Instruct"}, None, "SmolLM2 135M instruct"),
        ({"title": "Pythia 410M", "hub": "a/pythia-410m-deduped"}, None, "Pythia 410M (deduped)"),
        # A short word inside of another is not named.
        ({"title": "Gemma, written here", "hub": "google/gemma-it"}, None, "Gemma, written here (it)"),
        ({"name": "a/pythia", "hub": "a/pythia", "revision": "step3000"}, None, "a/pythia (revision step3000)"),
        # A pinned commit is no variant.
        ({"name": "a/pythia", "hub": "a/pythia", "revision": "0" * 40}, None, "a/pythia"),
        ({"title": "Mine", "path": "/m/Qwen2.5-7B.Q8_0.gguf"}, "GGUF Q8_0, 8 bits",
         "Mine (Qwen2.5-7B, GGUF Q8_0, 8 bits)"),
        ({"title": "Qwen2.5-7B", "hub": "a/Qwen2.5-7B-GPTQ"}, "gptq, 4 bits", "Qwen2.5-7B (gptq, 4 bits)"),
        ({"title": "Mine", "hub": "a/Llama-8B", "adapter": {"hub": "b/lora"}}, None,
         "Mine (adapter b/lora on Llama-8B)"),
        ({"name": "/m/lora", "hub": "a/Llama-8B", "adapter": {"path": "/m/lora"}}, None, "lora (adapter on Llama-8B)"),
        # The folder's name is the user's, unless it shares a word with the title.
        ({"title": "My model", "path": "/m/weights"}, None, "My model"),
        ({"title": "Tiny", "path": "/m/tiny-chat"}, None, "Tiny (chat)"),
        ({"name": "run@checkpoint-20", "path": "/m/run/checkpoint-20"}, None, "run@checkpoint-20"),
    ],
)  # fmt: skip
def test_variant_adapter_and_format_follow_the_title(
    fields: dict[str, Any], weights_format: str | None, title: str
) -> None:
    assert format_model_title(ModelEntry.model_validate({"name": "x", **fields}), weights_format) == title


def test_the_embedded_model_is_titled_by_its_card(tmp_path: Path) -> None:
    paths = DataPaths(tmp_path)
    models = load_models(DEFAULTS / "config")
    entry = models["smollm2-135m"]
    gguf = locate(entry, paths).gguf
    assert gguf is not None
    card = {"name": entry.name, "weights_format": read_gguf_format(gguf), "first_loaded_at": "2026-01-02"}
    write_json(paths.model_card("new"), card)
    write_json(paths.model_card("old"), {**card, "weights_format": "other", "first_loaded_at": "2026-01-01"})
    assert find_model_title(entry.name, models, paths) == "SmolLM2-135M-Instruct (GGUF Q4_1, 4 bits)"
    write_json(paths.model_card("of a path"), {"name": "/m/tiny", "title": "tiny (gptq, 4 bits)"})
    assert find_model_title("/m/tiny", models, paths) == "tiny (gptq, 4 bits)"
    assert find_model_title("/m/unknown", models, paths) == "unknown"


def _write_gguf(file: Path, *fields: tuple[str, int, bytes]) -> Path:
    body = b"".join(struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", of) + raw for key, of, raw in fields)
    file.write_bytes(struct.pack("<4sIQQ", b"GGUF", 3, 0, len(fields)) + body)
    return file


TEXTS = ("tokens", 9, struct.pack("<IQ", 8, 2) + (struct.pack("<Q", 1) + b"a") * 2)
NUMBERS = ("scores", 9, struct.pack("<IQ3f", 6, 3, 0, 0, 0))


@pytest.mark.parametrize(
    ("number", "words"), [(3, "GGUF Q4_1, 4 bits"), (1, "GGUF F16"), (19, "GGUF IQ2_XXS, 2 bits"), (9999, "GGUF")]
)
def test_the_number_format_is_read_after_list_fields(tmp_path: Path, number: int, words: str) -> None:
    file = _write_gguf(tmp_path / "a.gguf", TEXTS, NUMBERS, ("general.file_type", 4, struct.pack("<I", number)), TEXTS)
    assert read_gguf_format(file) == words


def test_a_missing_or_truncated_number_format(tmp_path: Path) -> None:
    file = _write_gguf(tmp_path / "a.gguf", TEXTS)
    assert read_gguf_format(file) == "GGUF"
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(ModelError, match="cannot be read"):
        read_gguf_format(file)
