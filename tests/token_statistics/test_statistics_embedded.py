"""The embedded default model with all threads: batches do not change scores, and English is likely."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_models import SENTENCES, assert_like_twin, score

from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.token_statistics.forward import ForwardPass

pytestmark = pytest.mark.slow


def test_no_score_depends_on_the_batch_in_the_embedded_model(real_model: tuple[TokenizedModel, ForwardPass]) -> None:
    model, forward = real_model
    # Texts of one and two tokens are the delicate ones: their matrix products have two or three rows.
    subjects = ["The", "Yes.", "!", SENTENCES[2], SENTENCES[3] + " " + SENTENCES[4]]
    short, long = ["12", "🙂 ok"], [" ".join(SENTENCES[:3]), " ".join(SENTENCES[2:5])]
    alone = [score(model, forward, [subject])[0] for subject in subjects]
    for company in (short, long):
        among = score(model, forward, [*subjects, *company])
        for row, other_row in zip(alone, among, strict=False):
            for name in ("logprob", "mean", "std", "max_logprob"):
                assert np.abs(row[name] - other_row[name]).max() < 1e-4


def test_the_embedded_model_equals_the_bare_one(real_model: tuple[TokenizedModel, ForwardPass]) -> None:
    model, forward = real_model
    text = SENTENCES[1]
    [ours] = score(model, forward, [text])
    # The bare model multiplies with MKL, ours perhaps with oneDNN: behind the start token, whose activations are huge,
    # they are 2e-5 and 1e-4 from the mean that float64 gives.
    assert_like_twin(model, forward, text, ours, tolerance=2e-4)
    assert ours["logprob"].mean() > -5, "English text is far more likely than chance"
