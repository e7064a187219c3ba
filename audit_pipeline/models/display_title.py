"""The title of a model in reports: the title of its entry, with facts about its files that the title lacks.

A title such as *SmolLM2-135M* may belong to a chat model in 4 bits. Readers of a report have not seen the entry. So
variant, adapter and number format follow the title in brackets.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from audit_pipeline.errors import ModelError
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.store.files import read_json_if_whole
from audit_pipeline.store.paths import DataPaths

_NO_VARIANT = re.compile(r"main|[0-9a-f]{40}")
"""Revisions that a title does not name, because they are no variant of the model: the default branch and commits."""
# Separators of words in a name. A point between digits is part of a number, as in Qwen2.5.
_BREAKS = re.compile(r"[-\s/@,()\[\]]+|(?<!\d)\.|\.(?!\d)")
_GGUF_MAGIC = b"GGUF"
_GGUF_STRING = 8
_GGUF_ARRAY = 9
# Types of GGUF values with a fixed length, with their format in the module struct.
_GGUF_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


def format_model_title(entry: ModelEntry, weights_format: str | None) -> str:
    """Return the title of a model, followed in brackets by facts about its files that the title lacks.

    Args:
        entry: The entry of the model.
        weights_format: Number format of quantised weights, as the model's card records it, or None.
    """
    shown = entry.title or _shorten_path(entry.name)
    facts = list(_list_variant_facts(entry, shown, weights_format))
    if weights_format:
        facts.append(weights_format)
    if not facts:
        return shown
    return f"{shown} ({', '.join(facts)})"


def find_model_title(name: str, models: Mapping[str, ModelEntry], paths: DataPaths) -> str:
    """Return the title of a model from its entry and its card, or its name if it has neither."""
    cards = read_latest_cards(paths)
    if name in models:
        return format_title_by_card(models[name], cards)
    return str(cards.get(name, {}).get("title") or _shorten_path(name))


def format_title_by_card(entry: ModelEntry, cards: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the title of an entry's model. ``cards`` are the result of :func:`read_latest_cards`."""
    card = cards.get(entry.name, {})
    # The model of an entry with ``card`` (from an evidence pack) has no weights here. Its card contains the title.
    if entry.card is not None and card.get("title"):
        return str(card["title"])
    return format_model_title(entry, card.get("weights_format"))


def read_latest_cards(paths: DataPaths) -> dict[str, Mapping[str, Any]]:
    """Return the latest card of every model that was loaded here, by name."""
    known = []
    for file in paths.model_card("any").parent.glob("*.json"):
        card = read_json_if_whole(file)
        if card is not None and "name" in card:
            known.append(card)
    known.sort(key=lambda card: str(card.get("first_loaded_at") or ""))
    # A later card replaces an earlier card of the same name.
    return {str(card["name"]): card for card in known}


def _shorten_path(name: str) -> str:
    """Return the last part of a path, or the unchanged name if it is no path."""
    return PurePosixPath(name).name if name.startswith("/") else name


def _list_variant_facts(entry: ModelEntry, shown: str, weights_format: str | None) -> Iterator[str]:
    """Yield the facts that the title lacks.

    The first fact is the adapter. Without an adapter, it is the words of the published name that the title lacks. The
    second fact is the revision, if it is neither ``main`` nor a commit.
    """
    files_name = _find_published_name(entry)
    if entry.adapter is not None:
        adapter = entry.adapter.hub or _shorten_path(str(entry.adapter.path))
        fact = "adapter"
        if not _contains_word(adapter, shown):
            fact += f" {adapter}"
        if files_name:
            fact += f" on {files_name}"
        yield fact
    elif files_name:
        # The number format is left out here, because format_model_title adds it.
        format_words = set(_split_words((weights_format or "").casefold()))
        name_words = [word for word in _split_words(files_name) if word.casefold() not in format_words]
        new_words = [word for word in name_words if not _contains_word(word, shown)]
        # Users choose the names of folders freely. Such a name describes the model only if it shares a word with the
        # title.
        is_free = entry.path is not None and entry.path.suffix != ".gguf"
        if new_words and not (is_free and new_words == name_words):
            yield "-".join(new_words)
    if (
        entry.revision is not None
        and not _NO_VARIANT.fullmatch(entry.revision)
        and not _contains_word(entry.revision, shown)
    ):
        yield f"revision {entry.revision}"


