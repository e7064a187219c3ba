"""The command `corpus-audit`: the front door.

What belongs here: options, their order of calls, and what is printed. What does not: any work. Heavy packages are
imported by the command that needs them, so that `--help` and `sql` answer at once.
"""

from __future__ import annotations

import csv
import itertools
import json
import os
import sys
import webbrowser
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from audit_pipeline.console import OUT, new_table, print_table, say, shown, tell, tell_skipped, visible
from audit_pipeline.errors import AuditError, ConfigError
from audit_pipeline.paths import DataPaths
from audit_pipeline.statistics_commands import canaries, evaluate, export, power, test

if TYPE_CHECKING:
    import pyarrow as pa

    from audit_pipeline.benchmarks.config import BenchmarkSpec
    from audit_pipeline.detectors.registry import Overrides
    from audit_pipeline.orchestration.forgetting import Forgotten
    from audit_pipeline.score_files import FileScores


_ALL = "all"
_CHECK = "instrument_check"
_FILE = click.Path(path_type=Path, dir_okay=False)


class _Front(click.Group):
    """Errors that a user can act on become one line and exit code 2, without a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # The reader of a pipe has enough: click ends quietly.
            raise
        except KeyboardInterrupt:
            tell("stopped; what was finished is kept")
            sys.exit(130)
        except Exception as error:
            from audit_pipeline.full_disk import full_disk

            # Whoever met it: Dagster's own databases and DuckDB tell of a full disk in words of their own.
            full = full_disk(error, DataPaths.from_environment().root)
            if full is not None:
                _fail(AuditError(full))
            # OSError: the machine said no: no permission, a folder where a file should be.
            if isinstance(error, AuditError | OSError):
                _fail(error)
            raise


def _fail(error: AuditError | OSError) -> NoReturn:
    tell(f"Error: {' '.join(str(error).split())}", style="red")
    sys.exit(2)


@click.group(cls=_Front, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="corpus-audit")
def main() -> None:
    """Find out whether texts were in a language model's pretraining data, and how sure anyone can be."""
    # Progress bars of libraries would draw over ours.
    os.environ.setdefault("TQDM_DISABLE", "1")


@main.command()
@click.option("--model", default="smollm2-135m", show_default=True, help="Which model to audit.")
def demo(model: str) -> None:
    """A check of the instrument, and a first audit of a real model on real dated texts; minutes on two cores."""
    from audit_pipeline.controls.config import load_controls

    if _CHECK in load_controls():
        _check_instrument(_CHECK, None, show=False)
    else:
        tell(f"no instrument check: config/controls.yaml has no control '{_CHECK}'")
    _audit(model, "demo", refresh=False, device=None, kinds=("base",), logits_budget_gb=None)
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


@main.command()
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
        _audit(model, benchmark, refresh=refresh, device=device, kinds=chosen, logits_budget_gb=logits_budget_gb)


def _kinds(given: str) -> tuple[Any, ...]:
    names = [name.strip() for name in given.split(",") if name.strip()]
    wrong = [name for name in names if name not in ("base", "topk", "logits")]
    if wrong or not names:
        raise click.BadParameter("a list of base, topk and logits", param_hint="--kinds")
    return tuple(dict.fromkeys(["base", *names]))


def _audit(
    model: str,
    benchmark: str,
    *,
    refresh: bool,
    device: str | None,
    kinds: tuple[Any, ...],
    logits_budget_gb: float | None,
    show: bool = True,
) -> None:
    from audit_pipeline.definitions import defs
    from audit_pipeline.models.config import load_models, resolve_model
    from audit_pipeline.orchestration.audit import AuditRequest
    from audit_pipeline.orchestration.audit import audit as run_audit

    specs = _specs(benchmark)
    name = resolve_model(model, load_models()).name
    paths = DataPaths.from_environment()
    leave_out = benchmark == _ALL
    request = AuditRequest(name, specs, refresh, device, kinds, logits_budget_gb, terminal=True, leave_out=leave_out)
    outcome = run_audit(request, defs(), paths, _tell_step)
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


def _tell_step(what: str) -> None:
    tell(f"• {what}")


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
            f"{row['detector']} {_setting(row['parameters'])}".strip(),
            *(_with_interval(row, metric) for metric in ("auroc", "tpr_at_5_fpr", "fpr_at_95_tpr")),
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
            blind = "not read" if row["blind_auroc"] is None else _with_interval(row, "blind_auroc")
            say(
                f"{benchmark}: {row['claim_level']}; split: {row['split_verdict']}; "
                f"AUROC of the blind control, which never sees the model: {blind}"
            )


