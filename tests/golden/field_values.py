"""Golden values of the field's detectors (../shared/golden/field_*.jsonl), and our values on the embedded model.

No test reads the golden values of ``max_prob_gap``, ``rank`` and ``acmia_deriv_ac``, which are no detectors of this
project (docs/detectors.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from audit_pipeline.detectors.detector import Outcome, Settings
from audit_pipeline.detectors.registry import get_detector
from audit_pipeline.models.tokenized_model import TokenizedModel, apply_overrides, load_tokenized
from audit_pipeline.scoring.needs.provider import UserInputs
from audit_pipeline.scoring.session import Session
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.token_statistics.forward import ForwardPass

SHARED = Path(__file__).parent.parent.parent.parent / "shared"
GOLDEN = SHARED / "golden"
ONE_PASS, PREFIX, PERMUTATIONS = "field_one_pass.jsonl", "field_prefix.jsonl", "pac_permutations.jsonl"
ABSOLUTE, RELATIVE = 5e-5, 2e-5

needs_golden_values = pytest.mark.skipif(
    not (GOLDEN / ONE_PASS).exists(), reason="the golden values (../shared/golden) are not on this machine"
)
"""The ``pytestmark`` of test modules that need golden values."""


@dataclass(frozen=True)
class GoldenValue:
    """A golden value of a text. Detector and parameters are spelled as in the golden file.

    Attributes:
        value: The value from float64 logits if the file has it. None is minus infinity.
        row: The whole line of the file.
    """

    text: str
    detector: str
    parameters: Mapping[str, Any]
    value: float | None
    row: Mapping[str, Any]


def rows_of(file: str) -> list[dict[str, Any]]:
    """Return the lines of a golden file."""
    return [json.loads(line) for line in (GOLDEN / file).read_text(encoding="utf-8").splitlines()]


@cache
def wikimia_rows(file: str) -> Sequence[Mapping[str, Any]]:
    """Return the rows of a file of WikiMIA: ``input`` is the text, ``label`` is 1 for a member."""
    lines = (SHARED / "benchmarks" / "wikimia" / file).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def wikimia_text(file: str, row: int) -> str:
    return str(wikimia_rows(file)[row]["input"])


def golden_values(file: str, *detectors: str) -> list[GoldenValue]:
    """Return the values of ``detectors`` in file order. Each detector has at least one value."""
    found = []
    for row in rows_of(file):
        if row["detector"] in detectors:
            text, value = wikimia_text(row["file"], row["row"]), row.get("float64", row["score"])
            found.append(GoldenValue(text, row["detector"], row["parameters"], value, row))
    assert {one.detector for one in found} == set(detectors)
    return found


RealModel = tuple[TokenizedModel, ForwardPass]


def as_published(real_model: RealModel, real_data: DataPaths) -> TokenizedModel:
    """Return the model as the authors' code uses it: without a start token, so the first token is not scored."""
    always, _ = real_model
    return load_tokenized(apply_overrides(always.entry, start_token_policy="tokenizer"), real_data)


def scored(
    texts: Iterable[str], wanted: Mapping[str, Sequence[Settings]], real_model: RealModel, real_data: DataPaths
) -> Mapping[tuple[str, str, str], Outcome]:
    """Score texts by settings, whose missing parameters have defaults. Return outcomes by text, detector and label."""
    selection = [
        (get_detector(name), [{**get_detector(name).default, **one} for one in settings])
        for name, settings in wanted.items()
    ]
    distinct = list(dict.fromkeys(texts))
    session = Session(as_published(real_model, real_data), selection, real_data, user_inputs=UserInputs())
    session.run(distinct, lambda _: real_model[1], kinds=("base",))
    outcomes = {}
    for row in session.score(distinct, distinct).to_pylist():
        key = row["example_id"], row["detector"], row["parameters"]
        outcomes[key] = Outcome(row["score"], row["status"], row["reason"])
    return outcomes


def far_off(
    pairs: Iterable[tuple[GoldenValue, float | None]], *, absolute: float = ABSOLUTE, relative: float = RELATIVE
) -> list[tuple[Mapping[str, Any], float | None]]:
    """Return the golden and own values that differ by more than ``absolute`` plus ``relative``. None equals None."""
    off = []
    for golden, ours in pairs:
        is_near = golden.value is ours
        if golden.value is not None and ours is not None:
            is_near = abs(ours - golden.value) <= absolute + relative * abs(golden.value)
        if not is_near:
            off.append((golden.row, ours))
    return off
