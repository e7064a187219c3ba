"""A data folder with every table filled: a shelf of twenty books, and the decisions of a labelled benchmark.

What belongs here: rows as the contracts say, for the tests of the report and for looking at it. What does not: real
texts and real statistics (every word and number here is made up).

    python -m tests.report.made_findings FOLDER    writes the folder, its warehouse and its reports
"""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

from audit_pipeline.statistics.score_columns import HELD_OUT_COMPARISON as AGAINST_HELD_OUT
from audit_pipeline.store.files import read_json, table_from_rows, write_json, write_table
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import EXAMPLES, TABLES, Pair, canonical_json, digest, example_id
from tests.warehouse.conftest import BENCHMARKS, CONTROLS, DAY, MODELS, Folder
from tests.warehouse.extracted import Extracted, Window, rate_row, write_extraction

SHELF = "shelf"
MODEL, OLDER = MODELS
K = canonical_json({"k": 0.2})
ANSWERING = ("min_k_plus_plus", K)
HOSTILE = "<script>alert('book')</script> & \"quotes\" '{{ 7 * 7 }}' $x$"
BOOKS = (
    "The Sea and the Lighthouse",
    "A very long title of a book that goes on and on, " * 5,
    HOSTILE,
    "كتاب البحر والمنارة",
    "海与灯塔之书",
    *(f"Collected letters, volume {number}" for number in range(1, 16)),
)
TEXTS = {
    "كتاب البحر والمنارة": ("ar", "كان البحر هادئا في ذلك الصباح وكانت المنارة تنظر إلى الأفق البعيد بصمت طويل"),
    "海与灯塔之书": ("zh", "那天早晨海面平静，灯塔望着远方的地平线，长久地沉默。渔夫们说风会在傍晚到来。"),
    HOSTILE: ("en", "he wrote <img src=x onerror=alert(1)> and </blockquote><script>alert(2)</script> on the wall"),
}
CALIBRATION_BOOKS = 300
TEXTS_A_BOOK = 6
DETECTORS = ("min_k_plus_plus", "min_k", "loss", "zlib")


def write_rows(folder: Folder, table: str, pair: Pair, run_id: str, rows: Sequence[Mapping[str, object]]) -> None:
    """The rows of one run, and their lineage entry."""
    write_table(folder.paths.run_file(table, pair.partition, run_id), table_from_rows(rows, TABLES[table]))
    folder.write_lineage(
        table,
        pair.partition,
        run_id,
        DAY + timedelta(days=2),
        model_fingerprint=MODELS[pair.model],
        tokenizer_fingerprint="t" * 40,
        benchmark_digest=digest(pair.benchmark),
    )


