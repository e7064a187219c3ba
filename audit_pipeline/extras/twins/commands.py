"""Commands on twins: draw and test them, and draw canaries. Each command imports what it needs."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from audit_pipeline.cli.command_declaration import (
    DEVICE,
    LIMITS,
    MODEL,
    PASSES_KEPT,
    CommandGroup,
    Place,
    Section,
    argument,
    command,
    fields,
    option,
)
from audit_pipeline.cli.output import build_estimate_formatter
from audit_pipeline.cli.run_setup import open_texts
from audit_pipeline.cli.whole_set_tests import publish_whole_set_test, run_whole_set_test
from audit_pipeline.extras.evidence_packs.commands import AUTHORITY
from audit_pipeline.pipeline.console import Columns, print_result, show_table
from audit_pipeline.pipeline.options import FILE, INPUT_FILE, PATH, RunOptions
from audit_pipeline.report.number_format import format_probability, format_thousands

if TYPE_CHECKING:
    from audit_pipeline.extras.twins.publication_draw import Twins

_TWINS: Columns = (
    ("group", lambda row: row["group"] or "all"),
    ("detector", "detector"),
    ("items with scores", "items", format_thousands),
    ("secret versions", "others", format_thousands),
    ("scores above [95% interval]", build_estimate_formatter("superiority")),
    ("p", "p_value", format_probability),
)


@command(prints="facts")
def draw(
    versions: Path = argument(type=PATH),
    out: Path = option("The .jsonl file to write, with what to publish.", FILE),
    secret: Path = option("The secret file to write: versions and key. Keep it until models are tested.", FILE),
    authority: str | None = AUTHORITY,
) -> None:
    """Draw which version of each item to publish.

    VERSIONS is a file with a row for each item: its name in the column item or id, its texts in versions (a list) or in
    version_1, version_2 …, and, if it has one, its group. Chance draws one version of each; `corpus-audit twins test`
    tests later whether a model prefers what was published. docs/twins.md says what to heed.
    """
    from audit_pipeline.extras.twins.publication_draw import draw_twins, read_items, require_new, write_published

    require_new(out)
    items = read_items(versions)
    twins = draw_twins(items, secret, authority)
    write_published(out, twins)
    print_result(f"To publish: {out}: {len(items):,} items", items=len(items), out=out)
    _say_secret(secret, twins)


@command(Place(Section.AUDIT, 90), prints="facts")
def canaries(
    sets: int = option("Number of canaries to publish.", least=1),
    alternatives: int = option("Unpublished alternatives per canary.", default=99),
    template: str = option("The text around the random part, which replaces {canary}.", default="{canary}"),
    out: Path = option("The secret file to write. Keep it until models are tested.", FILE),
    authority: str | None = AUTHORITY,
) -> None:
    """Draw random canaries to plant in texts before publication.

    Canaries are twins whose versions are random words: `corpus-audit twins test` tests later whether a model was
    trained on them.
    """
    from audit_pipeline.extras.twins.publication_draw import draw_twins, make_canaries

    twins = draw_twins(make_canaries(sets, alternatives, template), out, authority)
    texts = twins.published_texts
    print_result("\n  ".join(("Publish these, each in a place of its own:", *texts)), publish=texts)
    _say_secret(out, twins)


def _say_secret(secret: Path, twins: Twins) -> None:
    print_result(f"Keep secret: {secret}, {twins.origin}; sha256 {twins.sha256}", secret=secret, sha256=twins.sha256)


@command(name="test", keeps=PASSES_KEPT)
def twins_test(
    model: str = MODEL,
    run: RunOptions = fields(*DEVICE, *LIMITS),
    secret: Path = option("The secret file that the versions were drawn into.", INPUT_FILE),
    published: Path | None = option("What was published, to make sure that the secret file is of these items."),
    detector: tuple[str, ...] = option(
        "A detector that needs the text's own pass alone, named before scores are looked at; several decide together. "
        "Default: loss.",
        metavar="NAME",
    ),
) -> None:
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
    result, tokenized, paths = run_whole_set_test(run_twins_test, model, run, drawn, **chosen)
    step = LineageStep.now(f"twins-{uuid.uuid4()}", "twins", "1")
    write_twins_test(result, tokenized, paths, step, {"secret": drawn.sha256})
    show_table("twins", result.rows, _TWINS)
    publish_whole_set_test(result.test, paths)


twins = CommandGroup(
    "twins",
    place=Place(Section.AUDIT, 85),
    commands=[draw, twins_test],
    help="Publish versions by chance; test models for them.",
)
