"""A data folder with rows in every table: a shelf of twenty books, and findings of two labelled benchmarks.

All texts and numbers are made up.
"""

from __future__ import annotations

import random
from datetime import date, timedelta
from typing import Any

from made_data_folder import (
    DAY,
    MODELS,
    Folder,
    Row,
    Searched,
    make_rate,
    make_searched,
    make_window,
)

from audit_pipeline.statistics.score_columns import HELD_OUT_COMPARISON as AGAINST_HELD_OUT
from audit_pipeline.tables import Pair, canonical_json, example_id
from tests.warehouse.decided import write_audited, write_findings

SHELF = "shelf"
MODEL, OLDER = MODELS
SHELF_PAIR, NOTES_PAIR = Pair(SHELF, MODEL), Pair("notes_32", MODEL)
LATER = DAY + timedelta(days=2)
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
METRICS = {"auroc": 0.64, "tpr_at_5_fpr": 0.15, "tpr_at_1_fpr": 0.07, "tpr_at_01_fpr": None, "auroc_margin": -0.33}


def at_defaults(detector: str) -> dict[str, Any]:
    return {"detector": detector, "parameters": canonical_json({"k": 0.2}) if detector.startswith("min_k") else "{}"}


MIN_K_PLUS_PLUS = at_defaults("min_k_plus_plus")


def write_shelf(folder: Folder, *, held_out: int = CALIBRATION_BOOKS) -> None:
    """Write twenty books of unknown membership, held-out books in the calibration split, and their findings."""
    chance = random.Random(5)
    rows: list[dict[str, Any]] = []
    for place in range(len(BOOKS) + held_out):
        audited = place < len(BOOKS)
        group = BOOKS[place] if audited else f"held-out {place}"
        language, words = TEXTS.get(group, ("en", ""))
        document = f"shelf:books:{place}"
        side: Row = {"split": "evaluation", "collection": "shelf", "published": date(1990, 1, 1)}
        if not audited:
            side = {"split": "calibration", "label": 0, "collection": "held out", "published": date(2026, 1, 1)}
        for part in range(TEXTS_A_BOOK if audited else 1):
            names = {"example_id": example_id(SHELF, document, f"{place} {part}"), "document_id": document}
            text = f"{words} {folder.words(40)}".strip()
            texts = {"text": text, "words": len(text.split()), "language": language, "group": group, "label": None}
            rows.append({"benchmark": SHELF, "run_id": "run-examples", **names, **texts, **side})
    described = f"the publisher's shelf, {len(BOOKS)} books {HOSTILE}"
    spec = {"sources": ["local_files"], "seed": 0}
    folder.write_benchmark(SHELF, rows, "run-examples", description=described, design="unlabelled", words=40, spec=spec)
    scores: list[Row] = []
    for row in rows:
        shift = 1.6 if row["group"] in BOOKS[:3] else 0.0
        for detector in DETECTORS:
            score = {"example_id": row["example_id"], "score": chance.gauss(shift, 1.0)}
            scores.append({**at_defaults(detector), **score})
    evaluations = [evaluation("blind_control", "auroc", 0.97, against_held_out=held_out)]
    for detector in DETECTORS:
        evaluations += [
            evaluation(detector, metric, value, against_held_out=held_out) for metric, value in METRICS.items()
        ]
    lit = [next(row for row in rows if row["group"] == book) for book in (*BOOKS[2:5], BOOKS[0])]
    for table, found in (
        ("scores", scores),
        ("evaluations", evaluations),
        ("group_tests", group_tests(held_out)),
        ("contamination_rates", rates()),
        ("highlights", highlights(lit)),
    ):
        folder.write_rows(table, SHELF_PAIR, "run-shelf", LATER, found)