def _setting(parameters: str) -> str:
    return " ".join(f"{name}={value}" for name, value in json.loads(parameters).items())


def _with_interval(row: dict[str, Any], metric: str) -> str:
    value, low, high = row[metric], row[f"{metric}_low"], row[f"{metric}_high"]
    if value is None:
        return "not defined"
    return f"{value:.3f}" if low is None or high is None else f"{value:.3f} [{low:.3f}, {high:.3f}]"


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


@main.command()
@click.option("--model", required=True, help="A name in config/models.yaml, a hub id, or a path.")
@click.option("--texts", "file", required=True, type=click.Path(path_type=Path), help=".jsonl, .csv, .parquet or .txt")
@click.option("--out", required=True, type=_FILE, help="The Parquet file to write.")
@click.option("--detectors", help="Default: all. See `corpus-audit detectors`.")
@click.option("--grid", is_flag=True, help="Every setting of each detector's parameter grid.")
@click.option("--set", "assignments", multiple=True, metavar="DETECTOR.PARAMETER=VALUE", help="Repeatable.")
@click.option("--text-column", help="Default: text, else input, else the only column.")
@click.option("--label-column", default="label", show_default=True, help="1 member, 0 non-member; may be absent.")
@click.option("--start-token", "policy", type=click.Choice(["always", "tokenizer"]), help="Default: the model's entry.")
@click.option("--dtype", type=click.Choice(["float32", "bfloat16", "float16"]), help="Default: the model's entry.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), help="Default: cuda where there is one.")
@click.option("--reference-model", help="For the detector reference. Default: the model's entry.")
@click.option("--frequencies", type=_FILE, help="For dc_pdd: a table that `corpus-audit count` wrote.")
@click.option("--proposer", default="own-topk", show_default=True, help="For neighbour: or a masked language model.")
@click.option("--seed", default=0, show_default=True, help="Of the neighbours.")
def score(
    model: str,
    file: Path,
    out: Path,
    detectors: str | None,
    grid: bool,
    assignments: tuple[str, ...],
    text_column: str | None,
    label_column: str,
    policy: str | None,
    dtype: str | None,
    device: str | None,
    reference_model: str | None,
    frequencies: Path | None,
    proposer: str,
    seed: int,
) -> None:
    """Score the texts of a file, without Dagster: one row a text, detector and setting."""
    from audit_pipeline.detectors.registry import parse_set, select

    names = [name.strip() for name in detectors.split(",") if name.strip()] if detectors else None
    overrides = parse_set(assignments)
    selection = select(names, grid=grid, overrides=overrides)

    from audit_pipeline.models.config import load_models, resolve_model
    from audit_pipeline.models.load import TokenizedModel, default_device, load_tokenizer, load_weights, with_overrides
    from audit_pipeline.progress import terminal_bar
    from audit_pipeline.score_files import Beside, score_file
    from audit_pipeline.token_statistics.forward import ForwardPass

    entry = with_overrides(
        resolve_model(model, load_models()), dtype=dtype, start_token_policy=policy, reference_model=reference_model
    )
    paths = DataPaths.from_environment()
    tokenized = load_tokenizer(entry, paths)

    def forward_of(wanted: TokenizedModel) -> ForwardPass:
        _tell_step(f"loading {wanted.entry.name}")
        ready = ForwardPass(load_weights(wanted, device or default_device()), wanted.vocab_size)
        if not ready.packed:
            _tell_step(
                f"{wanted.entry.name} takes no packed branches: infilling runs each anew, which takes far longer"
            )
        return ready

    beside = Beside(frequencies=frequencies, proposer=proposer, seed=seed, device=device)
    with terminal_bar(entry.name) as on_progress:
        scores = score_file(
            file,
            out,
            tokenized,
            selection,
            paths,
            forward_of,
            beside=beside,
            text_column=text_column,
            label_column=label_column,
            on_progress=on_progress,
            on_step=_tell_step,
        )
    tell_skipped(scores.skipped)
    own = scores.summary.own
    rate = f" at {own.tokens_per_second:,.0f} tokens/s" if own.texts_computed else ""
    tell(f"{own.texts} texts: {own.texts_from_cache} from the cache, {own.texts_computed} computed{rate}")
    _show_separation(scores, overrides)
    say(f"{len(scores.table):,} scores in {out}")


def _show_separation(scores: FileScores, overrides: Overrides) -> None:
    """AUROC of each detector's default setting, where the file labels both sides."""
    from audit_pipeline.score_files import separation

    found = separation(scores, overrides)
    if not found:
        return
    table = new_table("detector", "AUROC [95% interval]", "texts")
    for one in found:
        row = {"auroc": one.auroc, "auroc_low": one.interval.low, "auroc_high": one.interval.high}
        name = f"{one.detector} {_setting(one.parameters)}".strip()
        table.add_row(name, _with_interval(row, "auroc"), f"{one.n_members} + {one.n_nonmembers}")
    print_table(table)
    OUT.print("screening only: no control was run; `corpus-audit audit` on a benchmark runs one", soft_wrap=True)


@main.command()
@click.option("--corpus", required=True, type=click.Path(path_type=Path), help="A file or a folder.")
@click.option("--tokenizer", required=True, help="A name in config/models.yaml, a hub id, or a path.")
@click.option("--out", required=True, type=_FILE, help="The Parquet file to write.")
@click.option("--text-column", help="Default: text, else input, else the only column.")
@click.option(
    "--max-tokens-per-document", type=click.IntRange(min=1), help="Default: all; DC-PDD's published code has 1024."
)
def count(
    corpus: Path, tokenizer: str, out: Path, text_column: str | None, max_tokens_per_document: int | None
) -> None:
    """Count the tokens of a reference corpus: a token-frequency table for one tokenizer.

    A count that was stopped goes on where it was, with the same command.
    """
    from audit_pipeline.models.config import load_models, resolve_model
    from audit_pipeline.models.load import load_tokenizer
    from audit_pipeline.references.count import Limits, count_to_file
    from audit_pipeline.tables import require_output

    require_output(out, corpus)
    model = load_tokenizer(resolve_model(tokenizer, load_models()), DataPaths.from_environment())
    limits = Limits(max_tokens_per_document=max_tokens_per_document)
    counted = count_to_file(model, corpus, out, text_column, limits=limits)
    tell_skipped(counted.skipped, counted.skipped_rows)
    say(f"{counted.tokens:,} tokens in {counted.texts:,} texts, {int((counted.counts > 0).sum()):,} distinct, in {out}")


@main.command()
def detectors() -> None:
    """The detectors: what each needs and what it costs."""
    from audit_pipeline.detectors.registry import REGISTRY

    table = new_table(
        "detector", "paper", "needs", "forward tokens a token", "own log-probabilities suffice", "parameters", "score"
    )
    for one in REGISTRY.values():
        parameters = ", ".join(f"{name} ({parameter.default})" for name, parameter in one.parameters.items())
        table.add_row(
            one.name + (" (on request)" if one.on_request else ""),
            one.source,
            ", ".join(sorted(one.needs)),
            one.passes,
            "yes" if one.own_logprobs_suffice else "no",
            parameters or "-",
            one.summary,
        )
    print_table(table)


@main.command()
def models() -> None:
    """The models of config/models.yaml."""
    from audit_pipeline.models.config import load_models
    from audit_pipeline.warehouse.configured import origin

    table = new_table("model", "from", "dtype", "start token", "released", "training cutoff", "licence")
    for entry in load_models().values():
        table.add_row(
            entry.name,
            origin(entry),
            entry.dtype,
            f"{entry.start_token or 'default'} ({entry.start_token_policy})",
            str(entry.release_date or "unknown"),
            str(entry.training_cutoff or "unknown"),
            entry.licence or "unknown",
        )
    print_table(table)


_CHECKED = ("min_k", "min_k_plus_plus", "infilling")


@main.command()
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
            _audit(model, benchmark, refresh=False, device=device, kinds=("base",), logits_budget_gb=None, show=show)
    for benchmark in benchmarks:
        _show_check(DataPaths.from_environment(), benchmark, models)


@main.command()
@click.argument("name")
def study(name: str) -> None:
    """Train a control again and again with one setting changed (config/studies.yaml): what makes members tell."""
    from audit_pipeline.definitions import defs
    from audit_pipeline.orchestration.audit import study as run_study
    from audit_pipeline.warehouse.query import open_read_only

    paths = DataPaths.from_environment()
    run_study(name, defs(), paths, _tell_step)
    with open_read_only(paths.warehouse) as connection:
        rows = connection.sql("SELECT * FROM control_studies WHERE study = $study", params={"study": name})
        found: list[dict[str, Any]] = rows.to_arrow_table().to_pylist()
    table = new_table("setting", "value", "seed", "detector", "AUROC [95% interval]")
    for row in found:
        shown = "not defined" if row["auroc"] is None else f"{row['auroc']:.3f}"
        if row["ci_low"] is not None:
            shown += f" [{row['ci_low']:.3f}, {row['ci_high']:.3f}]"
        detector = f"{row['detector']} {_setting(row['parameters'])}".strip()
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


@main.command()
@click.option("--build", "build_name", metavar="NAME", help="Fetch the sources of a benchmark or family and build it.")
def benchmarks(build_name: str | None) -> None:
    """The benchmarks of config/benchmarks.yaml, and what is built of them."""
    from audit_pipeline.benchmarks.build import read_manifest
    from audit_pipeline.benchmarks.config import load_benchmarks, resolve

    paths = DataPaths.from_environment()
    if build_name is not None:
        from audit_pipeline.definitions import defs
        from audit_pipeline.orchestration.audit import AuditRequest, prepare

        prepare(AuditRequest("", resolve(build_name)), defs(), paths, _tell_step)
    table = new_table("benchmark", "words", "design", "built", "members", "non-members", "description")
    for spec in load_benchmarks().values():
        built = paths.benchmark_manifest(spec.name).exists()
        counts = read_manifest(paths, spec.name)["counts"] if built else {}
        sides = (str(counts.get("members", "-")), str(counts.get("nonmembers", "-")))
        state = "yes" if built else "no"
        table.add_row(spec.name, str(spec.words or "any"), spec.design, state, *sides, spec.settings.description)
    print_table(table)


@main.command()
@click.option("--open", "open_it", is_flag=True, help="Show it in a browser.")
@click.option(
    "--no-text",
    is_flag=True,
    help="Quote no audited text in report and warehouse (for good: set CORPUS_AUDIT_NO_TEXT).",
)
def report(open_it: bool, no_text: bool) -> None:
    """Rebuild the warehouse and the report from what has been audited."""
    from audit_pipeline.definitions import defs
    from audit_pipeline.orchestration.audit import publish

    paths = DataPaths.from_environment()
    include_text = not no_text and "CORPUS_AUDIT_NO_TEXT" not in os.environ
    publish(defs(), paths, _tell_step, include_text=include_text)
    say(f"Report: {paths.report}")
    if open_it:
        webbrowser.open(paths.report.as_uri())


@main.command()
@click.argument("statement")
@click.option("--format", "layout", type=click.Choice(["table", "csv", "json"]), default="table", show_default=True)
def sql(statement: str, layout: str) -> None:
    """Run one reading SQL statement on the warehouse."""
    from audit_pipeline.warehouse.query import query

    rows = query(DataPaths.from_environment().warehouse, statement)
    if layout == "csv":
        _print_csv(rows)
    elif layout == "json":
        names = _each_once(rows.column_names)
        for row in _rows(rows):
            click.echo(json.dumps(dict(zip(names, row, strict=True)), default=str, ensure_ascii=False))
    else:
        _print_rows(rows)


def _rows(table: pa.Table) -> Iterable[tuple[Any, ...]]:
    """The rows by position: a join can yield two columns of one name."""
    try:
        return zip(*(column.to_pylist() for column in table.columns), strict=True)
    except (OverflowError, ValueError) as error:
        raise AuditError(f"a value of the result cannot be shown ({error}): cast it to VARCHAR") from error


def _each_once(names: Sequence[str]) -> list[str]:
    """The names, those that stand again with a number (a, a_1)."""
    unique: list[str] = []
    for name in names:
        numbered = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(1)))
        unique.append(next(one for one in numbered if one not in unique))
    return unique


