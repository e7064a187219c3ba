"""What the UI shows of documents, benchmarks, and the quality of their splits: a few numbers, small tables.

What belongs here: choosing and rounding them. What does not: the numbers themselves (sources/, benchmarks/,
separability/), and Dagster's own types (operate/dagster/metadata.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from audit_pipeline.benchmarks.build import BenchmarkReport
from audit_pipeline.metrics.claims import VERDICT_IN_WORDS
from audit_pipeline.operate.shown import Body, Shown
from audit_pipeline.operate.stages.benchmarks import SplitReport
from audit_pipeline.separability.assessed import MEASURE
from audit_pipeline.sources.store import SourceReport

_LEFT_OUT = 50
_PLOTTED = {
    "near-duplicate pairs between the sides": "near_duplicate_pairs_between",
    "7-gram overlap, mean": "overlap_7_mean",
    "13-gram overlap, mean": "overlap_13_mean",
}
_OF_SIDES = {"texts", "groups", "uneven_collections", "ngram_overlap_mean", "near_duplicate_pairs", "language_mismatch"}

Rows = Iterable[Mapping[str, Any]]


def shown_of_documents(report: SourceReport) -> Shown:
    """Of a fetch: how many documents of each collection there are, and how much did not arrive."""
    kept = [(name, count, report.kept.get(name, 0)) for name, count in report.by_collection.items()]
    return Shown(
        report.documents,
        {"missing parts": len(report.missing), "left out": len(report.left_out)},
        {"documents": (("collection", "documents", "kept from earlier"), kept)},
        paths={"path": report.path},
    )


def shown_of_missing(report: SourceReport) -> Shown:
    """Of a fetch: what did not arrive, and what was left out, with the reasons."""
    missing = [(item.part, item.reason) for item in report.missing]
    left_out = [(item.part, item.reason) for item in report.left_out[:_LEFT_OUT]]
    return Shown(tables={"missing": (("part", "reason"), missing), "left out": (("part", "reason"), left_out)})


def shown_of_build(report: BenchmarkReport) -> Shown:
    """Of a build: how many texts of each kind there are, and what was left out."""
    counts = report.counts
    left_out = {**report.documents_left_out, **report.texts_left_out}
    by_collection = [(name, side["members"], side["nonmembers"]) for name, side in counts["by_collection"].items()]
    return Shown(
        report.examples.num_rows,
        {
            "members": counts["members"],
            "non-members": counts["nonmembers"],
            "groups": counts["groups"],
            "skipped rows": len(report.skipped),
            "digest": report.digest,
        },
        {
            "by collection": (("collection", "members", "non-members"), by_collection),
            "left out": (("reason", "count"), list(left_out.items())),
        },
    )


def shown_of_split(report: SplitReport) -> Shown:
    """Of a split: the verdict, the AUROC of every control (numbers of their own are plotted), and the sides."""
    summary, found = report.quality.summary, report.quality.table.to_pylist()
    controls = [row for row in found if row["measure"] == MEASURE]
    numbers = {f"blind AUROC, {row['part']}": row["value"] for row in controls}
    numbers |= {name: summary[key] for name, key in _PLOTTED.items()}
    values = {
        "verdict": report.quality.verdict,
        "in words": VERDICT_IN_WORDS[report.quality.verdict],
        "worst control": summary["worst_control"] or "none was read",
        **{name: value for name, value in numbers.items() if value is not None},
    }
    tables: dict[str, tuple[tuple[str, ...], Body]] = {
        "blind controls": (("control", "AUROC", "95% interval", "by it alone", "method"), _control_rows(controls)),
        "sides": (("measure", "of", "side", "value"), _side_rows(found)),
    }
    achieved = report.benchmark.matched
    if achieved:
        tables["matched sides"] = (("texts", "blind AUROC", "95% interval", "n"), _matched_rows(achieved["achieved"]))
    return Shown(len(found), values, tables)


def _control_rows(controls: Rows) -> Body:
    return [(row["part"], *_with_interval(row, "value"), row["verdict"] or "–", row["method"]) for row in controls]


def _side_rows(found: Rows) -> Body:
    return [
        (row["measure"].replace("_", " "), row["part"], row["side"], _number(row["value"]))
        for row in found
        if row["measure"] in _OF_SIDES
    ]


def _matched_rows(achieved: Mapping[str, Mapping[str, Any]]) -> Body:
    return [(name.replace("_", " "), *_with_interval(one, "blind_auroc"), one["n"]) for name, one in achieved.items()]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _with_interval(row: Mapping[str, Any], name: str) -> tuple[str, str]:
    low, high = row["ci_low"], row["ci_high"]
    return _number(row[name]), "–" if low is None else f"{low:.3f} to {high:.3f}"
