"""Generated pages are up to date with the declarations."""

from __future__ import annotations

from datetime import date
from typing import Literal

import click
import pytest
from pydantic import Field

from audit_pipeline.config.validation import StrictSettings
from docs.write_pages import DOCS, pages
from docs.writers.commands import commands_page
from docs.writers.configuration import keys_of


def test_every_page_is_what_the_code_says() -> None:
    written = pages()
    assert {page: page.read_text(encoding="utf-8") for page in written} == written, "run make docs"
    assert {page for page in (DOCS / "reference").glob("*.md") if page not in written} == {DOCS / "reference/index.md"}


def test_a_command_is_told_with_its_arguments_options_and_subcommands() -> None:
    @click.group()
    def front() -> None:
        """All of it."""

    @front.command()
    @click.argument("what")
    @click.option("--size", type=click.IntRange(1, 9), default=2, show_default=True, help="How | large.")
    @click.option("--form", type=click.Choice(["a", "b"]), required=True, multiple=True, help="Its form.")
    @click.option("--secret", hidden=True)
    def draw(what: str, size: int, form: str, secret: str) -> None:
        """Draw it.

        On paper.
        """

    @front.group()
    def again() -> None:
        """Once more."""

    @again.command("draw")
    @click.option("--loud/--quiet", help="How.")
    def redraw(loud: bool) -> None:
        """Draw it anew."""

    page = commands_page(front)
    assert "| [`again draw`](#again-draw) | Draw it anew. |\n| [`draw`](#draw) | Draw it. |" in page
    assert "## draw\n\n```text\ncorpus-audit draw [OPTIONS] WHAT\n```\n\nDraw it.\n\nOn paper." in page
    assert "Arguments: `WHAT`." in page
    assert "| `--size` | `INTEGER RANGE` | How \\| large. [default: 2; 1\\<=x\\<=9] |" in page
    assert "| `--form` | `[a\\|b]` | Its form. [required; may be repeated] |" in page
    assert "| `--loud`, `--quiet` |  | How. |" in page
    assert "secret" not in page


class Inner(StrictSettings):
    name: str = Field(description="what it is called")


class Outer(StrictSettings):
    name: str
    inner: Inner | None = Field(default=None, description="more of it")
    form: Literal["a", "b"] = Field(default="a", description="None: the | form")
    days: tuple[date, ...] = Field(default=(), description="days")
    sizes: dict[str, tuple[float | int, ...]] = Field(description="sizes")
    pairs: tuple[tuple[str, bool], ...] = Field(default=(("x", True),), description="pairs")


def test_a_class_of_settings_is_told_key_by_key() -> None:
    assert keys_of(Outer).splitlines()[2:] == [
        "| `inner` | keys below | none | more of it |",
        "| `inner.name` | text | required | what it is called |",
        "| `form` | `a` \\| `b` | `a` | by default the \\| form |",
        "| `days` | list of date | none | days |",
        "| `sizes` | mapping of text to list of number or whole number | required | sizes |",
        "| `pairs` | mapping of text to true or false | `('x', True)` | pairs |",
    ]


def test_keys_that_another_class_tells_are_left_out_unless_they_changed() -> None:

    class Renamed(Outer):
        form: Literal["b"] = "b"
        added: int = Field(default=1, description="one more")

    assert keys_of(Renamed, known=Outer).splitlines()[2:] == [
        "| `form` | `b` | `b` | by default the \\| form |",
        "| `added` | whole number | `1` | one more |",
    ]


def test_a_key_without_a_meaning_is_refused() -> None:

    class Silent(StrictSettings):
        key: int

    with pytest.raises(ValueError, match=r"Silent\.key has no description"):
        keys_of(Silent)
