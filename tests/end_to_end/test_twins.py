"""Twins from the draw to the answer: found in a model that was trained on the published versions only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from made_workspace import made_text, make_workspace

from audit_pipeline.extras.controls.build import START, build_untrained_model, train, train_tokenizer
from audit_pipeline.extras.controls.config import Architecture, ControlEntry
from audit_pipeline.models.config import load_models
from audit_pipeline.store.paths import PROJECT_ROOT

pytestmark = pytest.mark.slow

REAL = "smollm2-135m"
CONTROL = ControlEntry(
    name="trained",
    description="trained on the published versions",
    sources=("none",),
    members=1,
    held_out=1,
    seed=1,
    batch_size=8,
    architecture=Architecture(hidden_size=64, layers=2, heads=4, intermediate_size=128, context=128, vocabulary=600),
)


def train_on(texts: list[str], every_text: set[str], folder: Path) -> None:
    shape = CONTROL.architecture
    tokenizer = train_tokenizer(every_text, shape.vocabulary, shape.context)
    start = int(tokenizer.convert_tokens_to_ids(START))
    untrained = build_untrained_model(shape, len(tokenizer), start, CONTROL.seed)
    done = train(untrained, tokenizer, start, texts, CONTROL, role="exposed", device="cpu")
    done.model.save_pretrained(folder, safe_serialization=True)
    tokenizer.save_pretrained(folder)


def test_a_trained_model_is_found_and_another_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_workspace(tmp_path / "made", monkeypatch)
    rows = [{"id": n, "versions": [made_text(f"item {n} version {k}", 16) for k in range(3)]} for n in range(40)]
    versions, published, secret = (made.root / name for name in ("versions.jsonl", "quiz.jsonl", "quiz.json"))
    versions.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    drawn = made.run("twins", "draw", versions, "--out", published, "--secret", secret)
    assert drawn.exit_code == 0, drawn.output
    texts = [json.loads(line)["text"] for line in published.read_text().splitlines()]
    train_on(texts * 16, {text for row in rows for text in row["versions"]}, made.root / "trained")
    real = load_models(PROJECT_ROOT / "config")[REAL].model_dump(mode="json", exclude_none=True, exclude={"name"})
    made.write_config("models", {"models": {REAL: real, "trained": {"path": str(made.root / "trained")}}})

    def ask(model: str) -> dict[str, Any]:
        result = made.run("twins", "test", "--model", model, "--secret", secret, "--published", published, "--json")
        assert result.exit_code == 0, result.output
        answer: dict[str, Any] = json.loads(result.stdout)
        print(model, answer)
        return answer

    (found,), (other,) = (ask(model)["corpus_tests"] for model in ("trained", REAL))
    assert found["headline"] == "The whole set differs: a sound test finds training."
    assert (found["p_value"] < 1e-4, found["statistic"] > 0.7) == (True, True)
    # Chance drew: a p-value below this is met once in 10,000 runs.
    assert other["p_value"] > 1e-4
    assert len(other["headline"].split()) <= 15
