"""Declaration of the source `books`, and its settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints

from audit_pipeline.config.validation import Language, Text
from audit_pipeline.sources.base import FILE_NAME, Collection, Source, SourceSection, build_lazy_fetch

NAME = "books"
LICENCE = "folder: as in its metadata; Project Gutenberg: public domain in the USA"

Url = Annotated[str, StringConstraints(strip_whitespace=True, pattern=r"^https?://[^\s]+$")]

GUTENBERG_CATALOGUE = "https://www.gutenberg.org/cache/epub/feeds/pg_catalog.csv"


class GutenbergSettings(SourceSection):
    """The settings for Project Gutenberg: the selection of books, and the mirror to fetch them from."""

    mirror: Url | None = Field(
        default=None, description="base address of a mirror of Project Gutenberg; None: nothing is fetched"
    )
    catalogue: Url = Field(default=GUTENBERG_CATALOGUE, description="address of the catalogue of books, a .csv file")
    ids: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        default=(), description="numbers of the books to fetch; empty: languages, subjects and bookshelves select books"
    )
    languages: tuple[Language, ...] = Field(
        default=("en",), description="fetch books in these languages; empty: all languages"
    )
    subjects: tuple[Text, ...] = Field(
        default=(), description="fetch books whose subjects contain one of these texts; empty: all subjects"
    )
    bookshelves: tuple[Text, ...] = Field(
        default=(), description="fetch books whose bookshelves contain one of these texts; empty: all bookshelves"
    )
    limit: Annotated[int, Field(ge=1)] = Field(
        default=100, description="maximum number of books; further books are skipped and counted"
    )
    seconds_between: Annotated[float, Field(ge=2, le=3600)] = Field(
        default=2.0, description="pause between two requests, in seconds"
    )
    collection: Collection = Field(default="gutenberg", description="name of the collection of these books")


class BooksSettings(SourceSection):
    """The settings of the source: a folder of books with metadata files, and Project Gutenberg. Both are optional.

    ``contact`` becomes part of the user agent, so that the library can write to the user.
    """

    folder: Path | None = Field(
        default=None,
        description="a folder of .txt and .epub files with a metadata file books.csv or books.jsonl; None: no folder "
        "is read",
    )
    collection: Collection = Field(default="books", description="name of the collection of the books in the folder")
    language: Language = Field(
        default="en", description="language of the folder's books without a language in the metadata file"
    )
    licence: Text = Field(
        default="unknown", description="licence of the folder's books without a licence in the metadata file"
    )
    dates: Path | None = Field(
        default=None,
        description="a .csv or .jsonl file with the numbers (column 'id') and dates (column 'published') of Project "
        "Gutenberg's books; None: only books whose text contains its year are used",
    )
    contact: Text | None = Field(
        default=None,
        description="your e-mail address or web page, so that Project Gutenberg can reach you; it is sent with every "
        "request, and required for its books",
    )
    gutenberg: GutenbergSettings = Field(
        default=GutenbergSettings(), description="selection and address of Project Gutenberg's books"
    )

    @property
    def missing_setting(self) -> str | None:
        """Return the instruction for a missing setting, or None if the source is ready."""
        if self.gutenberg.mirror is not None and self.contact is None:
            return (
                f"set books.contact in config/{FILE_NAME} to your e-mail address or web page, so that Project "
                "Gutenberg can reach you. It is sent with every request."
            )
        if self.folder is None and self.gutenberg.mirror is None:
            return (
                f"set books.folder in config/{FILE_NAME} to a folder of .txt and .epub files with a books.csv, "
                "or set books.gutenberg.mirror and books.contact for books of Project Gutenberg"
            )
        return None


SOURCE = Source(
    NAME,
    "Books: a folder of .txt and .epub files with their metadata, and Project Gutenberg.",
    LICENCE,
    BooksSettings,
    build_lazy_fetch(__name__),
    version=4,
    on_request=True,
)
