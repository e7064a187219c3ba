"""Commands that audit: demo, audit, control, study.

What belongs here: options, their order of calls, and what is printed. What does not: any work. Heavy packages are
imported by the command that needs them, so that `--help` and `sql` answer at once.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from audit_pipeline.catalogue.contracts import Pair
from audit_pipeline.catalogue.paths import DataPaths, texts_are_quoted
from audit_pipeline.cli.answers import say_conclusions, tell_left_out
from audit_pipeline.cli.shared import (
    data_to_write,
    detector_and_setting,
    json_option,
    sides,
    tell_problems,
    tell_step,
    whole_configuration,
    with_interval,
)
from audit_pipeline.errors import ConfigError
from audit_pipeline.operate.console import Columns, Row, say, show_table, tell

if TYPE_CHECKING:
    from audit_pipeline.benchmarks.config import BenchmarkSpec
    from audit_pipeline.errors import PairsFailedError
    from audit_pipeline.models.config import ModelEntry
    from audit_pipeline.operate.dagster.audit import AuditOutcome

_ALL = "all"
_CHECK = "instrument_check"
_CHECKED = ("min_k", "min_k_plus_plus", "infilling")
_METRICS = {
    "auroc": "AUROC [95% interval]",
    "tpr_at_5_fpr": "TPR at 5% FPR",
    "fpr_at_95_tpr": "FPR at 95% TPR",
}
_SHOWN = (
    *("benchmark", "detector"),
    *(f"{metric}{end}" for metric in _METRICS for end in ("", "_low", "_high")),
    *("n_members", "n_nonmembers"),
)


@click.command()
@click.option("--model", default="smollm2-135m", show_default=True, help="The model to audit.")
@json_option
def demo(model: str) -> None:
    """Check the instrument, then audit a first real model.

    The texts are real and dated; all of it takes a few minutes on two cores.
    """
    checked: list[_Audited] = []
    if _CHECK in whole_configuration().controls.names:
        checked = _audit_control(_CHECK, None)
    else:
        tell(f"no instrument check: config/controls.yaml has no control '{_CHECK}'")
    audited = _audit(model, "demo", _Asked(publish=False))
    _publish([*checked, audited])
    _show_checks(checked)
    _show(audited)
    paths = DataPaths.from_environment()
    say("\nNext:")
    for command, what in (
        ("corpus-audit dev", "the same in the Dagster UI"),
        ("corpus-audit report --open", "the report in a browser"),
        ('corpus-audit sql "SELECT * FROM leaderboard"', "the findings in SQL"),
        (f"corpus-audit audit --model {model} --benchmark release_notes", "the whole benchmark"),
        (f"corpus-audit score --model {model} --texts FILE --out scores.parquet", "texts of your own"),
    ):
        say(f"  {_program()}{command:<72} {what}")
    say(f"\nEverything lies under {paths.root}")


def _program() -> str:
    """What to type before the command's name where its folder is not on the PATH."""
    folder = Path(sys.argv[0]).resolve().parent
    if str(folder) in os.environ.get("PATH", "").split(os.pathsep):
        return ""
    return f"{os.path.relpath(folder)}/" if folder.is_relative_to(Path.cwd()) else f"{folder}/"


@click.command()
@click.option("--model", required=True, help="The model: a name in config/models.yaml, a hub id, or a path.")
@click.option(
    "--benchmark", required=True, help="A benchmark (release_notes_64), a family of them (release_notes), or all."
)
@click.option("--dry-run", is_flag=True, help="Show texts, tokens, passes, bytes and estimated time, and run nothing.")
@click.option("--refresh", is_flag=True, help="Fetch the sources again, even if their documents are there.")
@click.option("--again", is_flag=True, help="Audit again what is done; texts come from the cache all the same.")
@click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), help="Where the model runs. Default: cuda if there is one."
)
@click.option(
    "--kinds",
    default="base",
    show_default=True,
    help="What to cache of each pass: base, topk, logits; no detector reads logits yet.",
)
@click.option(
    "--logits-budget-gb",
    type=click.FloatRange(min=0),
    help="The most gigabytes that full logits may take per benchmark.",
)
@json_option
def audit(
    model: str,
    benchmark: str,
    dry_run: bool,
    refresh: bool,
    again: bool,
    device: str | None,
    kinds: str,
    logits_budget_gb: float | None,
) -> None:
    """Audit a model on a benchmark, a family of them, or all.

    The audit runs through Dagster, in this process. What is done is not done again; what is cached is not run again.
    """
    asked = _Asked(refresh, again, device, _kinds(kinds), logits_budget_gb)
    if dry_run:
        _dry_run(model, benchmark, asked)
    else:
        _show(_audit(model, benchmark, asked))


