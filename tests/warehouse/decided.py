"""A data folder in which every table has rows: two models of known release dates, two builds, two audits, a chain of
lineage that joins from evaluation to documents.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from made_rows import make_table

from audit_pipeline.pipeline.registry import build_warehouse
from audit_pipeline.store.files import write_table
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import TABLES, Pair, digest
from audit_pipeline.warehouse.query import query_warehouse

from .chats import answer_row, document_row, write_asking
from .conftest import BENCHMARKS, DAY, MODELS, Folder
from .extracted import Extracted, Window, grid_row, write_extraction

Row = Mapping[str, object]

OLD_MODEL, NEW_MODEL = MODELS
OF_PAIR = f"WHERE benchmark = 'notes_32' AND model = '{OLD_MODEL}'"
DETECTORS = (("loss", "{}"), ("min_k", '{"k":0.2}'))
ALPHA = 0.05


def write_decided(folder: Folder, benchmark: str, model: str, run_id: str, finished: datetime) -> None:
    """One run's rows of every table of decisions; the groups and collections are those of the examples."""
    examples = folder.examples[benchmark]
    groups = sorted({(str(row["group"]), str(row["collection"]), int(str(row["label"]))) for row in examples})
    settings = [{"detector": detector, "parameters": setting} for detector, setting in DETECTORS]
    n = len(groups)
    tests: list[Row] = [
        {
            **{**setting, "is_default": True, "group": group, "collection": collection, "label": label},
            **{"n_texts": 5, "n_compared": 5, "statistic": 0.5, "p_value": (place + 1) / (n + 1)},
            **{"q_bh": min(1.0, 0.03 * (place + 1)), "q_by": min(1.0, 0.05 * (place + 1)), "q_ledger": 1.0},
            **{"n_calibration_groups": n, "n_tests": n, "n_ledger": 2 * n},
        }
        for setting in settings
        for place, (group, collection, label) in enumerate(groups)
    ]
    units = [
        *(("group", group) for group, _, _ in groups),
        *(("collection", name) for name in sorted({collection for _, collection, _ in groups})),
        ("benchmark", benchmark),
    ]
    rates: list[Row] = [
        {
            **{**setting, "is_default": True, "unit": unit, "name": name, "rule": "marginal", "alpha": ALPHA},
            **{"n_texts": 5, "n_groups": 1, "n_flagged": 1, "flagged": 0.2, "flagged_low": 0.05, "flagged_high": 0.5},
            **{"fpr": 0.05, "fpr_low": 0.02, "fpr_high": 0.1, "status": "refused", "reason": "no calibration members"},
        }
        for setting in settings
        for unit, name in units
    ]
    decisions: list[Row] = [
        {
            **{**setting, "is_default": True, "rule": "marginal", "alpha": ALPHA, "threshold": 1.5},
            **{"n_calibration_groups": n, "n_calibration_nonmembers": 6, "n_calibration_members": 6},
            **{"n_nonmembers": 24, "fpr": 0.04, "fpr_low": 0.01, "fpr_high": 0.1},
            **{"n_members": 24, "tpr": 0.3, "tpr_low": 0.2, "tpr_high": 0.4},
        }
        for setting in settings
    ]
    comparisons: list[Row] = [
        {
            **{**settings[0], "other": other, "other_parameters": parameters},
            **{"n_members": 24, "n_nonmembers": 24, "n_groups": 12, "difference": 0.04, "standard_error": error},
            **{"ci_low": 0.01, "ci_high": 0.07, "p_value": p_value},
        }
        for other, parameters, error, p_value in (("min_k", '{"k":0.2}', 0.0113, 0.004), ("zlib", "{}", None, None))
    ]
    checks: list[Row] = [
        {
            **{**setting, "rule": "marginal", "alpha": ALPHA, "splits": 200, "n_groups": n},
            **{"mean_fpr": 0.048, "standard_error": 0.002, "over_alpha": 0.4},
        }
        for setting in settings
    ]
    corpus: list[Row] = [{"p_value": 0.2, "statistic": 1.0, "n": 24, "n_held_out": 24, "detectable_auroc": 0.69}]
    twins: list[Row] = [{**settings[0], "items": 24, "others": 48, "superiority": 0.5, "p_value": 0.5}]
    highlights: list[Row] = [
        {
            **{**settings[0], "example_id": examples[0]["example_id"], "place": 1, "score": 2.5},
            **{"pieces": ["=made", " up"], "token_scores": [-1.0, 2.5], "counted": [True, False], "n_tokens": 40},
        }
    ]
    pair = Pair(benchmark, model)
    first = Window(100, 200, 0.25, strength=1, prefix="made up", pieces=(" up",), first_choices=(" up",))
    write_extraction(
        folder,
        pair,
        run_id,
        finished,
        [
            Extracted("notes:1", [first], (0.1, 0.1, 0.1, 0.0, 0.0), title="First", q_bh=0.5, longest_run=100),
            Extracted("notes:2", [Window(100, 200, 1e-30, strength=1)], title="Second", q_bh=1.0),
            Extracted("notes:3", [Window(100, 200, 1e-9, strength=1)], title="Third", side="held_out"),
        ],
        grid=[grid_row("notes:1", "audited", 50, 50, 0.25, is_named=True)],
    )
    write_asking(folder, [answer_row("notes:1")], [document_row("notes:1")], pair=pair, run_id=run_id, at=finished)
    for name, rows in (
        ("decisions", decisions),
        ("group_tests", tests),
        ("contamination_rates", rates),
        ("comparisons", comparisons),
        ("calibration_checks", checks),
        ("corpus_tests", corpus),
        ("highlights", highlights),
        ("twins", twins),
    ):
        write_rows(folder, name, pair, run_id, finished, rows)


