"""Rows of every table of findings on the audited folder, and lineage from each evaluation back to the documents."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from made_data_folder import (
    BENCHMARKS,
    CONTROLS,
    DAY,
    MODELS,
    Folder,
    describe_versions,
    make_grid_row,
    make_searched,
    make_window,
)

from audit_pipeline.tables import Pair

from .chats import answer_row, document_row, write_asking

Row = Mapping[str, Any]

OLD_MODEL, NEW_MODEL = MODELS
OF_PAIR = f"WHERE benchmark = 'notes_32' AND model = '{OLD_MODEL}'"
DETECTORS = (("min_k_plus_plus", '{"k":0.2}'), ("min_k", '{"k":0.2}'), ("loss", "{}"))


def write_audited(folder: Folder) -> None:
    """Write two models on two benchmarks. The first pair is audited twice."""
    for source, _ in BENCHMARKS.values():
        folder.write_documents(source)
    for benchmark in BENCHMARKS:
        folder.write_examples(benchmark)
        folder.write_split_quality(benchmark, CONTROLS[benchmark])
    for position, model in enumerate(MODELS):
        folder.write_card(model)
        folder.write_token_statistics(model, ["one two three", "four five"])
        for benchmark in BENCHMARKS:
            folder.write_audit(benchmark, model, f"run-{position}-{benchmark}", DAY + timedelta(hours=position))
    folder.write_audit("notes_32", OLD_MODEL, "again-notes", DAY + timedelta(days=1), signal=1.0)


def write_findings(folder: Folder, benchmark: str, model: str, run_id: str, finished: datetime) -> None:
    """Write one run's rows of every table of findings, about the groups and collections of the examples."""
    examples = folder.examples[benchmark]
    groups = sorted({(row["group"], row["collection"], row["label"]) for row in examples})
    n = len(groups)
    units = [("group", group) for group, _, _ in groups]
    units += [("collection", name) for name in sorted({collection for _, collection, _ in groups})]
    units.append(("benchmark", benchmark))
    tables: dict[str, list[Row]] = {"decisions": [], "group_tests": [], "contamination_rates": []}
    tables["calibration_checks"] = []
    for detector, parameters in DETECTORS:
        setting = {"detector": detector, "parameters": parameters}
        rule = {**setting, "rule": "marginal", "alpha": 0.05}
        counts = {"n_calibration_groups": n, "n_calibration_nonmembers": 6, "n_calibration_members": 6}
        counts |= {"n_nonmembers": 24, "n_members": 24}
        rates = {"fpr": 0.04, "fpr_low": 0.01, "fpr_high": 0.1, "tpr": 0.3, "tpr_low": 0.2, "tpr_high": 0.4}
        tables["decisions"].append({**rule, **counts, **rates, "threshold": 1.5})
        too_few = {"status": "refused", "reason": "59 calibration groups are needed for 5%, there are 12"}
        tables["decisions"].append({**rule, **counts, **too_few, "rule": "certified"})
        for place, (group, collection, label) in enumerate(groups, start=1):
            q_values = {"q_bh": min(1.0, 0.03 * place), "q_by": min(1.0, 0.05 * place), "q_ledger": 1.0}
            counts = {"n_texts": 5, "n_compared": 5, "n_calibration_groups": n, "n_tests": n, "n_ledger": 2 * n}
            test = {**setting, "group": group, "collection": collection, "label": label, "p_value": place / (n + 1)}
            tables["group_tests"].append({**test, **q_values, **counts})
        flagged = {"flagged": 0.2, "flagged_low": 0.05, "flagged_high": 0.5, "n_texts": 5, "n_groups": 1}
        refused = {"status": "refused", "reason": "no calibration members", "fpr": 0.05}
        for unit, name in units:
            tables["contamination_rates"].append({**rule, **flagged, **refused, "unit": unit, "name": name})
        check = {"splits": 200, "n_groups": n, "mean_fpr": 0.048, "standard_error": 0.002, "over_alpha": 0.4}
        refused_check = {**rule, "alpha": 0.01, "splits": 200, "n_groups": n, "reason": "too few groups"}
        tables["calibration_checks"] += [{**rule, **check}, refused_check]
    loss = {"detector": "loss", "parameters": "{}"}
    compared = {**loss, "n_members": 24, "n_nonmembers": 24, "n_groups": 12, "other_parameters": "{}"}
    compared |= {"difference": 0.04, "ci_low": 0.01, "ci_high": 0.07}
    tables["comparisons"] = [
        {**compared, "other": "min_k", "other_parameters": '{"k":0.2}', "standard_error": 0.0113, "p_value": 0.004},
        {**compared, "other": "zlib"},
        {**compared, "other": "blind_control"},
    ]
    tables["corpus_tests"] = [{"p_value": 0.2, "statistic": 1.0, "n": 24, "n_held_out": 24, "detectable_auroc": 0.69}]
    tables["twins"] = [{**loss, "items": 24, "others": 48, "superiority": 0.5, "p_value": 0.5}]
    tokens = {"pieces": ["=made", " up"], "token_scores": [-1.0, 2.5], "counted": [True, False], "n_tokens": 40}
    tables["highlights"] = [{**loss, **tokens, "example_id": examples[0]["example_id"], "place": 1, "score": 2.5}]
    pair = Pair(benchmark, model)
    for table, rows in tables.items():
        folder.write_rows(table, pair, run_id, finished, rows)


