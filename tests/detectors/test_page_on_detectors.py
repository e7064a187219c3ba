"""docs/adding-a-detector.md: the example on the page is a detector, and its test passes."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import pytest

from audit_pipeline.detectors.detector import Detector
from audit_pipeline.detectors.detector_inputs import (
    BranchStatistics,
    PowerSums,
    Temperatures,
    TextStatistics,
    TokenFrequencies,
)

PAGE = Path(__file__).parents[2] / "docs" / "adding-a-detector.md"
NAME = "audit_pipeline.detectors.top_ranked"


@pytest.mark.parametrize("brought", [BranchStatistics, PowerSums, Temperatures, TokenFrequencies])
def test_the_page_names_every_array_of_every_need(brought: type) -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    names = [f"`{field.name}`" for field in fields(brought)]
    assert [row for row in rows if all(name in row for name in names)], f"no row names {', '.join(names)}"


def test_the_example_of_the_page_works(
    text_statistics: Callable[..., TextStatistics], monkeypatch: pytest.MonkeyPatch
) -> None:

    def block(marker: str) -> str:
        [found] = re.findall(rf"<!-- {marker} -->\n```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
        return str(found)

    module = ModuleType(NAME)
    monkeypatch.setitem(sys.modules, NAME, module)
    exec(block("detector"), vars(module))
    assert [one.name for one in vars(module).values() if isinstance(one, Detector)] == ["top_ranked"]
    test = ModuleType("test_top_ranked")
    exec(block("test"), vars(test))
    tests = [value for name, value in vars(test).items() if name.startswith("test_")]
    assert len(tests) == 3
    for one in tests:
        one(text_statistics)