def write_shelf(folder: Folder, *, held_out: int = CALIBRATION_BOOKS) -> None:
    """Twenty books of which nobody knows, and held-out books in the calibration split."""
    chance = random.Random(5)
    rows: list[dict[str, object]] = []
    for place in range(len(BOOKS) + held_out):
        audited = place < len(BOOKS)
        group = BOOKS[place] if audited else f"held-out {place}"
        language, words = TEXTS.get(group, ("en", ""))
        for part in range(TEXTS_A_BOOK if audited else 1):
            text = f"{words} {folder.words(40)}".strip()
            document = f"shelf:books:{place}"
            side = {"label": None, "split": "evaluation", "collection": "shelf", "published": date(1990, 1, 1)}
            if not audited:
                side = {"label": 0, "split": "calibration", "collection": "held out", "published": date(2026, 1, 1)}
            texts = {"text": text, "context": None, "words": len(text.split()), "language": language, "group": group}
            names = {"example_id": example_id(SHELF, document, f"{place} {part}"), "document_id": document}
            rows.append({"benchmark": SHELF, "run_id": "run-examples", **names, **texts, **side})
    folder.examples[SHELF] = rows
    write_table(folder.paths.examples(SHELF), table_from_rows(rows, EXAMPLES))
    folder.write_lineage("examples", SHELF, "run-examples", DAY, benchmark_digest=digest(SHELF))
    write_json(
        folder.paths.benchmark_manifest(SHELF),
        {
            "benchmark": SHELF,
            "description": f"the publisher's shelf, {len(BOOKS)} books {HOSTILE}",
            "design": "unlabelled",
            "words": 40,
            "digest": digest(SHELF),
            "spec": {"sources": ["local_files"], "seed": 0},
        },
    )
    pair, run = Pair(SHELF, MODEL), "run-shelf"
    scores = [
        {
            **{**of_run(run), **by(detector), "example_id": row["example_id"], "status": "ok", "reason": None},
            "score": chance.gauss(1.6 if row["group"] in BOOKS[:3] else 0.0, 1.0),
        }
        for row in rows
        for detector in DETECTORS
    ]
    write_rows(folder, "scores", pair, run, scores)
    evaluations = [
        evaluation(SHELF, run, detector, metric, value, len(BOOKS) * TEXTS_A_BOOK, held_out, against_held_out=True)
        for detector in DETECTORS
        for metric, value in METRICS.items()
    ]
    evaluations.append(evaluation(SHELF, run, "blind_control", "auroc", 0.97, 120, held_out, against_held_out=True))
    write_rows(folder, "evaluations", pair, run, evaluations)
    write_rows(folder, "group_tests", pair, run, group_tests(run, held_out))
    write_rows(folder, "contamination_rates", pair, run, rates(run))
    write_rows(folder, "decisions", pair, run, decisions(SHELF, run))
    lit = [next(row for row in rows if row["group"] == book) for book in (*BOOKS[2:5], BOOKS[0])]
    write_rows(folder, "highlights", pair, run, [highlight(SHELF, run, place, row) for place, row in enumerate(lit, 1)])


def of_run(run: str, benchmark: str = SHELF) -> dict[str, object]:
    return {"model": MODEL, "benchmark": benchmark, "run_id": run}


def by(detector: str) -> dict[str, object]:
    """A detector at its defaults."""
    return {"detector": detector, "parameters": K if detector.startswith("min_k") else "{}", "is_default": True}


METRICS: Mapping[str, float | None] = {
    "auroc": 0.64,
    "tpr_at_5_fpr": 0.15,
    "tpr_at_1_fpr": 0.07,
    "tpr_at_01_fpr": None,
    "fpr_at_95_tpr": 0.9,
    "auroc_margin": -0.33,
}


def evaluation(
    benchmark: str,
    run: str,
    detector: str,
    metric: str,
    value: float | None,
    n_members: int,
    n_nonmembers: int,
    *,
    against_held_out: bool = False,
    verdict: str = "undetermined",
    level: str = "screening only",
) -> dict[str, object]:
    how = "not resolvable with 300 groups of non-members" if value is None else "95% interval, made up"
    return {
        **{**of_run(run, benchmark), **by(detector), "metric": metric, "value": value},
        **{"n_members": n_members, "n_nonmembers": n_nonmembers, "n_groups": 320, "n_not_scored": 0},
        "ci_low": None if value is None else value - 0.06,
        "ci_high": None if value is None else min(1.0, value + 0.06),
        "method": f"{AGAINST_HELD_OUT}; {how}" if against_held_out else how,
        **{"split_verdict": verdict, "claim_level": level},
    }