def _kinds(given: str) -> tuple[Any, ...]:
    names = [name.strip() for name in given.split(",") if name.strip()]
    wrong = [name for name in names if name not in ("base", "topk", "logits")]
    if wrong or not names:
        raise click.BadParameter("a list of base, topk and logits", param_hint="--kinds")
    return tuple(dict.fromkeys(["base", *names]))


@dataclass(frozen=True)
class _Asked:
    """What is asked of an audit beside its model and benchmarks."""

    refresh: bool = False
    again: bool = False
    device: str | None = None
    kinds: tuple[Any, ...] = ("base",)
    logits_budget_gb: float | None = None
    publish: bool = True

    @property
    def is_plain(self) -> bool:
        """Whether nothing is asked that is done whatever is there."""
        return not (self.refresh or self.again) and self.kinds == ("base",)


@dataclass(frozen=True)
class _Audited:
    """What an audit came to: the benchmarks that were not left out, and the error where some pairs met a fault and the
    others are done."""

    model: ModelEntry
    benchmarks: Sequence[BenchmarkSpec]
    failed: PairsFailedError | None = None

    @property
    def pairs(self) -> list[Pair]:
        return [Pair(spec.name, self.model.name) for spec in self.benchmarks]


def _audit(model: str, benchmark: str, asked: _Asked) -> _Audited:
    """Bring the pairs up to date; nothing is run, and no heavy package imported, where they are."""
    # Before the heavy packages: what is wrong with it is told at once.
    entry, specs = _asked_for(model, benchmark)

    from audit_pipeline.operate.situation import steps_at_a_glance

    paths = DataPaths.from_environment()
    up_to_date = f"{entry.name} on {', '.join(spec.name for spec in specs)}: everything is up to date, nothing is run"
    if asked.is_plain and steps_at_a_glance(entry, specs, paths, publish=asked.publish) == ():
        tell_step(up_to_date)
        return _Audited(entry, specs)
    data_to_write()

    from audit_pipeline.definitions import defs
    from audit_pipeline.operate.dagster.audit import AuditRequest
    from audit_pipeline.operate.dagster.audit import audit as run_audit

    request = AuditRequest(entry.name, specs, **vars(asked), terminal=True, leave_out=benchmark == _ALL)
    outcome = run_audit(request, defs(), paths, tell_step)
    _tell_outcome(outcome)
    if not outcome.runs and not outcome.failed and not outcome.left_out:
        tell_step(up_to_date)
    return _Audited(entry, [spec for spec in specs if spec.name not in outcome.left_out], outcome.failed)


def _show(audited: _Audited) -> None:
    """The findings, the way to the report, and the error where there was one."""
    paths = DataPaths.from_environment()
    _show_findings(paths, audited.model.name, [spec.name for spec in audited.benchmarks])
    tell_left_out(paths)
    say(f"\nReport: {paths.report}", report=paths.report)
    if audited.failed is not None:
        raise audited.failed


def _tell_outcome(outcome: AuditOutcome) -> None:
    if outcome.dead_runs:
        tell(f"marked {len(outcome.dead_runs)} dead run(s) of this machine failed and freed their slots")
    for partition, done in outcome.passes.items():
        tell(f"{partition}: {done.from_cache} texts from the cache, {done.computed} computed")
    for partition, reason in outcome.not_applicable.items():
        tell(f"{partition} could not run: {reason}", style="red")


def _asked_for(model: str, benchmark: str) -> tuple[ModelEntry, Sequence[BenchmarkSpec]]:
    """The model, and the benchmarks that a user named: one, a family, or all there are; other problems are told."""
    from audit_pipeline.benchmarks.config import standing
    from audit_pipeline.models.config import resolve_model

    config = whole_configuration()
    specs = list(standing(config.benchmarks).values()) if benchmark == _ALL else config.benchmarks_named(benchmark)
    entry = resolve_model(model, config.models)
    tell_problems(config.problems)
    return entry, specs


