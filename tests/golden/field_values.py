"""Golden values of the field's detectors (../shared/golden/field_*.jsonl), and the embedded model's answers to compare.

Some golden detectors belong to nothing that is shipped, and no test reads them: ``max_prob_gap``, ``rank`` and
``acmia_deriv_ac``, which are no detectors here (docs/detectors.md).
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
from audit_pipeline.tables import Kind
from audit_pipeline.token_statistics.forward import ForwardPass

SHARED = Path(__file__).parent.parent.parent.parent / "shared"
GOLDEN = SHARED / "golden"
ONE_PASS, PREFIX, PERMUTATIONS = "field_one_pass.jsonl", "field_prefix.jsonl", "pac_permutations.jsonl"
ABSOLUTE, RELATIVE = 5e-5, 2e-5

needs_golden_values = pytest.mark.skipif(
    not (GOLDEN / ONE_PASS).exists(), reason="the golden values (../shared/golden) are not on this machine"
)
"""To be a test module's ``pytestmark``."""


@dataclass(frozen=True)
class GoldenValue:
    """One value: of which text, by which detector under which parameters (both as the golden file spells them).

    ``value`` is the one from float64 logits where the file has it, None for minus infinity; ``row`` is the whole line.
    """

    text: str
    detector: str
    parameters: Mapping[str, Any]
    value: float | None
    row: Mapping[str, Any]


def rows_of(file: str) -> list[dict[str, Any]]:
    """The lines of a golden file."""
    return [json.loads(line) for line in (GOLDEN / file).read_text(encoding="utf-8").splitlines()]


@cache
def wikimia_rows(file: str) -> Sequence[Mapping[str, Any]]:
    """Every row of a file of WikiMIA: ``input`` is its text, ``label`` 1 for a member."""
    lines = (SHARED / "benchmarks" / "wikimia" / file).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def wikimia_text(file: str, row: int) -> str:
    return str(wikimia_rows(file)[row]["input"])


def golden_values(file: str, *detectors: str) -> list[GoldenValue]:
    """The values of ``detectors``, in the file's order; there is at least one of each."""
    found = [
        GoldenValue(
            wikimia_text(row["file"], row["row"]),
            row["detector"],
            row["parameters"],
            row.get("float64", row["score"]),
            row,
        )
        for row in rows_of(file)
        if row["detector"] in detectors
    ]
    assert {one.detector for one in found} == set(detectors)
    return found


RealModel = tuple[TokenizedModel, ForwardPass]


def as_published(real_model: RealModel, real_data: DataPaths) -> TokenizedModel:
    """The model as the authors' code has it: the tokenizer as it is, so the first token is not scored."""
    always, _ = real_model
    return load_tokenized(apply_overrides(always.entry, start_token_policy="tokenizer"), real_data)


def scored(
    texts: Iterable[str],
    wanted: Mapping[str, Sequence[Settings]],
    real_model: RealModel,
    real_data: DataPaths,
    *,
    kinds: Sequence[Kind] = ("base",),
) -> Mapping[tuple[str, str, str], Outcome]:
    """Our outcome by text, detector and label of the setting, through a session and its cache (in ``real_data``).

    ``wanted`` are detectors by name with their settings, what a setting leaves out at its default.
    """
    selection = [
        (get_detector(name), [{**get_detector(name).default, **one} for one in settings])
        for name, settings in wanted.items()
    ]
    distinct = list(dict.fromkeys(texts))
    session = Session(as_published(real_model, real_data), selection, real_data, user_inputs=UserInputs())
    session.run(distinct, lambda _: real_model[1], kinds=kinds)
    rows = session.score([str(number) for number in range(len(distinct))], distinct).to_pylist()
    return {
        (distinct[int(row["example_id"])], row["detector"], row["parameters"]): Outcome(
            row["score"], row["status"], row["reason"]
        )
        for row in rows
    }


def far_off(
    pairs: Iterable[tuple[GoldenValue, float | None]], *, absolute: float = ABSOLUTE, relative: float = RELATIVE
) -> list[tuple[Mapping[str, Any], float | None]]:
    """Of golden values and ours, those that differ by more than ``absolute`` plus ``relative``; None equals None."""
    return [(one.row, ours) for one, ours in pairs if not _near(one.value, ours, absolute, relative)]


def _near(golden: float | None, ours: float | None, absolute: float, relative: float) -> bool:
    if golden is None or ours is None:
        return golden is ours
    return abs(ours - golden) <= absolute + relative * abs(golden)