def write_decided(folder: Folder, benchmark: str, model: str, run_id: str, finished: datetime) -> None:
    """Write one run's findings, a search for passages, and answers of a chat model."""
    write_findings(folder, benchmark, model, run_id, finished)
    pair = Pair(benchmark, model)
    pieces = {"prefix_excerpt": "made up", "suffix_pieces": (" up",), "first_choice_pieces": (" up",)}
    first = make_window(100, 200, 0.25, strength=1, **pieces)
    vain = make_window(100, 200, 1e-30, strength=1)
    documents = [
        make_searched("notes:1", first, covered=(0.1, 0.1, 0.1, 0, 0), title="First", q_bh=0.5, longest_run=100),
        make_searched("notes:2", vain, title="Second", q_bh=1.0),
        make_searched("notes:3", vain, title="Third", side="held_out"),
    ]
    grid = [make_grid_row("notes:1", "audited", 50, 50, 0.25, is_named=True)]
    folder.write_search(pair, run_id, finished, documents, grid=grid)
    write_asking(folder, [answer_row("notes:1")], [document_row("notes:1")], pair=pair, run_id=run_id, at=finished)


def write_chain(
    folder: Folder, benchmark: str, model: str, run_id: str, finished: datetime, **evaluation: object
) -> None:
    """Write ledger entries of one audit that name each other by data versions, from documents to evaluation.

    ``evaluation`` replaces columns of the evaluation's entry.
    """
    source, _ = BENCHMARKS[benchmark]
    pair = Pair(benchmark, model)
    versions = describe_versions(pair)
    folder.write_lineage("documents", source, "run-docs", DAY, data_version="d1", upstream={})
    made = {"benchmark_digest": versions["benchmark_digest"], "data_version": "e1"}
    inputs = {f"documents/{source}": "d1", "file.csv": "f1"}
    folder.write_lineage("examples", benchmark, "run-examples", DAY + timedelta(minutes=1), **made, upstream=inputs)
    read = {f"examples/{benchmark}": "e1"}
    for table, minutes, version, more in (
        ("token_statistics", 8, "t1", {"reference_model/tiny": "r1"}),
        ("scores", 4, f"s-{run_id}", {}),
        ("evaluations", 0, f"v-{run_id}", {}),
    ):
        columns = {**versions, "data_version": version, "upstream": read}
        if table == "evaluations":
            columns |= evaluation
        folder.write_lineage(table, pair.partition, run_id, finished - timedelta(minutes=minutes), **columns)
        read = {**read, f"{table}/{pair.partition}": version, **more}


def write_all_decisions(folder: Folder) -> None:
    """Write all rows of this module for every pair of the audited folder, and twice for the first pair."""
    for benchmark in BENCHMARKS:
        for position, model in enumerate(MODELS):
            run_id, finished = f"run-{position}-{benchmark}", DAY + timedelta(hours=position)
            write_decided(folder, benchmark, model, run_id, finished)
            write_chain(folder, benchmark, model, run_id, finished)
    texts = [row["text"] for row in folder.examples["speeches_64"]]
    folder.write_token_statistics(NEW_MODEL, texts, part="part-of-speeches")
    write_decided(folder, "notes_32", OLD_MODEL, "again-notes", DAY + timedelta(days=1))
    write_chain(folder, "notes_32", OLD_MODEL, "again-notes", DAY + timedelta(days=1), code_version="2")