def _find_published_name(entry: ModelEntry) -> str | None:
    """Return the name under which the model's files were published, or None if there is no such name."""
    if entry.endpoint is not None:
        return entry.endpoint.model.rpartition("/")[2]
    if entry.hub is not None:
        return entry.hub.rpartition("/")[2]
    if entry.package is not None:
        return Path(entry.package.file).stem
    if entry.path is None:
        return None
    if entry.path.suffix == ".gguf":
        return entry.path.stem
    return entry.path.name


def _split_words(name: str) -> list[str]:
    return list(filter(None, _BREAKS.split(name)))


def _contains_word(word: str, shown: str) -> bool:
    """Return True if a title contains a word, ignoring case and punctuation."""
    known = set(map(_normalise_word, _split_words(shown)))
    # Short words, such as "it", occur inside other words.
    return _normalise_word(word) in known or (
        len(_normalise_word(word)) > 3 and _normalise_word(word) in _normalise_word(shown)
    )


def _normalise_word(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))


def read_gguf_format(file: Path) -> str:
    """Return the number format of a .gguf, such as ``GGUF Q4_1, 4 bits``, or ``GGUF`` without a known one.

    Only the fields at the beginning of the file are read.

    Raises:
        ModelError: If the fields are damaged.
    """
    # The package gguf imports numpy, which takes time.
    from gguf import LlamaFileType  # noqa: PLC0415

    try:
        with file.open("rb") as opened:
            number = None
            for key, value in _iterate_gguf_fields(opened):
                if key == "general.file_type":
                    number = value
                    break
    except (OSError, struct.error, UnicodeDecodeError) as error:
        raise ModelError(f"the metadata of {file} cannot be read: {error}") from error
    known = {int(kind): kind.name.removeprefix("MOSTLY_").removeprefix("ALL_") for kind in LlamaFileType}
    if number not in known:
        return "GGUF"
    bits = re.match(r"(?:[IT]?Q|MXFP)(\d)", known[number])
    if bits is None:
        return f"GGUF {known[number]}"
    return f"GGUF {known[number]}, {bits[1]} bits"


def _iterate_gguf_fields(opened: BinaryIO) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a .gguf (version 2 and later) except lists and texts."""
    magic, version, _, n_fields = struct.unpack("<4sIQQ", opened.read(24))
    if magic != _GGUF_MAGIC or version < 2:
        return
    for _ in range(n_fields):
        key = opened.read(_read_scalar(opened, "Q")).decode()
        kind = _read_scalar(opened, "I")
        if kind in _GGUF_SCALARS:
            yield key, _read_scalar(opened, _GGUF_SCALARS[kind])
        else:
            _skip_value(opened, kind)


def _read_scalar(opened: BinaryIO, form: str) -> Any:
    return struct.unpack(f"<{form}", opened.read(struct.calcsize(f"<{form}")))[0]


def _skip_value(opened: BinaryIO, kind: int) -> None:
    """Skip a text, or a list of values of one type."""
    if kind == _GGUF_STRING:
        opened.seek(_read_scalar(opened, "Q"), 1)
        return
    if kind != _GGUF_ARRAY:
        raise struct.error(f"type {kind} is not known")
    item_kind, length = struct.unpack("<IQ", opened.read(12))
    if item_kind in _GGUF_SCALARS:
        opened.seek(length * struct.calcsize(f"<{_GGUF_SCALARS[item_kind]}"), 1)
        return
    for _ in range(length):
        _skip_value(opened, item_kind)