def _print_csv(rows: pa.Table) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(rows.column_names)
    for row in _rows(rows):
        writer.writerow([_cell(value) for value in row])


def _cell(value: object) -> object:
    """Lists and structs as JSON, true and false as SQL spells them; the rest as it is."""
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, default=str, ensure_ascii=False) if isinstance(value, list | dict) else value


def _print_rows(rows: pa.Table) -> None:
    table = new_table(*rows.column_names)
    for row in _rows(rows):
        table.add_row(*(shown(value) for value in row))
    print_table(table)
    OUT.print(f"{len(rows):,} row(s)", highlight=False)


@main.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Anything but loopback opens it to the network.")
@click.option("--port", default=3000, show_default=True)
def dev(host: str, port: int) -> None:
    """Open the Dagster UI, with its daemon, on this machine."""
    from audit_pipeline.orchestration.in_process import bury_dead_runs, dagster_home, open_instance
    from audit_pipeline.paths import PROJECT_ROOT

    paths = DataPaths.from_environment()
    with open_instance(paths) as instance:
        for run_id in bury_dead_runs(instance):
            tell(f"run {run_id} is marked failed: the process that ran it is gone")
    tell(f"Dagster UI on http://{host}:{port}  (DAGSTER_HOME {dagster_home(paths)}; Ctrl-C ends it)")
    dagster = Path(sys.executable).with_name("dagster")
    workspace = PROJECT_ROOT / "workspace.yaml"
    os.execv(dagster, [str(dagster), "dev", "-w", str(workspace), "-h", host, "-p", str(port)])  # noqa: S606


