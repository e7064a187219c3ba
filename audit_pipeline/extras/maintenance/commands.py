"""Commands that keep a data folder in order: forget, doctor."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from audit_pipeline.cli.run_setup import get_writable_paths, load_dagster_definitions
from audit_pipeline.cli.shared_options import GO_ON, ListedCommand, Section, table_output_options
from audit_pipeline.pipeline import console
from audit_pipeline.pipeline.console import Columns
from audit_pipeline.report.number_format import format_thousands
from audit_pipeline.store.paths import DataPaths

if TYPE_CHECKING:
    from audit_pipeline.extras.maintenance.forgetting import Removal


_REMOVED: Columns = (
    ("removed", "what"),
    ("files", "files", format_thousands),
)
_FINDINGS: Columns = (("", "ok", lambda ok: "ok" if ok else "!!"), ("what", "what"), ("finding", "finding"))


@click.command(cls=ListedCommand, section=Section.UPKEEP, position=30, keeps=f"Removed files stay removed. {GO_ON}")
@click.option("--model", help="Model to remove: a name in config/models.yaml, a hub id, or a path.")
@click.option("--benchmark", help="Benchmark to remove, such as release_notes_64.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed. Nothing is removed.")
@table_output_options
def forget(model: str | None, benchmark: str | None, dry_run: bool) -> None:
    """Remove a model or a benchmark with all derived data.

    This removes scores, evaluations, cached token statistics, examples, their ledger entries and the partition in
    Dagster, and then rebuilds warehouse and report. The removal is refused while an audit is unfinished. After an
    interruption, the same command finishes the removal.
    """
    if (model is None) == (benchmark is None):
        raise click.UsageError("Give either --model or --benchmark.")
    paths = get_writable_paths()
    from audit_pipeline.extras.maintenance import forgetting
    from audit_pipeline.extras.maintenance.forgetting import RemovalTarget

    target = RemovalTarget("benchmark", benchmark) if benchmark is not None else RemovalTarget("model", model or "")
    if dry_run:
        _show_removal(forgetting.plan_removal(target, paths), dry_run=True)
    else:
        _show_removal(forgetting.forget(target, load_dagster_definitions(), paths, console.print_step), dry_run=False)


def _show_removal(removal: Removal, *, dry_run: bool) -> None:
    target = removal.target
    if removal.dead_runs:
        console.print_message(
            f"{len(removal.dead_runs)} run(s) on this machine had no process any more. They were marked as failed, and "
            "their locks were released."
        )
    rows = removal.list_removed_kinds()
    if removal.had_partition:
        rows.append({"what": "partition in Dagster", "files": None})
    name = "would_go" if dry_run else "went"
    if rows:
        console.show_table(name, rows, [("would be removed", "what"), *_REMOVED[1:]] if dry_run else _REMOVED)
    else:
        console.print_result(f"There is no data of {target} to remove.", **{name: rows})
    lines = [f"Kept: {name}" for name in removal.retained_data]
    lines.append("Kept: the run history in Dagster. Delete runs in the UI, under Runs.")
    if removal.configured:
        lines.append(
            f"config/{target.dimension}s.yaml still lists {target.name}. Remove the entry. Otherwise audits, and "
            f"sensors that are switched on, add {target.name} again."
        )
    elif removal.configured is None:
        lines.append(
            f"config/{target.dimension}s.yaml cannot be read. If the file lists {target.name}, audits add "
            f"{target.name} again. Correct the file, and remove the entry."
        )
    if dry_run:
        lines.append("Nothing was removed.")
    for line in lines:
        console.print_result(console.escape_control_characters(line))


@click.command(cls=ListedCommand, section=Section.UPKEEP, position=20)
@click.option(
    "--deep", is_flag=True, help="Also compare every stored file with its digest, which reads the whole data folder."
)
@click.option(
    "--all",
    "names_all",
    envvar="CORPUS_AUDIT_DOCTOR_ALL",
    is_flag=True,
    help="Show all files, packages and runs of a finding. Default: the first five.",
)
@table_output_options
def doctor(deep: bool, names_all: bool) -> None:
    """Check the installation, the configuration and stored data.

    The exit code is 1 if anything is wrong. As in every audit, damaged files of the cache are renamed, and
    tokenizers are cached. Nothing else is changed.
    """
    with console.report_slow_work("checking") as look:
        look("the installation")
        from audit_pipeline.extras.maintenance.doctor import examine_dagster, run_checks

        paths = DataPaths.from_environment()
        findings = run_checks(paths, deep=deep, on_check=look)
        look("Dagster's runs")
        findings.append(examine_dagster(paths))
    rows = [
        {"ok": finding.ok, "what": finding.what, "finding": finding.describe(names_all=names_all)}
        for finding in findings
    ]
    console.show_table("findings", rows, _FINDINGS)
    if not all(finding.ok for finding in findings):
        sys.exit(1)
