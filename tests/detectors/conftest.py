from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pytest

from audit_pipeline.catalogue.contracts import TOKEN_STATISTICS, text_sha256
from audit_pipeline.detectors.statistics import TextStatistics

INTS = ("token_id", "argmax_id", "rank")
FLOATS = ("logprob", "mean", "std", "max_logprob")


@pytest.fixture(scope="session")
def text_statistics() -> Callable[..., TextStatistics]:
    """Statistics of one text; what is not given is filled with plain values."""

    def make(
        logprob: Sequence[float],
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        text: str = "some text",
    ) -> TextStatistics:
        n = len(logprob)
        given = {"logprob": logprob, "mean": mean or [-5.0] * n, "std": std or [2.0] * n, "max_logprob": [-0.1] * n}
        floats = {name: np.array(values, dtype=np.float32) for name, values in given.items()}
        return TextStatistics(text=text, **floats, **{name: np.arange(n, dtype=np.int32) for name in INTS})

    return make


@pytest.fixture(scope="session")
def statistics_table() -> Callable[..., pa.Table]:
    """A token-statistics table: text -> log-probabilities; the other lists are told apart by an offset."""

    def make(texts: Mapping[str, Sequence[float]]) -> pa.Table:
        rows = [
            {
                "key": f"key of {text}",
                "text_sha256": text_sha256(text),
                **{name: [index + shift for index in range(len(values))] for shift, name in enumerate(INTS)},
                "char_start": list(range(len(values))),
                "char_end": list(range(1, len(values) + 1)),
                **{name: [value - shift for value in values] for shift, name in enumerate(FLOATS)},
            }
            for text, values in texts.items()
        ]
        return pa.Table.from_pylist(rows, schema=TOKEN_STATISTICS.schema)

    return make