@main.command()
@click.option("--model", help="The name of its partition: as in config/models.yaml, a hub id, or a path.")
@click.option("--benchmark", help="One benchmark (release_notes_64).")
@click.option("--dry-run", is_flag=True, help="What would go: files, rows, bytes; nothing is touched.")
def forget(model: str | None, benchmark: str | None, dry_run: bool) -> None:
    """Remove a model, or a benchmark, and all that was derived from it.

    Scores, evaluations, lineage, cached token statistics, examples, the partition in Dagster; then warehouse and report
    are rebuilt. Refused while a run uses it. What was killed on the way is finished by the same command.
    """
    if (model is None) == (benchmark is None):
        raise click.UsageError("give either --model or --benchmark")
    from audit_pipeline.definitions import defs
    from audit_pipeline.forget import Target
    from audit_pipeline.orchestration import forgetting

    target = Target("benchmark", benchmark) if benchmark is not None else Target("model", model or "")
    paths = DataPaths.from_environment()
    if dry_run:
        _show_forgotten(forgetting.plan_to_forget(target, defs(), paths), dry_run=True)
    else:
        _show_forgotten(forgetting.forget(target, defs(), paths, _tell_step), dry_run=False)


def _show_forgotten(forgotten: Forgotten, *, dry_run: bool) -> None:
    target = forgotten.target
    if forgotten.buried:
        tell(f"marked {len(forgotten.buried)} dead run(s) of this machine failed and freed their slots")
    table = new_table("would go" if dry_run else "went", "files", "rows", "bytes")
    for one in forgotten.gone:
        table.add_row(one.what, f"{one.files:,}", f"{one.rows:,}", f"{one.bytes:,}")
    if forgotten.had_partition:
        table.add_row("partition in Dagster", "", "", "")
    if table.row_count:
        print_table(table)
    else:
        say(f"Of {target} there is nothing to remove.")
    lines = [f"Stays: {one}" for one in forgotten.kept]
    lines.append("Stays: Dagster's history of its runs, which Dagster removes run by run (in the UI under Runs)")
    lines += [f"Yours, left alone: {path}, the log of a session on an earlier warehouse" for path in forgotten.aside]
    if forgotten.configured:
        lines.append(
            f"config/{target.dimension}s.yaml still names it: take the entry out, or the sensor (where it is on) and "
            "audits add it again"
        )
    elif forgotten.configured is None:
        lines.append(f"config/{target.dimension}s.yaml cannot be read; an entry in it would bring {target.name} back")
    if forgotten.users:
        when = "In use, so it would be refused now" if dry_run else "Used again already"
        lines.append(f"{when}: {', '.join(forgotten.users)}")
    if dry_run:
        lines.append("Nothing was touched.")
    for line in lines:
        say(visible(line))


@main.command()
def doctor() -> None:
    """Check the installation, the models' files, the disk, the data folder and Dagster's runs; 1 where one is amiss.

    Damaged part files of the cache are set aside, as every audit does; nothing else is changed.
    """
    from audit_pipeline.definitions import defs
    from audit_pipeline.doctor import examine
    from audit_pipeline.orchestration.health import examine_dagster

    paths = DataPaths.from_environment()
    findings = [*examine(paths), *examine_dagster(paths, defs())]
    table = new_table("", "what", "finding")
    for finding in findings:
        table.add_row("ok" if finding.ok else "!!", finding.what, finding.words)
    print_table(table)
    if not all(finding.ok for finding in findings):
        sys.exit(1)


for _command in (evaluate, power, canaries, test, export):
    main.add_command(_command)
