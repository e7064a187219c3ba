"""Rows of what a model was made to say of whole documents, made up by hand."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from audit_pipeline.tables import Pair, Side, canonical_json, digest, text_sha256
from tests.warehouse.conftest import MODELS, Folder

Row = Mapping[str, object]


@dataclass(frozen=True)
class Window:
    """A window, the suffix of which has the probability ``p`` and begins and ends at these characters."""

    begin: int
    end: int
    p: float
    set_apart: str | None = None
    strength: int | None = None
    prefix: str | None = None
    pieces: tuple[str, ...] = ()
    first_choices: tuple[str, ...] = ()
    matches: int = 20
    reference: float | None = None
    prior: float | None = None
    given: str | None = None
    place: str | None = None
    words: int | None = None
    in_common: int | None = None


@dataclass(frozen=True)
class Extracted:
    """A document, its windows, and the shares of its characters at the four thresholds and by first choices."""

    document: str
    windows: Sequence[Window]
    covered: tuple[float, float, float, float, float] = (0.0, 0.0, 0.0, 0.0, 0.0)
    characters: int = 1000
    title: str | None = None
    group: str = "group"
    collection: str = "shelf"
    side: Side = "audited"
    longest_run: int = 0
    q_bh: float | None = None
    grid_p: float | None = None

    @property
    def reproduced(self) -> int:
        return sum(one.p >= 0.001 and one.set_apart is None for one in self.windows)

    def row(self, held_out: int) -> Row:
        """As DOCUMENT_MEMORISATION, but for model, benchmark and run."""
        strongest = max((one.p for one in self.windows if one.set_apart is None), default=None)
        searched = bool(self.windows)
        tested = searched and self.side == "audited" and held_out > 0
        names = ("covered_at_0_001", "covered_at_0_01", "covered_at_0_1", "covered_at_0_5", "covered_by_first_choices")
        return {
            **{"document_id": self.document, "title": self.title, "group": self.group, "collection": self.collection},
            **{"side": self.side, "characters": self.characters, "prefix_tokens": 50, "suffix_tokens": 50},
            **{"stride": "coarse-to-fine", "windows": len(self.windows), "reproduced": self.reproduced},
            "reason": None if searched else "it is shorter than a window",
            "set_apart": sum(one.set_apart is not None for one in self.windows),
            "predictable": sum(one.set_apart == "predictable" for one in self.windows),
            "likely_anyway": sum(one.set_apart == "likely anyway" for one in self.windows),
            **{name: share if searched else None for name, share in zip(names, self.covered, strict=True)},
            "covered_set_apart": 0.02 if searched else None,
            "longest_run": self.longest_run,
            "longest_run_words": self.longest_run // 6,
            "log_p": None if strongest is None else math.log(strongest),
            "claim": ("reproduced" if self.reproduced else "not reproduced") if searched else None,
            **{"windows_compared": len(self.windows) if tested else None, "n_held_out": held_out if tested else None},
            **{"p_value": 1 / (held_out + 1) if tested else None, "q_bh": self.q_bh},
            "grid_settings": None if self.grid_p is None else 3,
            **{"grid_p_value": self.grid_p, "grid_q_bh": self.grid_p},
        }


def window_row(document: str, window: Window) -> Row:
    """As EXTRACTION_WINDOWS, but for model, benchmark and run."""
    log_p = math.log(window.p)
    return {
        **{"document_id": document, "start": window.begin - 100, "suffix_begin": window.begin},
        **{"suffix_end": window.end, "tokens": 50, "log_p": log_p, "log_p_top_40": log_p, "outside_top_40": 0},
        **{"first_choices": window.matches, "is_coarse": True, "set_apart": window.set_apart},
        "reference_log_p": None if window.reference is None else math.log(window.reference),
        "prior_log_p": None if window.prior is None else math.log(window.prior),
        **{"strength": window.strength, "prefix_excerpt": window.prefix},
        **{"suffix_pieces": window.pieces, "first_choice_pieces": window.first_choices},
        **{"given_text": window.given, "place": window.place},
        **{"suffix_words": window.words, "words_in_common": window.in_common},
    }


def grid_row(
    document: str,
    side: Side,
    prefix: int,
    suffix: int,
    p: float,
    *,
    temperature: float = 1.0,
    drawn_from: str = "top-k 40",
    is_named: bool = False,
) -> Row:
    """As EXTRACTION_GRID, but for model, benchmark and run: two places, of which the likelier has ``p``."""
    return {
        **{"document_id": document, "side": side, "prefix_tokens": prefix, "suffix_tokens": suffix},
        **{"temperature": temperature, "drawn_from": drawn_from, "is_named": is_named, "places": 2},
        **{"reached": int(p >= 0.001), "log_p": math.log(p), "start": 0},
    }


def rate_row(unit: str, name: str, side: Side, threshold: float | None, n_reached: int, documents: int) -> Row:
    """As EXTRACTION_RATES, but for model, benchmark and run: an interval of ten percent on either side."""
    share = n_reached / documents
    interval = {"reached_low": max(0.0, share - 0.1), "reached_high": min(1.0, share + 0.1)}
    return {
        **{"unit": unit, "name": name, "side": side, "threshold": threshold},
        "rule": "first_choices" if threshold is None else "probability",
        **{"n_documents": documents, "characters": 1000 * documents, "covered": share / 10},
        **{"covered_low": share / 20, "covered_high": share / 5, "n_reached": n_reached, "reached": share, **interval},
        "median_log_p": math.log(0.001) * (1 + documents - n_reached),
    }


def write_extraction(
    folder: Folder,
    pair: Pair,
    run_id: str,
    at: datetime,
    found: Sequence[Extracted],
    more: Sequence[Row] = (),
    grid: Sequence[Row] = (),
    **lineage: object,
) -> None:
    """One run's rows of the tables; the rates are those of all documents of a side, and ``more``."""
    from tests.warehouse.decided import write_rows

    held_out = sum(one.side == "held_out" for one in found)
    windows = [window_row(one.document, window) for one in found for window in one.windows]
    rates = list(more)
    sides: tuple[Side, ...] = ("audited", "held_out")
    for side in sides:
        searched = [one for one in found if one.side == side and one.windows]
        for place, threshold in enumerate((0.001, 0.01, 0.1, 0.5, None)) if searched else ():
            reached = sum(one.covered[place] > 0 for one in searched)
            rates.append(rate_row("benchmark", pair.benchmark, side, threshold, reached, len(searched)))
    for table, rows in (
        ("extraction_windows", windows),
        ("extraction_rates", rates),
        ("document_memorisation", [one.row(held_out) for one in found]),
        *([("extraction_grid", grid)] if grid else []),
    ):
        of_table = {"asset_key": "extraction", "settings": SEARCHED, **lineage}
        if table == "extraction_grid":
            of_table["settings"] = canonical_json({**json.loads(str(of_table["settings"])), "grid": True})
        write_rows(folder, table, pair, run_id, at, rows, **of_table)


