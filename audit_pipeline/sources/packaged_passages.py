"""Source of passages from files in packages of the package index: one document per passage.

The configuration contains no texts. It addresses a passage by package, version, file, and its first and last words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field

from audit_pipeline.config.validation import Language, StrictSettings, Text
from audit_pipeline.errors import SourceError
from audit_pipeline.readers.distributions import read_configured_index, read_wheel_member
from audit_pipeline.sources.base import Collection, Document, FetchedItem, LeftOut, MissingPart, Source, SourceSection

NAME = "passages"


class PassageEnds(StrictSettings):
    """The first and last words of a passage. Both are part of the passage."""

    begins: Text | None = Field(
        default=None,
        description="first words of the passage, at their first occurrence; None: the beginning of the file",
    )
    ends: Text | None = Field(
        default=None, description="last words of the passage, at their next occurrence; None: the end of the file"
    )


class PackagedFile(StrictSettings):
    """A text file in a wheel, and its passages by title."""

    distribution: Text = Field(description="name of the package on the package index")
    version: Text = Field(description="version of the package, in quotes")
    file: Text = Field(description="path inside the wheel; UTF-8")
    licence: Text = Field(description="licence of the text")
    language: Language = Field(default="en", description="language of the text (ISO 639-1)")
    leave_out: str = Field(
        default="", description="characters that are no part of the text, such as the brackets of notes"
    )
    passages: Annotated[Mapping[Text, PassageEnds], Field(min_length=1)] = Field(description="passages by title")


class PassagesSettings(SourceSection):
    """The settings of the source: the files in packages. Each file is a collection."""

    files: Mapping[Collection, PackagedFile] = Field(
        default={}, description="files in packages, by the name of the collection"
    )

    @property
    def missing_setting(self) -> str | None:
        """Return the instruction to set the files, or None if they are set."""
        return None if self.files else f"set {NAME}.files in config/sources.yaml"


def fetch(settings: PassagesSettings, downloads: Path) -> Iterator[FetchedItem]:
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
            yield MissingPart(f"{file.distribution} {file.version}, {file.file}", str(error), collection)
            continue
        for title, ends in file.passages.items():
            passage = extract_passage(text, ends)
            if passage is None:
                yield LeftOut(f"{collection}:{title}", f"{file.file} holds no such beginning and end")
                continue
            yield Document(
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
        The passage, or None if the words do not occur.
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


SOURCE = Source(
    NAME,
    "Passages of files in packages of the package index, by their first and last words.",
    "that of each file",
    PassagesSettings,
    fetch,
    on_request=True,
)