def evaluation(
    detector: str, metric: str, value: float | None, n: int = 24, *, verdict: str = "", against_held_out: int = 0
) -> Row:
    """Return a metric of a detector on ``n`` texts per side, or on the shelf against this number of held-out books."""
    row = {**at_defaults(detector), "metric": metric, "value": value, "n_groups": 320, "n_members": n}
    row |= {"n_nonmembers": n, "split_verdict": verdict or "undetermined", "method": "95% interval, made up"}
    if value is None:
        row["method"] = "not resolvable with 300 groups of non-members"
    else:
        row |= {"ci_low": value - 0.06, "ci_high": min(1.0, value + 0.06)}
    if against_held_out:
        row |= {"n_members": len(BOOKS) * TEXTS_A_BOOK, "n_nonmembers": against_held_out}
        row["method"] = f"{AGAINST_HELD_OUT}; {row['method']}"
    return row


def group_tests(held_out: int) -> list[dict[str, Any]]:
    """Return the tests of all books by two detectors. Four books stand out."""
    rows: list[dict[str, Any]] = []
    for detector in ("min_k_plus_plus", "loss"):
        for place, book in enumerate(BOOKS):
            p_value = max(1, place * place // 2) / (held_out + 1)
            row = {**at_defaults(detector), "group": book, "collection": "shelf", "statistic": 1.7 - place / 10}
            row |= {"p_value": min(1.0, p_value), "q_bh": min(1.0, 2 * p_value)}
            row["q_by"] = 0.024 if place < 3 else min(1.0, 0.2 + place / 20)
            row["q_ledger"] = 0.061 if place < 3 else min(1.0, 0.4 + place / 20)
            row |= {"n_texts": TEXTS_A_BOOK, "n_compared": 1, "n_tests": len(BOOKS), "n_ledger": 2 * len(BOOKS)}
            rows.append({**row, "n_calibration_groups": held_out})
    return rows


def rates() -> list[Row]:
    """Return the flagged shares of the shelf and of its books at two thresholds. Every fourth has no corrected rate."""
    rows: list[Row] = []
    units = [("benchmark", SHELF), ("collection", "shelf"), *(("group", book) for book in BOOKS)]
    fpr = {"fpr": 0.05, "fpr_low": 0.03, "fpr_high": 0.08, "tpr": 0.6, "tpr_low": 0.5, "tpr_high": 0.7}
    for rule, alpha in (("marginal", 0.05), ("certified", 0.01)):
        for place, (unit, name) in enumerate(units):
            flagged = max(0.02, 0.6 - place / 15)
            row = {**MIN_K_PLUS_PLUS, "unit": unit, "name": name, "rule": rule, "alpha": alpha, **fpr}
            row |= {"n_texts": TEXTS_A_BOOK, "n_groups": 1 if unit == "group" else len(BOOKS), "n_flagged": 2}
            row |= {"flagged": flagged, "flagged_low": max(0.0, flagged - 0.15), "flagged_high": flagged + 0.2}
            if place % 4 == 3:
                row |= {"status": "refused", "reason": "no calibration members are named"}
            else:
                row |= {"corrected": min(1.0, 1.2 * flagged), "corrected_low": max(0.0, flagged - 0.2)}
                row["corrected_high"] = min(1.0, flagged + 0.35)
            rows.append(row)
    return rows


def highlights(examples: list[dict[str, Any]]) -> list[Row]:
    """Return the tokens of these examples with their scores."""
    rows: list[Row] = []
    for place, example in enumerate(examples, 1):
        words = list(example["text"]) if example["language"] == "zh" else example["text"].split(" ")
        blank = "" if example["language"] == "zh" else " "
        pieces = [f"{blank}{word}" for word in words[:50]]
        pieces[0] = words[0]
        row = {**MIN_K_PLUS_PLUS, "example_id": example["example_id"], "place": place, "score": 2.5 - place / 4}
        row |= {"pieces": pieces, "n_tokens": len(pieces) + 12}
        row["token_scores"] = [((position * 7) % 23 - 15) / 5 for position in range(len(pieces))]
        rows.append({**row, "counted": [position % 5 == 2 for position in range(len(pieces))]})
    return rows


def write_everything(folder: Folder) -> None:
    """Write two models on two labelled benchmarks and the shelf, with rows in every table."""
    write_audited(folder)
    folder.write_card(OLDER, release_date="2018-01-01")
    write_findings(folder, "notes_32", MODEL, "again-notes", LATER)
    write_shelf(folder)
    tested = {"n": 120, "n_held_out": 300, "detectable_auroc": 0.69}
    found = {**tested, "p_value": 0.0123, "statistic": 2.25}
    refused = {**tested, "status": "refused", "reason": "no held-out texts of the same distribution are named"}
    twins = {**at_defaults("loss"), "items": 120, "others": 300, "detectable_auroc": 0.69}
    superiority = {"superiority": 0.75, "superiority_low": 0.6, "superiority_high": 0.9, "p_value": 0.0123}
    corpus_tests = [{**found, "test": "dataset_inference"}, {**found, "test": "twins"}]
    corpus_tests.append({**refused, "test": "sharded_permutation"})
    folder.write_rows("corpus_tests", SHELF_PAIR, "run-corpus", LATER, corpus_tests)
    by_group = [
        {**twins, **superiority, "group": ""},
        {**twins, "group": HOSTILE, "reason": "no item has a score of every version"},
    ]
    folder.write_rows("twins", SHELF_PAIR, "run-corpus", LATER, by_group)
    write_shelf_search(folder)
    folder.write_outcome(Pair("speeches_64", "not-<there>"), "run-9", "failed", f"it said {HOSTILE}")


def write_shelf_search(folder: Folder) -> None:
    """Write a search for passages in the shelf's books, of which less and less is reproduced, and in held-out books."""
    found: list[Searched] = []
    for place, book in enumerate((*BOOKS, *("",) * 15)):
        characters = 4000 + 900 * place
        n_reproduced = max(0, 9 - 2 * place) if book else 0
        words = TEXTS.get(book, ("en", "it was the best of times and the worst of times in the house by the sea"))[1]
        tokens = [f" {word}" for word in words.split()[:20]] if " " in words else list(words[:60])
        first_choices = [token if number % (place % 7 + 3) else " something" for number, token in enumerate(tokens)]
        quoted = {"prefix_excerpt": folder.words(20), "suffix_pieces": tokens, "first_choice_pieces": first_choices}
        strongest = {"strength": 1, "first_choices": 50 - 2 * place % 40, **quoted}
        windows = [make_window(250, 460, 0.9 if n_reproduced else 1e-8, **strongest)]
        for begin in range(440, characters - 210, 190):
            windows.append(
                make_window(begin, begin + 210, 0.5 if len(windows) < n_reproduced else 10.0 ** -(8 + begin // 1000))
            )
        windows[-1] = make_window(characters - 210, characters, 0.4, set_apart="predictable")
        share = n_reproduced * 190 / characters
        columns: Row = {"side": "held_out", "collection": "held out", "group": f"held-out {place}"}
        if book:
            columns = {"group": book, "q_bh": min(1.0, 0.06 * (place + 1))}
        columns = {"title": book or f"A book of the year after, number {place}", "characters": characters, **columns}
        covered = (share, share / 2, share / 4, share / 9, share / 3)
        run = {"longest_run": int(share * characters)}
        found.append(make_searched(f"shelf:books:{place}", *windows, covered=covered, **columns, **run))
    found.append(make_searched("shelf:books:90", characters=90, title="A leaflet"))
    rates: list[Row] = []
    for threshold in (0.001, 0.01, 0.1, 0.5, None):
        rates.append(make_rate("collection", "shelf", "audited", threshold, 4, 20))
        rates.append(make_rate("collection", "held out", "held_out", threshold, 0, 15))
    folder.write_search(SHELF_PAIR, "run-extraction", LATER, found, rates)
