"""First steps: what `corpus-audit` says without a command, and the command demo."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from audit_pipeline.catalogue.control_roles import INSTRUMENT_CHECK
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.cli.audit_output import audit_pairs, publish_outcomes, say_conclusions, show_audit_outcome
from audit_pipeline.cli.controls import MEMORISATION_CHECK, audit_control, show_instrument_checks, show_memorisation
from audit_pipeline.cli.options import PASSES_KEPT, json_option, keeps
from audit_pipeline.cli.shared import load_dagster_definitions, load_whole_configuration
from audit_pipeline.errors import AuditError, to_one_line
from audit_pipeline.operate.console import escape_control_characters, say, show_table, tell, tell_step
from audit_pipeline.operate.options import AuditOptions
from audit_pipeline.operate.requests import AuditOutcome, AuditRequest
from audit_pipeline.report.number_format import DASH, format_thousands, probability, things, yes_or_no

if TYPE_CHECKING:
    from audit_pipeline.benchmarks.settings import BenchmarkSpec
    from audit_pipeline.models.config import ModelEntry

_FIRST = {
    "check FILES --model smollm2-135m": "asks of documents of your own whether a model read them",
    "demo": "audits a small real model on real texts, in a few minutes",
    "score --model smollm2-135m --texts FILE --out scores.parquet": "scores the texts of a file of your own",
    "init my-audits": "makes a folder for audits of your own, with its configuration",
}
_NEXT = {
    "report --open": "opens the report in a browser",
    'sql "SELECT * FROM leaderboard"': "shows the findings as a table",
    'sql "FROM not_audited"': "names what is not done yet, and why",
    "models": "lists the models that can be audited",
    "benchmarks": "lists what they can be audited on",
    "audit --model M --benchmark B": "audits one of them",
    "dev": "starts the Dagster UI: audits on a schedule",
}
_MEND = {"doctor --deep": "says what is damaged", "report": "builds them again"}
_COUNTS = """
SELECT count(DISTINCT model) AS models, count(DISTINCT benchmark) AS benchmarks FROM coverage
WHERE has_results AND model NOT IN (SELECT model FROM control_models)
"""


def say_what_next() -> None:
    """What is here, and which commands to try; nothing is run, and nothing is changed."""
    paths = DataPaths.from_environment()
    say("Corpus Audit finds out whether texts were in a language model's pretraining\ndata, and how sure we can be.\n")
    if paths.warehouse.exists():
        _say_result_counts(paths)
    else:
        begun = paths.dagster_home.is_dir()
        say(f"{'An audit was begun' if begun else 'There are no results yet'} in {_format_path(paths.root)}")
        if begun:
            say("It goes on with the command that began it.")
        say_commands(_FIRST)
    say("\nAll commands: corpus-audit --help")


def say_commands(commands: Mapping[str, str]) -> None:
    """Commands to try, each in a line of its own with what it does below it: two columns would not fit a terminal."""
    say("\nNext:")
    for command, what in commands.items():
        say(f"  corpus-audit {command}\n      {what}")


def _format_path(path: Path) -> str:
    """The path, from the current folder where it lies in it."""
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return escape_control_characters(str(shown))


def _say_result_counts(paths: DataPaths) -> None:
    from audit_pipeline.warehouse.query import query_warehouse

    try:
        [found] = query_warehouse(paths.warehouse, _COUNTS).to_pylist()
    except AuditError as error:
        say(f"The results cannot be read: {to_one_line(error)}")
        say_commands(_MEND)
        return
    models = things(found["models"], "model", "models")
    benchmarks = things(found["benchmarks"], "benchmark", "benchmarks")
    say(f"{models} audited on {benchmarks}, in {_format_path(paths.root)}")
    if paths.report.exists():
        say(f"Report: {_format_path(paths.report)}")
    say_commands(_NEXT)


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


def search_famous_texts(model: str) -> list[AuditOutcome]:
    """Search the famous texts for what the model recites, where that is not done; warehouse and report do not follow
    yet. Nothing where the configuration has no such benchmark."""
    config = load_whole_configuration()
    specs = [spec for spec in config.benchmarks.values() if spec.family == FAMOUS_TEXTS]
    if not specs:
        tell(f"config/benchmarks.yaml has no benchmark '{FAMOUS_TEXTS}': it is left out")
    from audit_pipeline.models.config import resolve_model

    entry = resolve_model(model, config.models)
    for spec in specs:
        if _is_searched(entry, spec):
            tell_step(f"{model} on {spec.name}: everything is up to date, nothing is run")
        else:
            _search_benchmark(entry, spec)
    return [AuditOutcome(entry, [spec]) for spec in specs]


def _search_benchmark(entry: ModelEntry, spec: BenchmarkSpec) -> None:
    definitions = load_dagster_definitions()
    from audit_pipeline.benchmarks.settings import ExtractionSettings
    from audit_pipeline.operate.dagster.audit import extract
    from audit_pipeline.operate.stages.extraction import search_options_from_settings

    request = AuditRequest(entry, [spec], AuditOptions(publish=False))
    asked = search_options_from_settings(spec.settings.extraction or ExtractionSettings())
    extract(request, asked, definitions, DataPaths.from_environment(), tell_step)


def _is_searched(entry: ModelEntry, spec: BenchmarkSpec) -> bool:
    from audit_pipeline.operate.requests import plan_quickly

    made = plan_quickly(AuditRequest(entry, [spec], AuditOptions(publish=False)), DataPaths.from_environment())
    return made is not None and not made.problems and not made.of(("documents", "benchmark", "extraction"))


def show_famous_texts(outcome: AuditOutcome) -> None:
    """The answer, each text with its p-value, and how often its passage stands in what is installed."""
    from audit_pipeline.catalogue.store import read_documents
    from audit_pipeline.warehouse.query import open_read_only

    [spec], paths = outcome.benchmarks, DataPaths.from_environment()
    differing = (spec.settings.extraction and spec.settings.extraction.near_verbatim) or 0
    say(f"\n{spec.settings.description}", famous_texts=spec.name)
    say_conclusions(paths, outcome.model.name, spec.name)
    with open_read_only(paths.warehouse) as connection:
        pair = {"model": outcome.model.name, "benchmark": spec.name}
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
            (f"{differing} may differ", "log_p_near_verbatim", _format_lower_bound),
            ("copies", "installed_copies", format_thousands),
        ],
    )
    say(
        "First choices, probability (and where so many tokens may differ) and copies are of the strongest passage; "
        "copies: the licence files of installed packages that hold it, a stand-in for how often the model has read it."
    )


def count_installed_copies(passages: Sequence[str]) -> list[int]:
    """In how many licence files of the installed packages each passage stands, case and white space levelled."""
    from audit_pipeline.separability.shared_text import normalise_text

    files = [normalise_text(text) for text in _iterate_installed_licences()]
    return [sum(normalise_text(passage) in text for text in files) for passage in passages]


def _iterate_installed_licences() -> Iterable[str]:
    for distribution in distributions():
        for file in distribution.files or ():
            if file.name.lower().startswith(_LICENCES):
                try:
                    yield file.read_text(encoding="utf-8")
                except (OSError, UnicodeDecodeError):
                    # Removed since, or in another encoding: not counted.
                    continue


def _format_lower_bound(log_p: float | None) -> str:
    return DASH if log_p is None else f"≥ {math.exp(log_p):.2g}"


@keeps(PASSES_KEPT)
@click.command()
@click.option("--model", default="smollm2-135m", show_default=True, help="The model to audit.")
@json_option
def demo(model: str) -> None:
    """Check the instrument, audit a model, and let it recite.

    The texts are real; all of it takes a few minutes on two cores.
    """
    checked = _audit_control_if_configured(INSTRUMENT_CHECK)
    memorised = _audit_control_if_configured(MEMORISATION_CHECK)
    audited = audit_pairs(model, "demo", AuditOptions(publish=False))
    recited = search_famous_texts(model)
    publish_outcomes([*checked, *memorised, audited, *recited])
    show_instrument_checks(checked)
    show_memorisation(memorised)
    show_audit_outcome(audited)
    for result in recited:
        show_famous_texts(result)
    say_commands(
        {
            "dev": "the same in the Dagster UI",
            "report --open": "the report in a browser",
            'sql "SELECT * FROM leaderboard"': "the findings in SQL",
            f"audit --model {model} --benchmark release_notes": "the whole benchmark",
            f"score --model {model} --texts FILE --out scores.parquet": "texts of your own",
        }
    )
    say(f"\nEverything lies under {DataPaths.from_environment().root}")


def _audit_control_if_configured(name: str) -> list[AuditOutcome]:
    """Both models of a control, audited; none where the configuration has no such control."""
    if name in load_whole_configuration().controls.names:
        return audit_control(name, None)
    tell(f"config/controls.yaml has no control '{name}': its check is left out")
    return []
