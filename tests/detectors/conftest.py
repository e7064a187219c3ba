from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from audit_pipeline.detectors.detector_inputs import TextStatistics
from audit_pipeline.tables import MEASURED, TOKEN_STATISTICS, text_sha256

INTS = ("token_id", *(field.name for field in MEASURED if pa.types.is_integer(field.type.value_type)))
FLOATS = tuple(field.name for field in MEASURED if pa.types.is_floating(field.type.value_type))
PLAIN = {"mean": -5.0, "std": 2.0}


@pytest.fixture(scope="session")
def text_statistics() -> Callable[..., TextStatistics]:
    """Return a builder of the statistics of one text. Missing columns have plain values."""

    def make(
        logprob: Sequence[float], text: str = "some text", extras: Mapping[Any, object] | None = None, **given: Any
    ) -> TextStatistics:
        n = len(logprob)
        plain = {**{name: [PLAIN.get(name, -0.1)] * n for name in FLOATS}, **{name: range(n) for name in INTS}}
        types = {**dict.fromkeys(FLOATS, np.float32), **dict.fromkeys(INTS, np.int32)}
        columns = {**plain, "logprob": logprob, **given}
        arrays = {name: np.array(values, types[name]) for name, values in columns.items()}
        return TextStatistics(text, arrays, extras or {})

    return make


@pytest.fixture(scope="session")
def statistics_table() -> Callable[..., pa.Table]:
    """Return a builder of a token-statistics table. Other columns are the log-probabilities with an offset."""

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