def _interval_of(metric: str) -> Callable[[Row], str]:
    return lambda row: with_interval(row, metric)


_FINDINGS: Columns = (
    ("benchmark", "benchmark"),
    ("detector", detector_and_setting),
    *((head, _interval_of(metric)) for metric, head in _METRICS.items()),
    ("texts", sides),
)


def _show_findings(paths: DataPaths, model: str, benchmarks: Sequence[str]) -> None:
    from audit_pipeline.warehouse.query import open_read_only

    with open_read_only(paths.warehouse) as connection:
        statement = "SELECT * FROM leaderboard WHERE model = $model AND list_contains($benchmarks, benchmark)"
        rows = connection.sql(statement, params={"model": model, "benchmarks": list(benchmarks)})
        found: list[dict[str, Any]] = rows.to_arrow_table().to_pylist()
    say("")
    shown = [{"model": model, **{name: row[name] for name in _SHOWN}, **_setting_of(row)} for row in found]
    show_table("findings", shown, _FINDINGS)
    say_conclusions(paths, model, benchmarks)


def _setting_of(row: Row) -> dict[str, Any]:
    """The row's parameters as they are, not as canonical JSON."""
    return {"parameters": json.loads(row["parameters"])}


def _dry_run(model: str, benchmark: str, asked: _Asked) -> None:
    entry, specs = _asked_for(model, benchmark)

    from audit_pipeline.models.load import load_tokenizer
    from audit_pipeline.models.weights import default_device
    from audit_pipeline.operate.dagster.audit import AuditRequest, dry_run
    from audit_pipeline.token_statistics.estimate import seconds_for

    paths = DataPaths.from_environment()
    tokenized = load_tokenizer(entry, paths)
    request = AuditRequest(entry.name, specs, again=asked.again, kinds=asked.kinds, leave_out=benchmark == _ALL)
    plans = dry_run(request, tokenized, paths)
    for spec in specs:
        if spec.name not in plans:
            tell(f"{spec.name} is not built or not up to date: corpus-audit benchmarks --build {spec.name}")
    device = asked.device or default_device()
    rows = [
        {
            "benchmark": name,
            "texts": plan.texts,
            "cached": plan.cached_texts,
            "to_run": plan.texts_to_run,
            "passes": plan.passes,
            "tokens": plan.tokens_to_run,
            "branch_tokens": plan.branch_tokens,
            "bytes_to_write": sum(plan.bytes_to_write.values()),
            "seconds": seconds_for(tokenized, plan.tokens_to_run + plan.branch_tokens, device),
            "because": because,
        }
        for name, (plan, because) in plans.items()
    ]
    counted = ("texts", "cached", "to_run", "passes", "tokens", "branch_tokens", "bytes_to_write")
    numbers = [(name.replace("_", " "), _number(name)) for name in counted]
    time = ("time", lambda row: f"about {row['seconds']:,.0f} s")
    show_table(
        "plans", rows, [("benchmark", "benchmark"), *numbers, time, ("why", lambda row: row["because"] or "done")]
    )
    say(
        "Nothing was run. Passes and tokens count the texts and their lower-case copies; branches are an estimate. The "
        "time is the model's arithmetic at this machine's measured speed, without loading and without the passes of "
        "a reference model."
    )


def _number(column: str) -> Callable[[Row], str]:
    return lambda row: f"{row[column]:,}"


@click.command()
@click.argument("name", default=_CHECK)
@click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), help="Where the model runs. Default: cuda if there is one."
)
@json_option
def control(name: str, device: str | None) -> None:
    """Train and audit models whose training data is known.

    NAME is an entry of config/controls.yaml. One model is trained on the members, the control model on other texts, and
    both are audited: a detector works if it finds the members in the first and none in the second.
    """
    audited = _audit_control(name, device)
    _publish(audited)
    for one in audited:
        _show(one)
    _show_checks(audited)


