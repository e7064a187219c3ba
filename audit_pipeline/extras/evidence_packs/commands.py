"""Commands for evidence that others can check: seal, pack, verify."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from audit_pipeline.cli import run_setup, shared_options
from audit_pipeline.cli.shared_options import ListedCommand, Section
from audit_pipeline.errors import DataError
from audit_pipeline.pipeline import console
from audit_pipeline.pipeline.console import Columns
from audit_pipeline.pipeline.options import RunOptions

if TYPE_CHECKING:
    from audit_pipeline.benchmarks.settings import BenchmarkSpec
    from audit_pipeline.models.tokenized_model import TokenizedModel
    from audit_pipeline.store.paths import DataPaths

_MARKS = {True: "ok", False: "!!", None: "--"}
_CHECKS: Columns = (("", "ok", _MARKS.__getitem__), ("what", "what"), ("result", "words"))


@click.command(cls=ListedCommand, section=Section.PROOF, position=10)
@shared_options.model_option
@shared_options.benchmark_option
@shared_options.authority_option
@shared_options.limit_options
@shared_options.json_option
@shared_options.quiet_option
def seal(model: str, benchmark: str, authority: str | None, **limits: Any) -> None:
    """Seal the plan of an audit before the model is run.

    The plan contains the digests of texts, settings, model and code. Missing texts are fetched and built, but the model
    is not run on them. docs/exhibit.md explains how the report uses the plan.
    """
    paths = run_setup.get_writable_paths()
    configured = run_setup.resolve_model_option(model)
    specs = run_setup.load_whole_configuration().benchmarks_named(benchmark)
    tokenized, _ = run_setup.prepare_model(configured, paths, RunOptions(**limits))
    run_setup.build_benchmarks(specs, paths)
    seal_plans(specs, tokenized, paths, authority)


def seal_plans(specs: Sequence[BenchmarkSpec], model: TokenizedModel, paths: DataPaths, authority: str | None) -> None:
    """Seal and print the plan of every benchmark that can be audited.

    Raises:
        DataError: If no benchmark can be audited.
    """
    from audit_pipeline.extras.evidence_packs.sealed_plan import explain_late_plan, seal_plan
    from audit_pipeline.tables import Pair

    words: list[str] = []
    facts: dict[str, dict[str, object]] = {}
    for spec in specs:
        pair = Pair(spec.name, model.entry.name)
        try:
            plan, is_new = seal_plan(pair, model, paths, authority)
        except DataError as error:
            if len(specs) == 1:
                raise
            console.print_message(f"The plan of {spec.name} is not sealed: {error}", style="yellow")
            continue
        late = explain_late_plan(plan, pair, paths)
        what = "sealed" if is_new else f"unchanged since the plan of {plan.sealed_at:%F %T} UTC"
        words.append(f"{spec.name}: {what}; sha256 {plan.sha256}; {plan.timestamp or 'no timestamp'}")
        if late:
            words.append(f"{spec.name}: the findings will count as not planned beforehand: {'; '.join(late)}")
        facts[spec.name] = {
            "sha256": plan.sha256,
            "sealed_at": plan.sealed_at,
            "timestamped_at": plan.timestamp and plan.timestamp.time,
            "not_planned_beforehand": late,
        }
    if not facts:
        raise DataError("No benchmark can be audited, so no plan was sealed. The messages above state the reasons.")
    console.print_result("\n".join(words), plans=facts)


@click.command(cls=ListedCommand, section=Section.PROOF, position=20)
@shared_options.model_option
@shared_options.benchmark_option
@click.option(
    "--out",
    type=shared_options.FILE,
    required=True,
    metavar="FILE.zip",
    help="Write the pack to this .zip file. Its folder must exist.",
)
@shared_options.json_option
@shared_options.quiet_option
def pack(model: str, benchmark: str, out: Path) -> None:
    """Pack the evidence of findings, so that others can check it.

    The pack contains the full texts, cached statistics, tables, lineage, sealed plans, configuration and versions, but
    not the model's weights. `corpus-audit verify` checks it on another machine. docs/exhibit.md describes its files.
    """
    if out.suffix.lower() != ".zip" or not out.parent.is_dir():
        raise DataError(f"--out {out} must be a .zip file in an existing folder.")
    paths = run_setup.get_writable_paths()
    configured = run_setup.resolve_model_option(model)
    configuration = run_setup.load_whole_configuration()
    specs = configuration.benchmarks_named(benchmark)
    from audit_pipeline.extras.evidence_packs.pack import write_pack
    from audit_pipeline.models.tokenized_model import load_tokenized
    from audit_pipeline.store.integrity import file_sha256
    from audit_pipeline.tables import Pair

    pairs = [Pair(spec.name, configured.name) for spec in specs]
    files = write_pack(out, pairs, load_tokenized(configured, paths), configuration, paths, on_step=console.print_step)
    size = out.stat().st_size
    sha256 = file_sha256(out)
    console.print_result(
        f"{out}: {files:,} files, {size:,} bytes, sha256 {sha256}\nThe pack contains the full texts.\n"
        f"To check it: corpus-audit verify {out}",
        out=out,
        files=files,
        bytes=size,
        sha256=sha256,
    )


@click.command(cls=ListedCommand, section=Section.PROOF, position=30)
@click.argument("file", type=shared_options.EXISTING_FILE)
@click.option(
    "--rerun",
    type=shared_options.AT_LEAST_1,
    metavar="N",
    help="Run N texts and N windows of each benchmark again, and compare the log-probabilities with the pack's. "
    "Requires --seed and --model. Default: the model is not run.",
)
@click.option(
    "--seed",
    type=int,
    help="Seed that selects the texts and windows of --rerun. Choose it yourself after you have received the pack.",
)
@click.option("--model", help="Model to run with --rerun: a name in config/models.yaml, a hub id, or a path.")
@click.option(
    "--certificates",
    type=shared_options.EXISTING_FILE,
    help="PEM file with certificates of timestamp authorities that you trust. Default: the signatures of timestamps "
    "are not checked.",
)
@shared_options.table_output_options
def verify(file: Path, rerun: int | None, seed: int | None, model: str | None, certificates: Path | None) -> None:
    """Check a pack: its digests, lineage, plans and findings.

    Findings are computed again from the pack's token statistics, without the model. The exit code is 1 if a check
    fails. docs/exhibit.md explains the checks.
    """
    if len({given is None for given in (rerun, seed, model)}) > 1:
        raise click.UsageError(
            "--rerun, --seed and --model require each other. Give all three options or none of them."
        )
    weights = None if model is None else run_setup.resolve_model_option(model)
    with console.report_slow_work("checking") as on_step:
        on_step("the pack")
        from audit_pipeline.extras.evidence_packs.verify import PackRerun, verify_pack

        again = None if weights is None else PackRerun(rerun or 0, seed or 0, weights)
        checks = list(verify_pack(file, rerun=again, certificates=certificates, on_step=on_step))
    console.show_table(
        "checks", [{"ok": check.ok, "what": check.what, "words": check.message} for check in checks], _CHECKS
    )
    failed = sum(check.ok is False for check in checks)
    undecided = sum(check.ok is None for check in checks)
    words = f"{failed} of {len(checks)} checks failed" if failed else f"{len(checks) - undecided} checks passed"
    console.print_result(f"{words}; {undecided} neither passed nor failed", failed=failed, undecided=undecided)
    if failed:
        sys.exit(1)
