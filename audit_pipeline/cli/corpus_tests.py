"""Commands that test a whole corpus: canaries, test canaries, test ordered."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from audit_pipeline.catalogue.paths import DataPaths, texts_are_quoted
from audit_pipeline.cli.audit_output import say_conclusions
from audit_pipeline.cli.options import BETWEEN_0_AND_1, DEVICE, LIMITS, MODEL, PASSES_KEPT, TEXT_COLUMN, keeps
from audit_pipeline.cli.shared import get_writable_paths, load_dagster_definitions, prepare_model, resolve_model_option
from audit_pipeline.evidence.shards import PERMUTATIONS, count_items_needed
from audit_pipeline.operate.console import say, tell, tell_skipped, tell_step
from audit_pipeline.operate.options import FILE, PATH, RunOptions

if TYPE_CHECKING:
    from audit_pipeline.models.tokenized_model import TokenizedModel
    from audit_pipeline.scoring.corpus_tests import CorpusTest


@click.command()
@click.option("--sets", required=True, type=click.IntRange(min=1), help="Number of canaries to publish.")
@click.option("--alternatives", default=99, show_default=True, help="Unpublished alternatives per canary.")
@click.option("--words", default=12, show_default=True, help="Random words, or blocks of digits, per canary.")
@click.option(
    "--style",
    type=click.Choice(["words", "hex", "digits"]),
    default="words",
    show_default=True,
    help="What the random part consists of.",
)
@click.option(
    "--template",
    default="{canary}",
    show_default=True,
    help="The text around the random part, which replaces {canary}.",
)
@click.option("--out", required=True, type=FILE, help="The .jsonl file to write. Keep it, and keep it secret.")
def canaries(sets: int, alternatives: int, words: int, style: Any, template: str, out: Path) -> None:
    """Draw random canaries to plant in texts before publication.

    `corpus-audit test canaries` tests later whether a model was trained on them.
    """
    from audit_pipeline.evidence.canaries import make_canaries, seal_path, write_canaries

    drawn = make_canaries(sets, alternatives, words=words, style=style, template=template)
    seal = write_canaries(out, drawn)
    say("Publish these, each in a place of its own:")
    for text in drawn.to_publish:
        say(f"  {text}")
    say(f"\nAll of them, with the alternatives: {out} (secret); its seal: {seal_path(out)} (sha256 {seal.sha256})")


@keeps(PASSES_KEPT)
@click.group()
def test() -> None:
    """Test a whole corpus: planted canaries, or a test set's order."""


@test.command("canaries")
@MODEL
@DEVICE
@LIMITS
@click.option("--canaries", "file", required=True, type=FILE, help="The file that `corpus-audit canaries` wrote.")
@click.option(
    "--detector", default="loss", show_default=True, help="A detector that needs only the pass over the text itself."
)
@click.option("--alpha", default=0.05, show_default=True, type=BETWEEN_0_AND_1, help="Significance level.")
def test_canaries(model: str, file: Path, detector: str, alpha: float, **given: Any) -> None:
    """Test whether a model ranks published canaries highest.

    They are compared with the alternatives that were drawn in the same way and never published.
    """
    from audit_pipeline.operate.progress import progress_bar
    from audit_pipeline.scoring.corpus_tests import run_canary_test

    paths = get_writable_paths()
    tokenized, backend_of = prepare_model(resolve_model_option(model), paths, RunOptions(**given))
    with progress_bar(model) as on_progress:
        result = run_canary_test(
            tokenized, file, paths, backend_of, detector=detector, alpha=alpha, on_progress=on_progress
        )
    _publish_test_result(result, tokenized, paths)


@test.command("ordered")
@MODEL
@DEVICE
@LIMITS
@click.option(
    "--items",
    "file",
    required=True,
    type=PATH,
    help=f"The test set in its published order, one item per row: at least {count_items_needed()} items, and more "
    "where they are so long that the model's context calls for more shards.",
)
@TEXT_COLUMN
@click.option(
    "--shards",
    type=click.IntRange(min=2),
    help="Number of shards. Default: a tenth of the items, from 10 to 50, and more where these do not fit the model's "
    "context.",
)
@click.option(
    "--permutations",
    default=PERMUTATIONS,
    show_default=True,
    type=click.IntRange(1, 10_000),
    help="Random orders per shard, or all that it has.",
)
@click.option(
    "--rule",
    type=click.Choice(["exact", "t_test"]),
    default="exact",
    show_default=True,
    help="How the p-value is computed.",
)
@click.option(
    "--order-by-chance", is_flag=True, help="The published order was drawn at random, which makes this a sound test."
)
def test_ordered(
    model: str,
    file: Path,
    text_column: str | None,
    shards: int | None,
    permutations: int,
    rule: Any,
    order_by_chance: bool,
    **given: Any,
) -> None:
    """Test whether a model prefers a test set's published order.

    It is compared with random orders of the same items.
    """
    from audit_pipeline.fetch.formats import open_texts
    from audit_pipeline.operate.progress import progress_bar
    from audit_pipeline.scoring.corpus_tests import run_order_test

    paths = get_writable_paths()
    items = open_texts(file, text_column)
    if items.rows.note is not None:
        tell(items.rows.note)
    texts = [item.text for item in items]
    tell_skipped(items.skipped.first, items.skipped.count)
    tokenized, backend_of = prepare_model(resolve_model_option(model), paths, RunOptions(**given))
    with progress_bar(model) as on_progress:
        result = run_order_test(
            tokenized,
            texts,
            paths,
            backend_of,
            name=file.stem,
            shards=shards,
            permutations=permutations,
            rule=rule,
            order_by_chance=order_by_chance,
            on_progress=on_progress,
        )
    _publish_test_result(result, tokenized, paths)


def _publish_test_result(result: CorpusTest, model: TokenizedModel, paths: DataPaths) -> None:
    """Write the result with its lineage, rebuild warehouse and report, and say it."""
    definitions = load_dagster_definitions()
    from audit_pipeline.operate.dagster.audit import publish
    from audit_pipeline.scoring.corpus_tests import write_corpus_test

    write_corpus_test(result, model, paths, run_id=f"test-{uuid.uuid4()}")
    publish(definitions, paths, tell_step, include_text=texts_are_quoted())
    say_conclusions(paths, result.model, result.benchmark)
    if result.p_value is not None:
        say(f"{result.test} of {result.model} on {result.benchmark}: p = {result.p_value:.4g}; {result.claim_level}")
    say(f"{result.method}\nHolds if: {result.assumption}\nReport: {paths.report}")