def group_tests(run: str, held_out: int) -> list[dict[str, object]]:
    return [
        {
            **{**of_run(run), **by(detector), "group": book, "collection": "shelf", "label": None, "direction": None},
            **{"n_texts": TEXTS_A_BOOK, "n_compared": 1, "n_tests": len(BOOKS), "n_ledger": 2 * len(BOOKS)},
            **{"statistic": 1.7 - place / 10, "p_value": min(1.0, p_value), "q_bh": min(1.0, 2 * p_value)},
            "q_by": 0.024 if place < 3 else min(1.0, 0.2 + place / 20),
            "q_ledger": 0.061 if place < 3 else min(1.0, 0.4 + place / 20),
            **{"n_calibration_groups": held_out, "claim_level": "screening only"},
            "method": "conformal p-value of the mean of one text a book",
        }
        for detector in (ANSWERING[0], "loss")
        for place, book in enumerate(BOOKS)
        for p_value in (max(1, place * place // 2) / (held_out + 1),)
    ]


def rates(run: str) -> list[dict[str, object]]:
    named = [("benchmark", SHELF), ("collection", "shelf"), *(("group", book) for book in BOOKS)]
    return [
        {
            **{**of_run(run), **by(ANSWERING[0]), "unit": unit, "name": name, "rule": rule, "alpha": alpha},
            "n_texts": TEXTS_A_BOOK if unit == "group" else TEXTS_A_BOOK * len(BOOKS),
            **{"n_groups": 1 if unit == "group" else len(BOOKS), "n_flagged": 2, "claim_level": "screening only"},
            "flagged": (share := max(0.02, 0.6 - place / 15)),
            **{"flagged_low": max(0.0, share - 0.15), "flagged_high": min(1.0, share + 0.2)},
            **{"fpr": 0.05, "fpr_low": 0.03, "fpr_high": 0.08, "tpr": 0.6, "tpr_low": 0.5, "tpr_high": 0.7},
            "status": "refused" if place % 4 == 3 else "ok",
            "reason": "no calibration members are named" if place % 4 == 3 else None,
            "corrected": None if place % 4 == 3 else min(1.0, 1.2 * share),
            "corrected_low": None if place % 4 == 3 else max(0.0, share - 0.2),
            "corrected_high": None if place % 4 == 3 else min(1.0, share + 0.35),
            "assumption": "members of the calibration set score as the audited texts would, had they been read",
        }
        for rule, alpha in (("marginal", 0.05), ("certified", 0.01))
        for place, (unit, name) in enumerate(named)
    ]


NEEDS_MORE = "59 calibration groups are needed for 5%, there are 12"


def decisions(benchmark: str, run: str) -> list[dict[str, object]]:
    return [
        {
            **{
                **of_run(run, benchmark),
                **by(detector),
                "rule": rule,
                "alpha": alpha,
                "n_nonmembers": 24,
                "n_members": 24,
            },
            **{"n_calibration_groups": 12, "n_calibration_nonmembers": 12, "n_calibration_members": 12},
            **{"status": "ok", "reason": None, "threshold": 0.8, "fpr": 0.042, "fpr_low": 0.001, "fpr_high": 0.211},
            **{"tpr": 0.25, "tpr_low": 0.098, "tpr_high": 0.467},
            "method": "order statistic of the calibration non-members; Clopper-Pearson",
            **(
                dict.fromkeys(("threshold", "fpr", "fpr_low", "fpr_high", "tpr", "tpr_low", "tpr_high"))
                if refused
                else {}
            ),
            **({"status": "refused", "reason": NEEDS_MORE} if refused else {}),
        }
        for detector in ("loss", "min_k_plus_plus")
        for rule, alpha, refused in (
            ("marginal", 0.05, False),
            ("marginal", 0.01, False),
            ("certified", 0.05, True),
            ("largest_accuracy", None, False),
        )
    ]


def comparisons(benchmark: str, run: str) -> list[dict[str, object]]:
    return [
        {
            **{**of_run(run, benchmark), "detector": "min_k_plus_plus", "parameters": K},
            **{"other": other, "other_parameters": "{}", "n_members": 24, "n_nonmembers": 24, "n_groups": 12},
            **{"difference": difference, "ci_low": difference - 0.06, "ci_high": difference + 0.06},
            **{"standard_error": 0.031, "p_value": 0.0004 if other == "loss" else 0.62},
            "method": "1000 paired resamples of groups",
        }
        for other, difference in (("loss", 0.12), ("zlib", -0.02), ("blind_control", 0.08))
    ]


def calibration_checks(benchmark: str, run: str) -> list[dict[str, object]]:
    return [
        {
            **{**of_run(run, benchmark), "detector": "min_k_plus_plus", "parameters": K},
            **{"rule": rule, "alpha": alpha, "splits": 200, "n_groups": 12},
            "mean_fpr": None if alpha == 0.01 else alpha * 0.9,
            "standard_error": None if alpha == 0.01 else 0.002,
            "over_alpha": None if alpha == 0.01 else 0.37,
            "reason": "too few groups" if alpha == 0.01 else None,
        }
        for rule in ("marginal", "certified")
        for alpha in (0.1, 0.05, 0.01)
    ]


def corpus_tests(run: str) -> list[dict[str, object]]:
    return [
        {
            **{**of_run(run), "test": test, "n": 120, "n_held_out": 300, "detectable_auroc": 0.69},
            "status": "refused" if refused else "ok",
            "reason": "no held-out texts of the same distribution are named" if refused else None,
            "p_value": None if refused else 0.0123,
            "statistic": None if refused else 2.25,
            "assumption": "held-out texts are of the same distribution as the audited ones",
            **{"claim_level": "screening only", "direction": None, "method": "twice the median p-value of ten splits"},
        }
        for test, refused in (("dataset_inference", False), ("twins", False), ("sharded_permutation", True))
    ]


def twins(run: str) -> list[dict[str, object]]:
    """Of all items and of a group without a result."""
    measured = {"superiority": 0.75, "superiority_low": 0.6, "superiority_high": 0.9, "p_value": 0.0123, "reason": None}
    of_group = {**dict.fromkeys(measured), "reason": "no item has a score of every version"}
    counts = {"items": 120, "left_out": 0, "others": 300, "detectable_auroc": 0.69, "method": "sum of ranks"}
    return [
        {**of_run(run), "detector": "loss", "parameters": "{}", "group": group, **counts, **found}
        for group, found in (("", measured), (HOSTILE, of_group))
    ]


def highlight(benchmark: str, run: str, place: int, example: Mapping[str, object]) -> dict[str, object]:
    text = str(example["text"])
    words = list(text) if example["language"] == "zh" else text.split(" ")
    pieces = [
        word if position == 0 or example["language"] == "zh" else f" {word}" for position, word in enumerate(words)
    ]
    pieces = pieces[:50]
    return {
        **{**of_run(run, benchmark), "detector": ANSWERING[0], "parameters": ANSWERING[1]},
        **{"example_id": example["example_id"], "place": place, "score": 2.5 - place / 4},
        "pieces": pieces,
        "token_scores": [((position * 7) % 23 - 15) / 5 for position in range(len(pieces))],
        "counted": [position % 5 == 2 for position in range(len(pieces))],
        "n_tokens": len(pieces) + 12,
    }


def write_everything(folder: Folder) -> None:
    """Two models on two labelled benchmarks and the shelf, every table of the contracts filled."""
    for source in ("notes", "speeches"):
        folder.write_documents(source)
    for benchmark in BENCHMARKS:
        folder.write_examples(benchmark)
        folder.write_split_quality(benchmark, CONTROLS[benchmark])
    for position, model in enumerate(MODELS):
        folder.write_card(model)
        for benchmark in BENCHMARKS:
            folder.write_audit(benchmark, model, f"run-{position}-{benchmark}", DAY + timedelta(hours=position))
    folder.write_audit("notes_32", MODEL, "again-notes", DAY + timedelta(days=1), signal=1.0)
    card = folder.paths.model_card(MODELS[OLDER])
    write_json(card, {**read_json(card), "release_date": "2018-01-01"})
    write_shelf(folder)
    pair, run = Pair("notes_32", MODEL), "again-notes"
    write_rows(folder, "decisions", pair, run, decisions("notes_32", run))
    write_rows(folder, "comparisons", pair, run, comparisons("notes_32", run))
    write_rows(folder, "calibration_checks", pair, run, calibration_checks("notes_32", run))
    write_rows(folder, "corpus_tests", Pair(SHELF, MODEL), "run-corpus", corpus_tests("run-corpus"))
    write_rows(folder, "twins", Pair(SHELF, MODEL), "run-corpus", twins("run-corpus"))
    lit = [row for row in folder.examples["notes_32"] if row["split"] == "evaluation"][:3]
    write_rows(
        folder, "highlights", pair, run, [highlight("notes_32", run, place, row) for place, row in enumerate(lit, 1)]
    )
    write_shelf_extraction(folder)
    folder.write_outcome("speeches_64", "not-<there>", "run-9", DAY + timedelta(days=2), "failed", f"it said {HOSTILE}")


def write_shelf_extraction(folder: Folder) -> None:
    """What the model gives word for word of the shelf's books and of fifteen held-out ones: less and less of each."""
    chance = random.Random(11)
    found: list[Extracted] = []
    for place, book in enumerate((*BOOKS, *("",) * 15)):
        audited = place < len(BOOKS)
        characters = 4000 + 900 * place
        hot = {1140 + 190 * number for number in range(9 - 2 * place)} if audited else set()
        windows = [
            Window(
                begin, begin + 210, chance.uniform(0.002, 0.9) if begin - 250 in hot else 10 ** -chance.uniform(8, 70)
            )
            for begin in range(250, characters - 210, 190)
        ]
        strongest = max(windows, key=lambda one: one.p)
        words = TEXTS.get(book, ("en", "it was the best of times and the worst of times in the house by the sea"))[1]
        tokens = list(words[:60]) if " " not in words else [f" {word}" for word in words.split()[:20]]
        windows[windows.index(strongest)] = replace(
            strongest,
            **{"strength": 1, "prefix": folder.words(20), "pieces": tuple(tokens), "matches": 50 - 2 * place % 40},
            first_choices=tuple(
                token if number % (place % 7 + 3) else " something" for number, token in enumerate(tokens)
            ),
        )
        windows[3:5] = [replace(one, p=0.4, set_apart="predictable") for one in windows[3:5]]
        share = sum(one.p >= 0.001 and one.set_apart is None for one in windows) * 190 / characters
        found.append(
            Extracted(
                f"shelf:books:{place}",
                windows,
                (share, share / 2, share / 4, share / 9, share / 3),
                **{"characters": characters, "title": book or f"A book of the year after, number {place}"},
                **{"side": "audited" if audited else "held_out", "collection": "shelf" if audited else "held out"},
                group=book or f"held-out {place}",
                **{"longest_run": int(share * characters), "q_bh": min(1.0, 0.06 * (place + 1)) if audited else None},
            )
        )
    found.append(Extracted("shelf:books:90", [], characters=90, title="A leaflet"))
    rates = [
        rate_row("collection", name, side, threshold, reached, documents)
        for name, side, reached, documents in (("shelf", "audited", 4, 20), ("held out", "held_out", 0, 15))
        for threshold in (0.001, 0.01, 0.1, 0.5, None)
    ]
    write_extraction(folder, Pair(SHELF, MODEL), "run-extraction", DAY + timedelta(days=2), found, rates)


def make(root: Path) -> Path:
    """Write folder, warehouse and reports for looking at; the folder of the reports."""
    from audit_pipeline.pipeline.registry import build_warehouse
    from audit_pipeline.report.files import build_reports

    paths = DataPaths(root)
    write_everything(Folder(paths))
    build_warehouse(paths)
    build_reports(paths.warehouse, paths.reports)
    return paths.reports


if __name__ == "__main__":
    print(make(Path(sys.argv[1])))
