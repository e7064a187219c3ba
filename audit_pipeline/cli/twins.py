"""Commands on twins: twins draw, twins test, and canaries, whose versions are random words."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from audit_pipeline.cli.audit_output import say_conclusions
from audit_pipeline.cli.exhibit import AUTHORITY
from audit_pipeline.cli.options import (
    BETWEEN_0_AND_1,
    DEVICE,
    LIMITS,
    MODEL,
    PASSES_KEPT,
    argument,
    command,
    fields,
    option,
)
from audit_pipeline.cli.output import build_estimate_formatter
from audit_pipeline.cli.shared import get_writable_paths, prepare_model, publish, resolve_model_option
from audit_pipeline.pipeline.console import Columns, say, show_table, tell_skipped
from audit_pipeline.pipeline.options import FILE, PATH, RunOptions
from audit_pipeline.report.number_format import format_thousands, probability

if TYPE_CHECKING:
    from audit_pipeline.extras.twins.drawing import Twins

_SECRET = option("The secret file that the versions were drawn into.", FILE)
_DETECTORS = option(
    "A detector that needs the text's own pass alone, named before scores are looked at; several decide together. "
    "Default: loss.",
    metavar="NAME",
)
_ALPHA = option("Significance level that the test must be able to reach.", BETWEEN_0_AND_1, 0.05)
_TWINS: Columns = (
    ("items", lambda row: row["group"] or "all"),
    ("detector", "detector"),
    ("items with scores", "items", format_thousands),
    ("secret versions", "others", format_thousands),
    ("published one scores above [95% interval]", build_estimate_formatter("superiority")),
    ("p", "p_value", probability),
)


@command(prints="facts")
def draw(
    versions: Path = argument(type=PATH),
    out: Path = option("The .jsonl file to write, with what to publish.", FILE),
    secret: Path = option("The secret file to write: versions and key. Keep it until models are tested.", FILE),
    authority: str | None = AUTHORITY,
) -> None:
    """Draw which version of each item to publish.

    VERSIONS is a file of rows, one an item: its name in the column item or id, its texts in versions (a list) or in
    version_1, version_2 …, and, if it has one, its group. Chance draws one version of each; `corpus-audit twins test`
    tests later whether a model prefers the published ones. docs/twins.md says what to heed.
    """
    from audit_pipeline.extras.twins.drawing import draw_twins, read_items, require_new, write_published

    require_new(out)
    items = read_items(versions)
    twins = draw_twins(items, secret, authority)
    write_published(out, twins)
    sizes = sorted({len(item.versions) for item in items})
    among = str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    say(f"To publish: {out}: {len(items):,} items, each drawn from {among} versions", items=len(items), out=out)
    _say_secret(secret, twins)


@command(prints="facts")
def canaries(
    sets: int = option("Number of canaries to publish.", least=1),
    alternatives: int = option("Unpublished alternatives per canary.", default=99),
    words: int = option("Random words per canary.", default=12),
    template: str = option("The text around the random part, which replaces {canary}.", default="{canary}"),
    out: Path = option("The secret file to write. Keep it until models are tested.", FILE),
    authority: str | None = AUTHORITY,
) -> None:
    """Draw random canaries to plant in texts before publication.

    Canaries are twins whose versions are random words: `corpus-audit twins test` tests later whether a model was
    trained on them.
    """
    from audit_pipeline.extras.twins.canaries import make_canaries
    from audit_pipeline.extras.twins.drawing import draw_twins

    twins = draw_twins(make_canaries(sets, alternatives, words=words, template=template), out, authority)
    texts = twins.published_texts
    say("\n  ".join(("Publish these, each in a place of its own:", *texts)), publish=texts)
    _say_secret(out, twins)


def _say_secret(secret: Path, twins: Twins) -> None:
    say(
        f"Keep secret: {secret}, {twins.origin}; sha256 {twins.sha256}",
        secret=secret,
        sha256=twins.sha256,
        origin=twins.origin,
    )


@command("test", keeps=PASSES_KEPT)
def twins_test(
    model: str = MODEL,
    run: RunOptions = fields(*DEVICE, *LIMITS),
    secret: Path = _SECRET,
    published: Path | None = option("What was published, to make sure that the secret file is of these items."),
    detector: tuple[str, ...] = _DETECTORS,
    alpha: float = _ALPHA,
) -> None:
    """Test whether a model prefers the published versions.

    Every version is scored, and the published one of each item ranked among those that were kept secret.
    """
    _test(model, run, secret, published, detector, alpha)


@command("canaries", keeps=PASSES_KEPT)
def canary_test(
    model: str = MODEL,
    run: RunOptions = fields(*DEVICE, *LIMITS),
    canaries: Path = option("The file that `corpus-audit canaries` wrote.", FILE),
    detector: tuple[str, ...] = _DETECTORS,
    alpha: float = _ALPHA,
) -> None:
    """Test whether a model ranks published canaries highest.

    The same as `corpus-audit twins test --secret FILE`.
    """
    _test(model, run, canaries, None, detector, alpha)


twins = click.Group(
    "twins", commands=[draw, twins_test], help="Publish one of several versions by chance; test models for it later."
)


def _test(
    model: str, run: RunOptions, secret: Path, published: Path | None, detectors: Sequence[str], alpha: float
) -> None:
    """Run the test, keep its rows, rebuild warehouse and report, and say the result."""
    from audit_pipeline.extras.twins.comparison import DETECTORS, run_twins_test, write_twins_test
    from audit_pipeline.extras.twins.drawing import read_twins
    from audit_pipeline.pipeline.progress import progress_bar
    from audit_pipeline.readers.formats import open_texts
    from audit_pipeline.store.ledger import LineageStep

    paths, drawn = get_writable_paths(), read_twins(secret)
    if published is not None:
        stream = open_texts(published)
        drawn.require_published({row.text for row in stream}, published)
        tell_skipped(stream.skipped.first, stream.skipped.count)
    tokenized, backend_of = prepare_model(resolve_model_option(model), paths, run)
    with progress_bar(model) as on_progress:
        result = run_twins_test(
            tokenized,
            drawn,
            secret.stem,
            paths,
            backend_of,
            detectors=detectors or DETECTORS,
            alpha=alpha,
            on_progress=on_progress,
        )
    step = LineageStep.now(f"twins-{uuid.uuid4()}", "twins", "1")
    write_twins_test(result, tokenized, paths, step, {"secret": drawn.sha256})
    publish(paths)
    test = result.test
    show_table("twins", result.rows, _TWINS)
    say_conclusions(paths, test.model, test.benchmark)
    found = "refused" if test.p_value is None else f"p = {test.p_value:.4g}"
    say(
        f"{test.test} of {test.model} on {test.benchmark}: {found}; {test.claim_level}\n{test.method}\n"
        f"Holds if: {test.assumption}\nReport: {paths.report}",
        report=paths.report,
    )
