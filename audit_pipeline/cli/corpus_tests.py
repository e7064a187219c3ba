"""Commands that test whole corpora and test sets: canaries, test canaries, test ordered."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from audit_pipeline.cli.audit_output import say_conclusions
from audit_pipeline.cli.options import (
    BETWEEN_0_AND_1,
    DEVICE,
    LIMITS,
    MODEL,
    PASSES_KEPT,
    TEXT_COLUMN,
    CommandGroup,
    Place,
    Section,
    command,
    fields,
    option,
)
from audit_pipeline.cli.shared import get_writable_paths, open_texts, prepare_model, publish, resolve_model_option
from audit_pipeline.pipeline.console import print_skipped, say
from audit_pipeline.pipeline.options import FILE, RunOptions
from audit_pipeline.statistics.shards import PERMUTATIONS, count_items_needed

if TYPE_CHECKING:
    from audit_pipeline.models.tokenized_model import TokenizedModel
    from audit_pipeline.scoring.corpus_tests import CorpusTest


@command(Place(Section.AUDIT, 90), prints="words")
def canaries(
    sets: int = option("Number of canaries to publish.", least=1),
    alternatives: int = option("Unpublished alternatives per canary.", default=99),
    words: int = option("Random words, or blocks of digits, per canary.", default=12),
    style: Literal["words", "hex", "digits"] = option("What the random part consists of.", default="words"),
    template: str = option("The text around the random part, which replaces {canary}.", default="{canary}"),
    out: Path = option("The .jsonl file to write. Keep it, and keep it secret.", FILE),
) -> None:
    """Draw random canaries to plant in texts before publication.

    `corpus-audit test canaries` tests later whether a model was trained on them.
    """
    from audit_pipeline.statistics.canaries import make_canaries, seal_path, write_canaries

    drawn = make_canaries(sets, alternatives, words=words, style=style, template=template)
    seal = write_canaries(out, drawn)
    say("Publish these, each in a place of its own:")
    for text in drawn.to_publish:
        say(f"  {text}")
    say(f"\nAll of them, with the alternatives: {out} (secret); its seal: {seal_path(out)} (sha256 {seal.sha256})")


@command(name="canaries", keeps=PASSES_KEPT, prints="words")
def canary_test(
    model: str = MODEL,
    run: RunOptions = fields(*DEVICE, *LIMITS),
    canaries: Path = option("The file that `corpus-audit canaries` wrote.", FILE),
    detector: str = option("A detector that needs only the pass over the text itself.", default="loss"),
    alpha: float = option("Significance level.", BETWEEN_0_AND_1, 0.05),
) -> None:
    """Test whether a model ranks published canaries highest.

    They are compared with the alternatives that were drawn in the same way and never published.
    """
    from audit_pipeline.scoring.corpus_tests import run_canary_test

    _run_corpus_test(run_canary_test, model, run, canaries, detector=detector, alpha=alpha)


@command(name="ordered", keeps=PASSES_KEPT, prints="words")
def order_test(
    model: str = MODEL,
    run: RunOptions = fields(*DEVICE, *LIMITS),
    items: Path = option(
        f"The test set in its published order, one item per row: at least {count_items_needed()} items, and more where "
        "they are so long that the model's context calls for more shards."
    ),
    text_column: str | None = TEXT_COLUMN,
    shards: int | None = option(
        "Number of shards. Default: a tenth of the items, from 10 to 50, and more where these do not fit the model's "
        "context.",
        least=2,
    ),
    permutations: int = option("Random orders per shard, or all that it has.", click.IntRange(1, 10_000), PERMUTATIONS),
    rule: Literal["exact", "t_test"] = option("How the p-value is computed.", default="exact"),
    order_by_chance: bool = option("The published order was drawn at random, which makes this a sound test."),
) -> None:
    """Test whether a model prefers a test set's published order.

    It is compared with random orders of the same items.
    """
    from audit_pipeline.scoring.corpus_tests import run_order_test

    stream = open_texts(items, text_column)
    texts = [item.text for item in stream]
    print_skipped(stream.skipped.first, stream.skipped.count)
    chosen = {"shards": shards, "permutations": permutations, "rule": rule, "order_by_chance": order_by_chance}
    _run_corpus_test(run_order_test, model, run, texts, name=items.stem, **chosen)


test = CommandGroup(
    "test",
    place=Place(Section.AUDIT, 100),
    commands=[canary_test, order_test],
    help="Test a whole corpus: planted canaries, or a test set's order.",
)


def _run_corpus_test(
    run_test: Callable[..., CorpusTest], model: str, options: RunOptions, tested: object, **settings: Any
) -> None:
    """Run a test, write the result with its lineage, rebuild warehouse and report, and say it."""
    from audit_pipeline.pipeline.progress import progress_bar
    from audit_pipeline.scoring.corpus_tests import write_corpus_test

    paths = get_writable_paths()
    tokenized: TokenizedModel
    tokenized, backend_of = prepare_model(resolve_model_option(model), paths, options)
    with progress_bar(model) as on_progress:
        result = run_test(tokenized, tested, paths, backend_of, on_progress=on_progress, **settings)
    write_corpus_test(result, tokenized, paths, run_id=f"test-{uuid.uuid4()}")
    publish(paths)
    say_conclusions(paths, result.model, result.benchmark)
    if result.p_value is not None:
        say(f"{result.test} of {result.model} on {result.benchmark}: p = {result.p_value:.4g}; {result.claim_level}")
    say(f"{result.method}\nHolds if: {result.assumption}\nReport: {paths.report}")