def write_rows(
    folder: Folder, table: str, pair: Pair, run_id: str, finished: datetime, rows: Sequence[Row], **lineage: object
) -> None:
    """A run's file of one table, be it empty, with its lineage entry; of the rows only what matters is given."""
    of_run = {"model": pair.model, "benchmark": pair.benchmark, "run_id": run_id}
    rows = [{**of_run, **row} for row in rows]
    write_table(folder.paths.run_file(table, pair.partition, run_id), make_table(TABLES[table], rows))
    columns_of_lineage = {
        "model_fingerprint": MODELS[pair.model],
        "tokenizer_fingerprint": "t" * 40,
        "benchmark_digest": digest(pair.benchmark),
        "asset_key": "evaluations",
        **lineage,
    }
    folder.write_lineage(table, pair.partition, run_id, finished, **columns_of_lineage)


def write_chain(
    folder: Folder, benchmark: str, model: str, run_id: str, finished: datetime, **evaluation: object
) -> None:
    """Lineage entries of one audit that name each other by data versions: documents to evaluation.

    The documents and examples are those of the folder; ``evaluation`` replaces columns of the evaluation's entry.
    """
    source, _ = BENCHMARKS[benchmark]
    pair = Pair(benchmark, model).partition
    documents, examples = f"documents/{source}", f"examples/{benchmark}"
    made = {"benchmark_digest": digest(benchmark)}
    of_model = {**made, "model_fingerprint": MODELS[model], "tokenizer_fingerprint": "t" * 40}
    folder.write_lineage("documents", source, "run-docs", DAY, data_version="d1", upstream={})
    folder.write_lineage(
        "examples",
        benchmark,
        "run-examples",
        DAY + timedelta(minutes=1),
        **{**made, "data_version": "e1", "upstream": {documents: "d1", "file.csv": "f1"}},
    )
    read = {examples: "e1"}
    folder.write_lineage(
        "token_statistics",
        pair,
        run_id,
        finished - timedelta(minutes=8),
        **{**of_model, "data_version": "t1", "upstream": read},
    )
    read |= {f"token_statistics/{pair}": "t1", "reference_model/tiny": "r1"}
    folder.write_lineage(
        "scores",
        pair,
        run_id,
        finished - timedelta(minutes=4),
        **{**of_model, "data_version": f"s-{run_id}", "upstream": read},
    )
    read |= {f"scores/{pair}": f"s-{run_id}"}
    folder.write_lineage(
        "evaluations",
        pair,
        run_id,
        finished,
        **{**of_model, "data_version": f"v-{run_id}", "upstream": read, **evaluation},
    )


def decided_copy(audited: Folder, root: Path) -> Folder:
    """A built warehouse over a copy of the audited folder with all rows of this module, for tests that only read it."""
    shutil.copytree(audited.paths.root, root)
    examples = {name: [dict(row) for row in rows] for name, rows in audited.examples.items()}
    folder = decide(Folder(DataPaths(root), examples=examples))
    build_warehouse(folder.paths)
    return folder


def decide(folder: Folder) -> Folder:
    """All rows of this module on the audited folder of conftest: every latest run decides, the first pair twice."""
    for benchmark in BENCHMARKS:
        for position, model in enumerate(MODELS):
            run_id, finished = f"run-{position}-{benchmark}", DAY + timedelta(hours=position)
            write_decided(folder, benchmark, model, run_id, finished)
            write_chain(folder, benchmark, model, run_id, finished)
    texts = [str(row["text"]) for row in folder.examples["speeches_64"]]
    folder.write_token_statistics(NEW_MODEL, texts, part="part-of-speeches")
    write_decided(folder, "notes_32", OLD_MODEL, "again-notes", DAY + timedelta(days=1))
    write_chain(folder, "notes_32", OLD_MODEL, "again-notes", DAY + timedelta(days=1), code_version="2")
    return folder


def told(paths: DataPaths, sql: str) -> list[tuple[Any, ...]]:
    """The rows that a statement yields on the warehouse."""
    return [tuple(row.values()) for row in query_warehouse(paths.warehouse, sql).to_pylist()]
