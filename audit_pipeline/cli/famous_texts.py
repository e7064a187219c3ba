"""The third part of the command demo: texts that everybody expects a model to recite.

What belongs here: searching their benchmark, and showing what came of it beside how often their passages stand in what
is installed. What does not: which texts and settings (config/), the search (extraction/), sentences (report/).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from importlib.metadata import distributions
from typing import TYPE_CHECKING, Any

from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.cli.answers import say_conclusions
from audit_pipeline.cli.shared import dagster_definitions, whole_configuration
from audit_pipeline.operate.console import say, show_table, tell, tell_step
from audit_pipeline.operate.requests import Audited
from audit_pipeline.report.numbers import DASH, probability, thousands, yes_or_no

if TYPE_CHECKING:
    from audit_pipeline.benchmarks.spec import BenchmarkSpec
    from audit_pipeline.models.config import ModelEntry

FAMOUS_TEXTS = "famous_texts"
_LICENCES = ("licen", "copying", "notice")
_FOUND = """
SELECT title, p_value, q_bh, document.reproduced > 0 AS is_reproduced, strongest.log_p, log_p_near_verbatim,
    first_choices, strongest.tokens, document.document_id, suffix_begin, suffix_end
FROM current_document_memorisation AS document
JOIN current_extraction_windows AS strongest USING (model, benchmark, document_id)
WHERE model = $model AND benchmark = $benchmark AND side = 'audited' AND strength = 1
ORDER BY strongest.log_p DESC
"""


def search_famous_texts(model: str) -> list[Audited]:
    """Search the famous texts for what the model recites, where that is not done; warehouse and report do not follow
    yet. Nothing where the configuration has no such benchmark."""
    config = whole_configuration()
    specs = [spec for spec in config.benchmarks.values() if spec.family == FAMOUS_TEXTS]
    if not specs:
        tell(f"config/benchmarks.yaml has no benchmark '{FAMOUS_TEXTS}': it is left out")
    from audit_pipeline.models.config import resolve_model

    entry = resolve_model(model, config.models)
    for spec in specs:
        if _is_searched(entry, spec):
            tell_step(f"{model} on {spec.name}: everything is up to date, nothing is run")
        else:
            _search(entry, spec)
    return [Audited(entry, [spec]) for spec in specs]


def _search(entry: ModelEntry, spec: BenchmarkSpec) -> None:
    definitions = dagster_definitions()
    from audit_pipeline.benchmarks.family import ExtractionSettings
    from audit_pipeline.operate.dagster.audit import AuditRequest, extract
    from audit_pipeline.operate.stages.extraction import asked_by

    began = time.monotonic()
    request = AuditRequest(entry.name, [spec], terminal=True, publish=False)
    asked = asked_by(spec.settings.extraction or ExtractionSettings())
    extract(request, asked, definitions, DataPaths.from_environment(), tell_step)
    tell_step(f"searched in {time.monotonic() - began:.0f} s")


def _is_searched(entry: ModelEntry, spec: BenchmarkSpec) -> bool:
    from audit_pipeline.operate.situation import steps_at_a_glance

    steps = steps_at_a_glance(entry, [spec], DataPaths.from_environment(), publish=False)
    return steps is not None and not {"fetch", "build", "extract"} & {step.kind for step in steps}


def show_famous_texts(searched: Audited) -> None:
    """The answer, each text with its p-value, and how often its passage stands in what is installed."""
    from audit_pipeline.catalogue.documents import read_documents
    from audit_pipeline.warehouse.query import open_read_only

    [spec], paths = searched.benchmarks, DataPaths.from_environment()
    say(f"\n{spec.settings.description}", famous_texts=spec.name)
    say_conclusions(paths, searched.model.name, spec.name)
    with open_read_only(paths.warehouse) as connection:
        pair = {"model": searched.model.name, "benchmark": spec.name}
        rows: list[dict[str, Any]] = connection.sql(_FOUND, params=pair).to_arrow_table().to_pylist()
    texts: dict[str, str] = {}
    for source in spec.sources:
        table = read_documents(paths, source).select(["document_id", "text"])
        texts |= {row["document_id"]: row["text"] for row in table.to_pylist()}
    passages = [texts[row["document_id"]][row["suffix_begin"] : row["suffix_end"]] for row in rows]
    copies = count_installed_copies(passages)
    show_table(
        "recited",
        [{**row, "installed_copies": count} for row, count in zip(rows, copies, strict=True)],
        [
            ("text", "title"),
            ("p-value", "p_value", probability),
            ("q-value", "q_bh", probability),
            ("word for word", "is_reproduced", yes_or_no),
            ("first choices", lambda row: f"{row['first_choices']} of {row['tokens']}"),
            ("probability", "log_p", lambda log_p: f"{math.exp(log_p):.2g}"),
            (f"{_get_near_verbatim_tolerance(spec)} may differ", "log_p_near_verbatim", _format_lower_bound),
            ("copies", "installed_copies", thousands),
        ],
    )
    say(
        "First choices, probability (and where so many tokens may differ) and copies are of the strongest passage; "
        "copies: the licence files of installed packages that hold it, a stand-in for how often the model has read it."
    )


def count_installed_copies(passages: Sequence[str]) -> list[int]:
    """In how many licence files of the installed packages each passage stands, case and white space levelled."""
    from audit_pipeline.separability.both_sides import levelled

    files = [levelled(text) for text in _installed_licences()]
    return [sum(levelled(passage) in text for text in files) for passage in passages]


def _installed_licences() -> Iterable[str]:
    for distribution in distributions():
        for file in distribution.files or ():
            if file.name.lower().startswith(_LICENCES):
                try:
                    yield file.read_text(encoding="utf-8")
                except (OSError, UnicodeDecodeError):
                    # Removed since, or in another encoding: not counted.
                    continue


def _get_near_verbatim_tolerance(spec: BenchmarkSpec) -> int:
    return (spec.settings.extraction and spec.settings.extraction.near_verbatim) or 0


def _format_lower_bound(log_p: float | None) -> str:
    return DASH if log_p is None else f"≥ {math.exp(log_p):.2g}"
