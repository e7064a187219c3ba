"""Rates over documents, calculated by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import t

from audit_pipeline.extras.extraction.documents import SearchedDocument
from audit_pipeline.extras.extraction.memorisation import windows_from_rows
from audit_pipeline.extras.extraction.result_tables import compute_extraction_rates
from audit_pipeline.extras.extraction.search import Extraction
from audit_pipeline.extras.extraction.window_exclusions import Exclusions
from audit_pipeline.statistics.share_bounds import compute_clopper_pearson_bounds
from audit_pipeline.tables import EXTRACTION

Row = dict[str, Any]


def extracted(
    name: str,
    probabilities: Sequence[float],
    *,
    group: str = "",
    collection: str = "all",
    side: Literal["audited", "held_out"] = "audited",
    occurrences: int | None = None,
) -> Extraction:
    """Return a document of 100 characters with contiguous suffixes of 10 characters and the given probabilities."""
    rows = [
        {
            **{"key": str(number), "text_sha256": name, "start": 10 * number, "prefix_tokens": 2, "token_id": [0]},
            **{"char_start": [10 * number], "char_end": [10 * number + 10], "logprob": [np.log(p)], "rank": [1]},
            **{"log_mass_40": [0.0], "argmax_id": [0]},
        }
        for number, p in enumerate(probabilities)
    ]
    windows = windows_from_rows(pa.Table.from_pylist(rows, schema=EXTRACTION.schema))
    exclusions = Exclusions((None,) * len(windows), *(np.full(len(windows), np.nan) for _ in range(2)))
    document = SearchedDocument(
        name, "x" * 100, group=group or name, collection=collection, side=side, occurrences=occurrences
    )
    coarse = np.ones(len(windows), dtype=np.bool_)
    return Extraction(document, windows, coarse, exclusions)


def at(rates: Sequence[Row], unit: str, name: str, threshold: float | None) -> dict[str, Row]:
    return {
        one["side"]: one for one in rates if (one["unit"], one["name"], one["threshold"]) == (unit, name, threshold)
    }


def test_shares_of_characters_and_of_documents() -> None:
    found = [
        extracted("a", [0.6, 0.02, 1e-6], collection="novels"),
        extracted("b", [1e-6, 1e-7], collection="novels"),
        extracted("c", [0.002], collection="poems"),
        extracted("short", []),
        extracted("new", [0.005], side="held_out"),
    ]
    rates = compute_extraction_rates(found, "shelf")
    sides = at(rates, "benchmark", "shelf", 0.001)
    audited = sides["audited"]
    # 20 of 100, none, and 10 of 100 characters; a document without a window counts nowhere.
    assert (audited["n_documents"], audited["characters"], audited["n_reached"]) == (3, 300, 2)
    assert audited["covered"] == pytest.approx(30 / 300)
    # Clopper and Pearson, 2 of 3.
    assert (audited["reached_low"], audited["reached_high"]) == pytest.approx((0.0943, 0.9916), abs=1e-4)
    assert audited["median_log_p"] == pytest.approx(np.log(0.002))
    assert (sides["held_out"]["n_reached"], sides["held_out"]["n_documents"]) == (1, 1)
    assert at(rates, "benchmark", "shelf", 0.5)["audited"]["n_reached"] == 1
    assert at(rates, "collection", "novels", 0.01)["audited"]["covered"] == pytest.approx(20 / 200)
    assert at(rates, "group", "c", 0.001)["audited"]["covered"] == pytest.approx(0.1)
    # None of two documents has such a passage: none of 2 groups. A single document has no interval.
    none = at(rates, "collection", "novels", None)["audited"]
    assert (none["covered_low"], none["covered_high"]) == (0.0, pytest.approx(1 - 0.025 ** (1 / 2)))
    assert at(rates, "group", "c", 0.001)["audited"]["covered_low"] is None
    assert at(rates, "benchmark", "shelf", None)["audited"]["n_reached"] == 0


def test_the_interval_uses_an_effective_number_of_characters() -> None:
    found = [extracted(str(number), [0.6] if number < 4 else [1e-6]) for number in range(10)]
    rate = at(compute_extraction_rates(found, "b"), "benchmark", "b", 0.5)["audited"]
    # 4 of 10 documents cover 10 of 100 characters. Without one of them, the share of .04 changes by (4 - 10) / 900.
    # Without one of the others, it changes by 4 / 900. A simple sample of 1,000 characters has the variance
    # .04 * .96 / 999.
    variance = 9 / 10 * (4 * 6**2 + 6 * 4**2) / 900**2
    size = 1000 * 0.04 * 0.96 / 999 / variance * (t.ppf(0.975, 999) / t.ppf(0.975, 9)) ** 2
    low, high = compute_clopper_pearson_bounds(0.04 * size, size)
    assert (rate["covered_low"], rate["covered_high"]) == (pytest.approx(low), pytest.approx(high))


def test_rates_of_a_control_by_number_of_occurrences() -> None:
    found = [extracted("a", [0.6], occurrences=64), extracted("b", [1e-6], occurrences=1)]
    rates = compute_extraction_rates(found, "b")
    assert at(rates, "occurrences", "64", 0.1)["audited"]["n_reached"] == 1
    assert at(rates, "occurrences", "1", 0.1)["audited"]["n_reached"] == 0


def test_nothing_was_searched() -> None:
    assert compute_extraction_rates([], "b") == []
    assert compute_extraction_rates([extracted("short", [])], "b") == []