SEARCHED = canonical_json({"prefix": 50, "suffix": 50, "stride": "coarse-to-fine"})
"""The settings of a search in its lineage."""


def write_plan(
    folder: Folder,
    pair: Pair,
    run_id: str,
    at: datetime,
    *,
    authority: str | None = None,
    timestamped_at: datetime | None = None,
    **changes: object,
) -> str:
    """Seal a plan that what the folder writes keeps to, but for ``changes`` (null: left out); its sha256."""
    from tests.warehouse.decided import write_rows

    plan = canonical_json(
        {
            **{"benchmark": pair.benchmark, "model": pair.model, "benchmark_digest": digest(pair.benchmark)},
            **{"model_fingerprint": MODELS[pair.model], "tokenizer_fingerprint": "t" * 40},
            **{"texts": [], "held_out": [], "threshold": 0.001, "alpha": 0.05, "seeds": {}, "code_digest": "c"},
            **{"extraction": {"prefix": 50, "suffix": 50, "stride": "coarse-to-fine"}, "headline": None},
            **{"detectors": [], "code_versions": {"document_memorisation": "1", "scores": "1", "evaluations": "1"}},
            "package_versions": {"torch": "2.13.0", "transformers": "5.23.0", "corpus-audit": "0.1.0"},
            **{"lineage_head": None, "texts_in_cache": 0, "rows_forgotten": 0},
            **changes,
        }
    )
    row = {
        **{"plan": plan, "plan_sha256": text_sha256(plan), "sealed_at": at, "timestamped_at": timestamped_at},
        **{"timestamp": None if timestamped_at is None else "AA==", "authority": authority},
    }
    write_rows(folder, "plans", pair, run_id, at, [row], asset_key="plans")
    return text_sha256(plan)
