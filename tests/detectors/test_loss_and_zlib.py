import math
import zlib

import numpy as np
import pytest

from audit_pipeline.detectors.loss import LOSS, ZLIB


def test_loss_is_the_mean(text_statistics):
    (outcome,) = LOSS.score(text_statistics([-1.0, -2.0, -6.0]), [{}])
    assert outcome == (-3.0, "ok", None)


def test_a_loss_of_exactly_zero_is_a_value(text_statistics):
    (outcome,) = LOSS.score(text_statistics([0.0, 0.0]), [{}])
    assert outcome == (0.0, "ok", None)


def test_loss_is_reduced_in_float64(text_statistics):
    values = np.full(100_001, -0.1, dtype=np.float32)
    values[0] = -1e6
    (outcome,) = LOSS.score(text_statistics(values.tolist()), [{}])
    assert outcome.score == pytest.approx(math.fsum(values.tolist()) / len(values), rel=1e-12)


@pytest.mark.parametrize("text", ["plain words, plain words", "naïve 数据 🙂", " "])
def test_zlib_divides_by_the_compressed_bytes(text_statistics, text):
    (outcome,) = ZLIB.score(text_statistics([-1.0, -5.0], text=text), [{}])
    assert outcome.score == -3.0 / len(zlib.compress(text.encode("utf-8")))


def test_zlib_of_a_lone_surrogate_fails_with_a_reason(text_statistics):
    (outcome,) = ZLIB.score(text_statistics([-1.0], text="ab\ud800"), [{}])
    assert outcome.score is None
    assert outcome.status == "failed"
    assert "lone surrogate at character 2" in outcome.reason
