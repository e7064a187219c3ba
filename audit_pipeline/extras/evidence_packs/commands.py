"""Commands for evidence that others check: seal, pack, verify. Heavy packages are imported where they are needed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from audit_pipeline.cli.command_declaration import LIMITS, MODEL, Place, Section, argument, command, fields, option
from audit_pipeline.cli.run_setup import (
    build_benchmarks,
    get_writable_paths,
    load_whole_configuration,
    prepare_model,
    resolve_model_option,
)
from audit_pipeline.errors import DataError
from audit_pipeline.pipeline.console import (
    Columns,
    print_message,
    print_result,
    print_step,
    report_slow_work,
    show_table,
)
from audit_pipeline.pipeline.options import BENCHMARK, EXISTING_FILE, FILE, RunOptions

if TYPE_CHECKING:
    from audit_pipeline.benchmarks.settings import BenchmarkSpec
    from audit_pipeline.models.tokenized_model import TokenizedModel
    from audit_pipeline.store.paths import DataPaths

AUTHORITY = option(
    "A timestamp authority (RFC 3161) that stamps the file's digest; nothing else is sent to it.",
    default=None,
    metavar="URL",
)
_MARKS = {True: "ok", False: "!!", None: "--"}
_CHECKS: Columns = (("", "ok", _MARKS.__getitem__), ("what", "what"), ("result", "words"))


@command(Place(Section.PROOF, 10), prints="facts")
def seal(
    model: str = MODEL,
    benchmark: str = option(BENCHMARK.help),
    authority: str | None = AUTHORITY,
    run: RunOptions = fields(*LIMITS),
) -> None:
    """Seal the plan of an audit before the model is run.

    The plan names texts, settings, model and code by their digests. Texts that are missing are fetched and built; the
    model is not run on them. docs/exhibit.md says what the report makes of it.
    """
    paths, configured = get_writable_paths(), resolve_model_option(model)
    specs = load_whole_configuration().benchmarks_named(benchmark)
    tokenized, _ = prepare_model(configured, paths, run)
    build_benchmarks(specs, paths)
    seal_plans(specs, tokenized, paths, authority)


def seal_plans(specs: Sequence[BenchmarkSpec], model: TokenizedModel, paths: DataPaths, authority: str | None) -> None:
    """Seal the plan of every benchmark that is fit, and say so; raises DataError where none is."""
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
            print_message(f"{spec.name} is not sealed: {error}", style="yellow")
            continue
        late = explain_late_plan(plan, pair, paths)
        what = "sealed" if is_new else f"the plan of {plan.sealed_at:%F %T} UTC says the same"
        words.append(f"{spec.name}: {what}; sha256 {plan.sha256}; {plan.timestamp or 'no timestamp'}")
        words += [f"{spec.name}: not planned beforehand: {'; '.join(late)}"] if late else []
        facts[spec.name] = {
            "sha256": plan.sha256,
            "sealed_at": plan.sealed_at,
            "timestamped_at": plan.timestamp and plan.timestamp.time,
            "not_planned_beforehand": late,
        }
    if not facts:
        raise DataError("no benchmark is fit to be audited, so no plan was sealed")
    print_result("\n".join(words), plans=facts)


@command(Place(Section.PROOF, 20), prints="facts")
def pack(
    model: str = MODEL,
    benchmark: str = option(BENCHMARK.help),
    out: Path = option("The pack to write.", FILE, metavar="FILE.zip"),
) -> None:
    """Pack what a finding rests on, so that others can check it.

    The pack holds the full texts, cached statistics, tables, lineage, sealed plans, configuration and versions; not the
    model's weights. `corpus-audit verify` checks it on another machine. docs/exhibit.md says what is in it.
    """
    if out.suffix.lower() != ".zip" or not out.parent.is_dir():
        raise DataError(f"{out}: name a .zip file in a folder that exists")
    paths, configured = get_writable_paths(), resolve_model_option(model)
    configuration = load_whole_configuration()
    specs = configuration.benchmarks_named(benchmark)
    from audit_pipeline.extras.evidence_packs.pack import write_pack
    from audit_pipeline.models.tokenized_model import load_tokenized
    from audit_pipeline.store.integrity import file_sha256
    from audit_pipeline.tables import Pair

    pairs = [Pair(spec.name, configured.name) for spec in specs]
    files = write_pack(out, pairs, load_tokenized(configured, paths), configuration, paths, on_step=print_step)
    size, sha256 = out.stat().st_size, file_sha256(out)
    print_result(
        f"{out}: {files:,} files, {size:,} bytes, sha256 {sha256}\nThe full texts are inside.\n"
        f"To check it: corpus-audit verify {out}",
        out=out,
        files=files,
        bytes=size,
        sha256=sha256,
    )


@command(Place(Section.PROOF, 30))
def verify(
    file: Path = argument(type=EXISTING_FILE),
    rerun: int | None = option(
        "Run N texts and N windows of each benchmark again, with --model.", least=1, metavar="N"
    ),
    seed: int | None = option("Draws those texts. Choose it yourself, after you have the pack."),
    model: str | None = option("The model's weights: a name in config/models.yaml, a hub id, or a path."),
    certificates: Path | None = option(
        "Certificates (PEM) of the timestamp authorities that you trust: confirms the signatures of timestamps.",
        EXISTING_FILE,
    ),
) -> None:
    """Check a pack: its digests, lineage, plan, findings.

    Findings are computed again from the pack's statistics, without the model. The exit code is 1 if a check fails.
    docs/exhibit.md explains each.
    """
    if len({given is None for given in (rerun, seed, model)}) > 1:
        raise click.UsageError("--rerun, --seed and --model go together")
    weights = None if model is None else resolve_model_option(model)
    with report_slow_work("checking") as on_step:
        on_step("the pack")
        from audit_pipeline.extras.evidence_packs.verify import PackRerun, verify_pack

        again = None if weights is None else PackRerun(rerun or 0, seed or 0, weights)
        checks = list(verify_pack(file, rerun=again, certificates=certificates, on_step=on_step))
    show_table("checks", [{"ok": check.ok, "what": check.what, "words": check.words} for check in checks], _CHECKS)
    failed = sum(check.ok is False for check in checks)
    undecided = sum(check.ok is None for check in checks)
    words = f"{failed} of {len(checks)} checks failed" if failed else f"{len(checks) - undecided} checks passed"
    print_result(f"{words}; {undecided} neither passed nor failed", failed=failed, undecided=undecided)
    if failed:
        sys.exit(1)
