"""The command `test ordered`, and the functions that commands on whole test sets share."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from audit_pipeline.cli import shared_options
from audit_pipeline.cli.audit_output import print_conclusions
from audit_pipeline.cli.run_setup import get_writable_paths, open_texts, prepare_model, publish, resolve_model_option
from audit_pipeline.cli.shared_options import PASSES_KEPT, CommandGroup, Section
from audit_pipeline.pipeline.console import print_result, print_skipped
from audit_pipeline.pipeline.options import RunOptions
from audit_pipeline.statistics.shards import PERMUTATIONS, count_items_needed

if TYPE_CHECKING:
    from audit_pipeline.models.tokenized_model import TokenizedModel
    from audit_pipeline.scoring.whole_set_tests import CorpusTest
    from audit_pipeline.store.paths import DataPaths


@click.group("test", cls=CommandGroup, section=Section.AUDIT, position=100)
def whole_set_tests() -> None:
    """Test properties of a whole test set, such as its order."""


@whole_set_tests.command("ordered", keeps=PASSES_KEPT)
@shared_options.model_option
@click.option(
    "--items",
    type=shared_options.PATH,
    required=True,
    help=f"The test set in its published order, one item per row: at least {count_items_needed()} items. Long items "
    "need more shards, and so more items.",
)
@shared_options.device_option
@shared_options.limit_options
@shared_options.text_column_option
@click.option(
    "--shards",
    type=click.IntRange(min=2),
    help="Number of shards (consecutive parts of the test set whose order is tested). Default: a tenth of the number "
    "of items, at least 10 and at most 50, or more shards if these do not fit into the model's context.",
)
@click.option(
    "--permutations",
    type=click.IntRange(1, 10_000),
    default=PERMUTATIONS,
    show_default=True,
    help="Maximum number of random orders per shard.",
)
@click.option(
    "--rule",
    type=click.Choice(["exact", "t_test"]),
    default="exact",
    show_default=True,
    help="Rule for the p-value. exact: from the ranks of the published order among the random orders. "
    "t_test: a one-sided t-test over the shards. Choose before you see a result.",
)
@click.option(
    "--order-by-chance",
    is_flag=True,
    help="State that the published order was drawn at random. The test is valid only if this is true.",
)
@shared_options.quiet_option
def order_test(
    model: str,
    items: Path,
    text_column: str | None,
    shards: int | None,
    permutations: int,
    rule: Literal["exact", "t_test"],
    order_by_chance: bool,
    **run_options: Any,
) -> None:
    """Test whether a model prefers a test set's published order.

    The published order is compared with random orders of the same items.
    """
    from audit_pipeline.scoring.whole_set_tests import run_order_test, write_corpus_test

    stream = open_texts(items, text_column)
    texts = [item.text for item in stream]
    print_skipped(stream.skipped.first, stream.skipped.count)
    chosen = {"shards": shards, "permutations": permutations, "rule": rule, "order_by_chance": order_by_chance}
    result, tokenized, paths = run_whole_set_test(
        run_order_test, model, RunOptions(**run_options), texts, name=items.stem, **chosen
    )
    write_corpus_test(result, tokenized, paths, run_id=f"test-{uuid.uuid4()}")
    publish_whole_set_test(result, paths)


def run_whole_set_test(
    run_test: Callable[..., Any], model: str, options: RunOptions, tested: object, **settings: Any
) -> tuple[Any, TokenizedModel, DataPaths]:
    """Run a test of a whole set, with a progress bar.

    Args:
        run_test: The function that runs the test.
        model: The model, as its option names it.
        options: Device, limits and engine.
        tested: The tested items.
        settings: Further arguments of ``run_test``.

    Returns:
        The result of the test, the model and the data folder.
    """
    from audit_pipeline.pipeline.progress import progress_bar

    paths = get_writable_paths()
    tokenized, backend_of = prepare_model(resolve_model_option(model), paths, options)
    with progress_bar(model) as on_progress:
        return run_test(tokenized, tested, paths, backend_of, on_progress=on_progress, **settings), tokenized, paths


def publish_whole_set_test(result: CorpusTest, paths: DataPaths) -> None:
    """Rebuild warehouse and report, and print the result."""
    publish(paths)
    print_conclusions(paths, result.model, result.benchmark)
    if result.p_value is not None:
        print_result(
            f"{result.test} of {result.model} on {result.benchmark}: p = {result.p_value:.4g}; {result.claim_level}"
        )
    print_result(f"{result.method}\nValid if: {result.assumption}\nReport: {paths.report}")
