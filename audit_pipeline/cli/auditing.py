"""Commands that audit: demo, audit, control, study.

What belongs here: options, their order of calls, and what is printed. What does not: any work. Heavy packages are
imported by the command that needs them, so that `--help` and `sql` answer at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from audit_pipeline.cli.shared import data_to_write, setting, tell_step, with_interval
from audit_pipeline.console import OUT, new_table, print_table, say, tell
from audit_pipeline.errors import ConfigError
from audit_pipeline.paths import DataPaths

if TYPE_CHECKING:
    from audit_pipeline.benchmarks.config import BenchmarkSpec

_ALL = "all"
_CHECK = "instrument_check"
_CHECKED = ("min_k", "min_k_plus_plus", "infilling")


@click.command()
@click.option("--model", default="smollm2-135m", show_default=True, help="Which model to audit.")
def demo(model: str) -> None:
    """A check of the instrument, and a first audit of a real model on real dated texts; minutes on two cores."""
    from audit_pipeline.controls.config import load_controls

    if _CHECK in load_controls():
        _check_instrument(_CHECK, None, show=False)
    else:
        tell(f"no instrument check: config/controls.yaml has no control '{_CHECK}'")
    _run(model, "demo", refresh=False, device=None, kinds=("base",), logits_budget_gb=None)
    paths = DataPaths.from_environment()
    OUT.print("\nNext:")
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
@click.option("--model", required=True, help="A name in config/models.yaml, a hub id, or a path.")
@click.option("--benchmark", required=True, help="A benchmark (release_notes_64), a family (release_notes), or all.")
@click.option("--dry-run", is_flag=True, help="Texts, tokens, passes, bytes and estimated time; nothing is run.")
@click.option("--refresh", is_flag=True, help="Fetch the sources again, even if their documents are there.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), help="Default: cuda where there is one.")
@click.option("--kinds", default="base", show_default=True, help="What is cached of a pass: base,topk,logits.")
@click.option(
    "--logits-budget-gb", type=click.FloatRange(min=0), help="The most that full logits may add, a benchmark."
)
def audit(
    model: str,
    benchmark: str,
    dry_run: bool,
    refresh: bool,
    device: str | None,
    kinds: str,
    logits_budget_gb: float | None,
) -> None:
    """Audit one model on one benchmark, through Dagster, in this process."""
    chosen = _kinds(kinds)
    if dry_run:
        _dry_run(model, benchmark, chosen, device)
    else:
        _run(model, benchmark, refresh=refresh, device=device, kinds=chosen, logits_budget_gb=logits_budget_gb)


def _kinds(given: str) -> tuple[Any, ...]:
    names = [name.strip() for name in given.split(",") if name.strip()]
    wrong = [name for name in names if name not in ("base", "topk", "logits")]
    if wrong or not names:
        raise click.BadParameter("a list of base, topk and logits", param_hint="--kinds")
    return tuple(dict.fromkeys(["base", *names]))


def _run(
    model: str,
    benchmark: str,
    *,
    refresh: bool,
    device: str | None,
    kinds: tuple[Any, ...],
    logits_budget_gb: float | None,
    show: bool = True,
) -> None:
    paths = data_to_write()
    from audit_pipeline.definitions import defs
    from audit_pipeline.models.config import load_models, resolve_model
    from audit_pipeline.orchestration.audit import AuditRequest
    from audit_pipeline.orchestration.audit import audit as run_audit

    specs = _specs(benchmark)
    name = resolve_model(model, load_models()).name
    leave_out = benchmark == _ALL
    request = AuditRequest(name, specs, refresh, device, kinds, logits_budget_gb, terminal=True, leave_out=leave_out)
    outcome = run_audit(request, defs(), paths, tell_step)
    if outcome.buried:
        tell(f"marked {len(outcome.buried)} dead run(s) of this machine failed and freed their slots")
    for partition, done in outcome.passes.items():
        tell(f"{partition}: {done.from_cache} texts from the cache, {done.computed} computed")
    for partition, reason in outcome.not_applicable.items():
        tell(f"{partition} could not run: {reason}", style="red")
    if show:
        _show_findings(paths, name, [spec.name for spec in specs if spec.name not in outcome.left_out])
        say(f"\nReport: {paths.report}")
    if outcome.failed is not None:
        raise outcome.failed


def _specs(benchmark: str) -> Sequence[BenchmarkSpec]:
    """The benchmarks that a user named: one, a family, or all there are."""
    from audit_pipeline.benchmarks.config import load_benchmarks, resolve, standing

    return list(standing(load_benchmarks()).values()) if benchmark == _ALL else resolve(benchmark)


def _show_findings(paths: DataPaths, model: str, benchmarks: Sequence[str]) -> None:
    from audit_pipeline.warehouse.query import open_read_only

    with open_read_only(paths.warehouse) as connection:
        statement = "SELECT * FROM leaderboard WHERE model = $model AND list_contains($benchmarks, benchmark)"
        rows = connection.sql(statement, params={"model": model, "benchmarks": list(benchmarks)})
        found: list[dict[str, Any]] = rows.to_arrow_table().to_pylist()
    columns = ("benchmark", "detector", "AUROC [95% interval]", "TPR at 5% FPR", "FPR at 95% TPR", "texts")
    table = new_table(*columns)
    for row in found:
        table.add_row(
            row["benchmark"],
            f"{row['detector']} {setting(row['parameters'])}".strip(),
            *(with_interval(row, metric) for metric in ("auroc", "tpr_at_5_fpr", "fpr_at_95_tpr")),
            f"{row['n_members']} + {row['n_nonmembers']}",
        )
    OUT.print()
    print_table(table)
    OUT.print()
    for benchmark in benchmarks:
        rows_of = [row for row in found if row["benchmark"] == benchmark]
        if not rows_of:
            say(
                f"{benchmark}: no metrics, because none of its texts to evaluate is labelled; "
                "its scores are in the view scores_with_examples"
            )
        for row in rows_of[:1]:
            blind = "not read" if row["blind_auroc"] is None else with_interval(row, "blind_auroc")
            say(
                f"{benchmark}: {row['claim_level']}; split: {row['split_verdict']}; "
                f"AUROC of the blind control, which never sees the model: {blind}"
            )


def _dry_run(model: str, benchmark: str, kinds: tuple[Any, ...], device: str | None) -> None:
    from audit_pipeline.models.config import load_models, resolve_model
    from audit_pipeline.models.load import default_device, load_tokenizer
    from audit_pipeline.orchestration.audit import AuditRequest, dry_run
    from audit_pipeline.token_statistics.estimate import seconds_for

    paths = DataPaths.from_environment()
    entry = resolve_model(model, load_models())
    tokenized = load_tokenizer(entry, paths)
    specs = _specs(benchmark)
    plans = dry_run(AuditRequest(entry.name, specs, kinds=kinds, leave_out=benchmark == _ALL), tokenized, paths)
    for spec in specs:
        if spec.name not in plans:
            tell(f"{spec.name} is not built or not up to date: corpus-audit benchmarks --build {spec.name}")
    table = new_table(
        "benchmark", "texts", "cached", "to run", "passes", "tokens", "branch tokens", "bytes to write", "time"
    )
    for name, plan in plans.items():
        tokens = plan.tokens_to_run + plan.branch_tokens
        seconds = seconds_for(tokenized, tokens, device or default_device())
        size = sum(plan.bytes_to_write.values())
        counted = (plan.texts, plan.cached_texts, plan.texts_to_run)
        numbers = (*counted, plan.passes, plan.tokens_to_run, plan.branch_tokens, size)
        table.add_row(name, *(f"{number:,}" for number in numbers), f"about {seconds:,.0f} s")
    print_table(table)
    OUT.print(
        "Nothing was run. Passes and tokens: the texts and their lower case; branches: about. Time: the model's "
        "arithmetic at this machine's measured speed; loading and a reference model's passes left out.",
        soft_wrap=True,
    )


@click.command()
@click.argument("name", default=_CHECK)
@click.option("--device", type=click.Choice(["cpu", "cuda"]), help="Default: cuda where there is one.")
def control(name: str, device: str | None) -> None:
    """Train a control with known truth (config/controls.yaml) and audit its two models on its texts."""
    _check_instrument(name, device, show=True)


def _check_instrument(name: str, device: str | None, *, show: bool) -> None:
    from audit_pipeline.benchmarks.config import load_benchmarks
    from audit_pipeline.controls.config import control_named, load_controls
    from audit_pipeline.models.config import load_models

    control_named(name, load_controls())
    models: dict[str, str] = {
        one.control.role: one.name for one in load_models().values() if one.control and one.control.name == name
    }
    benchmarks = [spec.name for spec in load_benchmarks().values() if spec.control == name]
    if not models or not benchmarks:
        raise ConfigError(
            f"the control {name} has no model or no benchmark: name it in config/models.yaml "
            f"(control: {{name: {name}, role: exposed}}) and in config/benchmarks.yaml (builder: controlled)"
        )
    for model in models.values():
        for benchmark in benchmarks:
            _run(model, benchmark, refresh=False, device=device, kinds=("base",), logits_budget_gb=None, show=show)
    for benchmark in benchmarks:
        _show_check(DataPaths.from_environment(), benchmark, models)


@click.command()
@click.argument("name")
def study(name: str) -> None:
    """Train a control again and again with one setting changed (config/studies.yaml): what makes members tell."""
    paths = data_to_write()
    from audit_pipeline.definitions import defs
    from audit_pipeline.orchestration.audit import study as run_study
    from audit_pipeline.warehouse.query import open_read_only

    run_study(name, defs(), paths, tell_step)
    with open_read_only(paths.warehouse) as connection:
        rows = connection.sql("SELECT * FROM control_studies WHERE study = $study", params={"study": name})
        found: list[dict[str, Any]] = rows.to_arrow_table().to_pylist()
    table = new_table("setting", "value", "seed", "detector", "AUROC [95% interval]")
    for row in found:
        shown = "not defined" if row["auroc"] is None else f"{row['auroc']:.3f}"
        if row["ci_low"] is not None:
            shown += f" [{row['ci_low']:.3f}, {row['ci_high']:.3f}]"
        detector = f"{row['detector']} {setting(row['parameters'])}".strip()
        table.add_row(row["setting"], row["value"], str(row["seed"]), detector, shown)
    print_table(table)
    say(f"\nReport: {paths.report}")


def _show_check(paths: DataPaths, benchmark: str, models: Mapping[str, str]) -> None:
    """One line: what the detectors made of texts of which it is known whether the model was trained on them."""
    from audit_pipeline.warehouse.query import open_read_only

    with open_read_only(paths.warehouse) as connection:
        relation = connection.sql("SELECT * FROM leaderboard WHERE benchmark = $name", params={"name": benchmark})
        rows: list[dict[str, Any]] = relation.to_arrow_table().to_pylist()

    def told(role: str) -> str:
        found = {row["detector"]: row["auroc"] for row in rows if row["model"] == models.get(role)}
        shown = [f"{name} {found[name]:.2f}" for name in _CHECKED if found.get(name) is not None]
        return ", ".join(shown) or "not audited"

    blind = next((row["blind_auroc"] for row in rows if row["blind_auroc"] is not None), None)
    say(
        f"\nInstrument check: members told from held-out texts with AUROC {told('exposed')}; "
        f"twin model, which saw neither: {told('twin')}; "
        f"without any model: {'not read' if blind is None else f'{blind:.2f}'}"
    )
