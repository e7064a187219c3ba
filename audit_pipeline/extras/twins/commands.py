"""Commands on twins and canaries: twins draw, twins test, canaries."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from audit_pipeline.cli import shared_options
from audit_pipeline.cli.output import build_estimate_formatter
from audit_pipeline.cli.run_setup import open_texts
from audit_pipeline.cli.shared_options import PASSES_KEPT, CommandGroup, ListedCommand, Section
from audit_pipeline.cli.whole_set_tests import publish_whole_set_test, run_whole_set_test
from audit_pipeline.pipeline.console import Columns, print_result, show_table
from audit_pipeline.pipeline.options import RunOptions
from audit_pipeline.report.number_format import format_probability, format_thousands

if TYPE_CHECKING:
    from audit_pipeline.extras.twins.publication_draw import Twins

_TWINS: Columns = (
    ("group", lambda row: row["group"] or "all"),
    ("detector", "detector"),
    ("items with scores", "items", format_thousands),
    ("secret versions", "others", format_thousands),
    ("share of secret versions with lower scores [95% interval]", build_estimate_formatter("superiority")),
    ("p", "p_value", format_probability),
)


@click.group(cls=CommandGroup, section=Section.AUDIT, position=85)
def twins() -> None:
    """Draw versions of texts to publish, and test models for them."""


@twins.command("draw")
@click.argument("versions", type=shared_options.PATH)
@click.option(
    "--out", type=shared_options.FILE, required=True, help=".jsonl file to write, with the versions to publish."
)
@click.option(
    "--secret",
    type=shared_options.FILE,
    required=True,
    help="Secret file to write, with all versions and the key. Keep it until you have tested all models.",
)
@shared_options.authority_option
@shared_options.json_option
@shared_options.quiet_option
def draw(versions: Path, out: Path, secret: Path, authority: str | None) -> None:
    """Draw which version of each item to publish.

    VERSIONS is a file with one row per item. The column item or id contains its name. The column versions (a list), or
    the columns version_1, version_2 …, contain its texts. The column group is optional. One version of each item is
    drawn at random.
    Later, `corpus-audit twins test` tests whether a model prefers the published versions. docs/twins.md has advice.
    """
    from audit_pipeline.extras.twins.publication_draw import draw_twins, read_items, require_new_file, write_published

    require_new_file(out)
    items = read_items(versions)
    drawn = draw_twins(items, secret, authority)
    write_published(out, drawn)
    print_result(f"{out} contains the versions of {len(items):,} items to publish.", items=len(items), out=out)
    _print_secret(secret, drawn)


@click.command(cls=ListedCommand, section=Section.AUDIT, position=90)
@click.option("--sets", type=shared_options.AT_LEAST_1, required=True, help="Number of canaries to publish.")
@click.option(
    "--out",
    type=shared_options.FILE,
    required=True,
    help="Secret file to write, with all canaries and the key. Keep it until you have tested all models.",
)
@click.option(
    "--alternatives", type=int, default=99, show_default=True, help="Number of unpublished alternatives per canary."
)
@click.option(
    "--template",
    default="{canary}",
    show_default=True,
    help="Text around the random words, which replace {canary}.",
)
@shared_options.authority_option
@shared_options.json_option
@shared_options.quiet_option
def canaries(sets: int, alternatives: int, template: str, out: Path, authority: str | None) -> None:
    """Draw random canaries to plant in texts before publication.

    Canaries are twins whose versions are random words. Later, `corpus-audit twins test` tests whether a model was
    trained on them.
    """
    from audit_pipeline.extras.twins.publication_draw import draw_twins, make_canaries

    drawn = draw_twins(make_canaries(sets, alternatives, template), out, authority)
    texts = drawn.published_texts
    print_result("\n  ".join(("Publish these texts, each in a different place:", *texts)), publish=texts)
    _print_secret(out, drawn)


def _print_secret(secret: Path, twins: Twins) -> None:
    print_result(
        f"Keep this file secret: {secret} ({twins.origin}, sha256 {twins.sha256})", secret=secret, sha256=twins.sha256
    )


@twins.command("test", keeps=PASSES_KEPT)
@shared_options.model_option
@click.option(
    "--secret",
    type=shared_options.INPUT_FILE,
    required=True,
    help="Secret file that `corpus-audit twins draw` or `corpus-audit canaries` wrote.",
)
@shared_options.device_option
@shared_options.limit_options
@click.option(
    "--published",
    type=shared_options.PATH,
    help="File with the published versions, to check that the secret file belongs to them. Default: no check.",
)
@click.option(
    "--detector",
    multiple=True,
    metavar="NAME",
    help="Detector that needs one pass over each text. Choose it before you see any score. Repeat the option to "
    "combine several detectors. Default: loss.",
)
@shared_options.table_output_options
def twins_test(model: str, secret: Path, published: Path | None, detector: tuple[str, ...], **run_options: Any) -> None:
    """Test whether a model prefers the published versions.

    Every version is scored. The published version of each item gets a rank among the item's versions.
    """
    from audit_pipeline.extras.twins import DETECTORS
    from audit_pipeline.extras.twins.model_test import run_twins_test, write_twins_test
    from audit_pipeline.extras.twins.publication_draw import read_twins
    from audit_pipeline.store.ledger import LineageStep

    drawn = read_twins(secret)
    if published is not None:
        drawn.require_published({row.text for row in open_texts(published, None)}, published)
    chosen = {"name": secret.stem, "detectors": detector or DETECTORS}
    result, tokenized, paths = run_whole_set_test(run_twins_test, model, RunOptions(**run_options), drawn, **chosen)
    step = LineageStep.now(f"twins-{uuid.uuid4()}", "twins", "1")
    write_twins_test(result, tokenized, paths, step, {"secret": drawn.sha256})
    show_table("twins", result.rows, _TWINS)
    publish_whole_set_test(result.test, paths)
