"""Commands without Dagster: score, count.

What belongs here: options, their order of calls, and what is printed. What does not: any work. Heavy packages are
imported by the command that needs them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from audit_pipeline.cli.shared import FILE, data_to_write, setting, tell_step, with_interval
from audit_pipeline.console import OUT, new_table, print_table, say, tell, tell_skipped
from audit_pipeline.paths import DataPaths

if TYPE_CHECKING:
    from audit_pipeline.detectors.registry import Overrides
    from audit_pipeline.score_files import FileScores


@click.command()
@click.option("--model", required=True, help="A name in config/models.yaml, a hub id, or a path.")
@click.option("--texts", "file", required=True, type=click.Path(path_type=Path), help=".jsonl, .csv, .parquet or .txt")
@click.option("--out", required=True, type=FILE, help="The Parquet file to write.")
@click.option("--detectors", help="Default: all. See `corpus-audit detectors`.")
@click.option("--grid", is_flag=True, help="Every setting of each detector's parameter grid.")
@click.option("--set", "assignments", multiple=True, metavar="DETECTOR.PARAMETER=VALUE", help="Repeatable.")
@click.option("--text-column", help="Default: text, else input, else the only column.")
@click.option("--label-column", default="label", show_default=True, help="1 member, 0 non-member; may be absent.")
@click.option("--start-token", "policy", type=click.Choice(["always", "tokenizer"]), help="Default: the model's entry.")
@click.option("--dtype", type=click.Choice(["float32", "bfloat16", "float16"]), help="Default: the model's entry.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), help="Default: cuda where there is one.")
@click.option("--reference-model", help="For the detector reference. Default: the model's entry.")
@click.option("--frequencies", type=FILE, help="For dc_pdd: a table that `corpus-audit count` wrote.")
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

    paths = data_to_write()
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
    tokenized = load_tokenizer(entry, paths)

    def forward_of(wanted: TokenizedModel) -> ForwardPass:
        tell_step(f"loading {wanted.entry.name}")
        ready = ForwardPass(load_weights(wanted, device or default_device()), wanted.vocab_size)
        if not ready.packed:
            tell_step(f"{wanted.entry.name} takes no packed branches: infilling runs each anew, which takes far longer")
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
            on_step=tell_step,
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
        name = f"{one.detector} {setting(one.parameters)}".strip()
        table.add_row(name, with_interval(row, "auroc"), f"{one.n_members} + {one.n_nonmembers}")
    print_table(table)
    OUT.print("screening only: no control was run; `corpus-audit audit` on a benchmark runs one", soft_wrap=True)


@click.command()
@click.option("--corpus", required=True, type=click.Path(path_type=Path), help="A file or a folder.")
@click.option("--tokenizer", required=True, help="A name in config/models.yaml, a hub id, or a path.")
@click.option("--out", required=True, type=FILE, help="The Parquet file to write.")
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