def _audit_control(name: str, device: str | None) -> list[_Audited]:
    """Both models of a control on its texts; warehouse and report do not follow yet."""
    config = whole_configuration()
    config.controls.named(name)
    models = [one.name for one in config.models.values() if one.control and one.control.name == name]
    benchmarks = [spec.name for spec in config.benchmarks.values() if spec.control == name]
    if not models or not benchmarks:
        raise ConfigError(
            f"the control {name} has no model or no benchmark: name it in config/models.yaml "
            f"(control: {{name: {name}, role: exposed}}) and in config/benchmarks.yaml (builder: controlled)"
        )
    asked = _Asked(device=device, publish=False)
    return [_audit(model, benchmark, asked) for model in models for benchmark in benchmarks]


def _publish(audited: Sequence[_Audited]) -> None:
    """Rebuild warehouse and report once, where they do not show what these audits came to."""
    from audit_pipeline.operate.situation import steps_to_publish

    paths = DataPaths.from_environment()
    if not steps_to_publish([pair for one in audited for pair in one.pairs], paths):
        return

    from audit_pipeline.definitions import defs
    from audit_pipeline.operate.dagster.audit import publish

    tell_step("rebuilding warehouse and report")
    publish(defs(), paths, tell_step, include_text=texts_are_quoted())


@click.command()
@click.argument("name")
@json_option
def study(name: str) -> None:
    """Measure what makes members detectable.

    NAME is an entry of config/studies.yaml: a control is trained again at each value of a setting, and audited.
    """
    config = whole_configuration()
    config.studies.named(name)
    tell_problems(config.problems)
    paths = data_to_write()

    from audit_pipeline.definitions import defs
    from audit_pipeline.operate.dagster.audit import study as run_study
    from audit_pipeline.warehouse.query import open_read_only

    run_study(name, defs(), paths, tell_step)
    with open_read_only(paths.warehouse) as connection:
        rows = connection.sql("SELECT * FROM control_studies WHERE study = $study", params={"study": name})
        found: list[dict[str, Any]] = rows.to_arrow_table().to_pylist()
    rows_shown = [
        {
            **{name: row[name] for name in ("setting", "value", "seed", "detector", "auroc")},
            **{"auroc_low": row["ci_low"], "auroc_high": row["ci_high"], **_setting_of(row)},
        }
        for row in found
    ]
    interval = ("AUROC [95% interval]", _interval_of("auroc"))
    plain = [(name, name) for name in ("setting", "value", "seed")]
    show_table("study", rows_shown, [*plain, ("detector", detector_and_setting), interval])
    say(f"\nReport: {paths.report}", report=paths.report)


def _show_checks(audited: Sequence[_Audited]) -> None:
    """The check of the instrument on each of the control's benchmarks; raises the error where a pair met a fault."""
    for one in audited:
        if one.failed is not None:
            raise one.failed
    models: dict[str, str] = {one.model.control.role: one.model.name for one in audited if one.model.control}
    for benchmark in dict.fromkeys(spec.name for one in audited for spec in one.benchmarks):
        _show_check(DataPaths.from_environment(), benchmark, models)


def _show_check(paths: DataPaths, benchmark: str, models: Mapping[str, str]) -> None:
    """One line: what the detectors made of texts of which it is known whether the model was trained on them."""
    from audit_pipeline.warehouse.query import open_read_only

    with open_read_only(paths.warehouse) as connection:
        relation = connection.sql("SELECT * FROM leaderboard WHERE benchmark = $name", params={"name": benchmark})
        rows: list[dict[str, Any]] = relation.to_arrow_table().to_pylist()

    def found(role: str) -> dict[str, float]:
        aurocs = {row["detector"]: row["auroc"] for row in rows if row["model"] == models.get(role)}
        return {name: aurocs[name] for name in _CHECKED if aurocs.get(name) is not None}

    def told(role: str) -> str:
        return ", ".join(f"{name} {auroc:.2f}" for name, auroc in found(role).items()) or "not audited"

    blind = next((row["blind_auroc"] for row in rows if row["blind_auroc"] is not None), None)
    say(
        f"\nInstrument check: AUROC of members against held-out texts: {told('exposed')}; "
        f"in the control model, which saw neither: {told('twin')}; "
        f"without any model: {'not computed' if blind is None else f'{blind:.2f}'}",
        checks=[{"benchmark": benchmark, "exposed": found("exposed"), "twin": found("twin"), "blind_auroc": blind}],
    )
