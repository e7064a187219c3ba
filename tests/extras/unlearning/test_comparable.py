"""Models that cannot be compared."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from audit_pipeline.benchmarks.built_benchmark import BuiltBenchmark
from audit_pipeline.errors import DataError
from audit_pipeline.extras.unlearning.comparison import UnlearningRequest, compare_models
from audit_pipeline.store.paths import DataPaths


def model(name: str, *, tokenizer: str = "t", start: int = 1, **reads: object) -> Any:
    entry = {"name": name, "start_token_policy": "always", "window": 128, "stride": 64, **reads}
    identity = SimpleNamespace(tokenizer_fingerprint=tokenizer, model_fingerprint=f"of {name}")
    return SimpleNamespace(entry=SimpleNamespace(**entry), identity=identity, start_token_id=start)


@pytest.mark.parametrize(
    ("after", "told"),
    [
        (
            model("after", tokenizer="another", window=64),
            "before and after have different tokenizers, so their tokens cannot be compared. Give models with the same "
            "tokenizer.",
        ),
        (
            model("after", window=64, stride=32),
            "before and after do not read texts in the same way. These settings differ: window (128, 64), stride (64, "
            "32). Use the same settings in config/models.yaml, and audit both models again.",
        ),
        (
            model("after", start_token_policy="tokenizer"),
            "before and after do not read texts in the same way. These settings differ: start_token_policy (always, "
            "tokenizer), start token (1, None). Use the same settings in config/models.yaml, and audit both models "
            "again.",
        ),
    ],
)
def test_models_that_read_texts_differently_are_refused(after: Any, told: str) -> None:
    paths = DataPaths("nowhere")
    built = BuiltBenchmark("b", {"digest": "d"}, paths)
    with pytest.raises(DataError) as refused:
        compare_models(UnlearningRequest(model("before"), after, None, built, built), paths)
    assert str(refused.value) == told
