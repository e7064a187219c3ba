"""Models as they were seen last: how each would be run now, as far as that is known without opening any of its files.

What belongs here: telling it from models' cards, from what the lineage says of earlier runs, and from the entries of
the configuration. What does not: models that are loaded (situation.py), reading cards and lineage for many models at
once (coverage.py).

Loading a model takes seconds, and of a new one every byte of its weights is read. A caller that inspects many models,
or does so every half minute, takes the fingerprints that were seen last under its name: by any of its runs, or on its
card when it was first loaded. Files that were changed and have not been run since are noticed when the model is
audited.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from audit_pipeline.catalogue.files import read_json_if_whole
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.errors import AuditError
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.fingerprint import ModelIdentity, fingerprints_before
from audit_pipeline.operate.facts import Conventions, Versions, WrittenRows
from audit_pipeline.operate.situation import conventions, split_extra_versions
from audit_pipeline.references.frequencies import read_table_version

Card = Mapping[str, Any]
"""What a model's card says (models/tokenized_model.py, write_card)."""

_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Sighting:
    """The fingerprints of a model's files at a time; None: it is not known when."""

    model: str
    fingerprint: str
    tokenizer: str | None
    at: datetime | None


@dataclass(frozen=True)
class _ModelAsSeen:
    entry: ModelEntry
    identity: ModelIdentity
    start_token: str | None
    context_length: int


@dataclass(frozen=True)
class SeenModels:
    """The models that were seen, their cards by fingerprint, and of those of the configuration the entries and the
    token frequencies (None: not known), by name."""

    last: Mapping[str, Sighting]
    cards: Mapping[str, Card]
    entries: Mapping[str, ModelEntry]
    frequencies: Mapping[str, Versions | None]
    paths: DataPaths

    def conventions(self, model: str, built: str | None) -> Conventions:
        """How the model would be run now on a benchmark of that digest; what is not known of it is None."""
        seen, entry = self.last.get(model), self.entries.get(model)
        if seen is None:
            return Conventions()
        if entry is None or seen.tokenizer is None:
            return Conventions(seen.fingerprint, seen.tokenizer)
        reference, frequencies = self._reference(entry), self.frequencies[model]
        known = self._known(seen, entry, seen.tokenizer)
        if known is None:
            return Conventions(seen.fingerprint, seen.tokenizer, None, reference, frequencies)
        return conventions(known, built, reference, frequencies)

    def _known(self, seen: Sighting, entry: ModelEntry, tokenizer: str) -> _ModelAsSeen | None:
        card = self.cards.get(seen.fingerprint, {})
        # Models of other names may share the files, and so the card, and have another start token.
        is_its_own = card.get("name") == entry.name
        if not isinstance(card.get("context_length"), int) or (entry.start_token is None and not is_its_own):
            return None
        start_token = entry.start_token or card.get("start_token")
        before = _read_earlier_fingerprints(entry, tokenizer, self.paths)
        identity = ModelIdentity(seen.fingerprint, tokenizer, "", "", before)
        return _ModelAsSeen(entry, identity, start_token, card["context_length"])

    def _reference(self, entry: ModelEntry) -> Versions | None:
        if entry.reference_model is None:
            return ()
        seen = self.last.get(entry.reference_model)
        if seen is None:
            return None
        return ((f"reference_model/{entry.reference_model}", f"{seen.fingerprint}/{seen.tokenizer}"),)


def collect_seen_models(
    cards: Iterable[Card], sightings: Iterable[Sighting], entries: Mapping[str, ModelEntry], paths: DataPaths
) -> SeenModels:
    """What was seen last of every model: on ``cards``, and in what the lineage says (``sightings``)."""
    by_fingerprint = {card["fingerprint"]: card for card in cards if card.get("fingerprint")}
    on_cards = (
        Sighting(card["name"], fingerprint, card.get("tokenizer_fingerprint"), _parse_time(card.get("first_loaded_at")))
        for fingerprint, card in by_fingerprint.items()
        if card.get("name")
    )
    last: dict[str, Sighting] = {}
    for one in sorted(
        (*on_cards, *sightings), key=lambda one: (one.at or _NEVER, one.fingerprint, one.tokenizer or "")
    ):
        last[one.model] = one
    frequencies = {
        name: _read_frequency_versions(entry, last[name].tokenizer, paths)
        for name, entry in entries.items()
        if name in last
    }
    return SeenModels(last, by_fingerprint, entries, frequencies, paths)


def sightings_of(model: str, written_rows: Iterable[WrittenRows | None]) -> list[Sighting]:
    """What scores and findings of a model say of its files."""
    return [
        Sighting(model, one.conventions.model, one.conventions.tokenizer, one.at)
        for one in written_rows
        if one is not None and one.conventions.model is not None
    ]


def read_cards(paths: DataPaths) -> list[Card]:
    """The cards of all models that were ever loaded; what cannot be read is left out."""
    folder = paths.model_card("any").parent
    cards = (read_json_if_whole(path) for path in sorted(folder.glob("*.json")) if path != paths.digest_cache)
    return [card for card in cards if isinstance(card, dict)]


def _read_earlier_fingerprints(entry: ModelEntry, tokenizer: str, paths: DataPaths) -> frozenset[str] | None:
    try:
        return fingerprints_before(entry, tokenizer, paths)
    except AuditError:
        # The doctor names the damaged file; which model was there before is not known.
        return frozenset()


def _read_frequency_versions(entry: ModelEntry, tokenizer: str | None, paths: DataPaths) -> Versions | None:
    try:
        return None if tokenizer is None else split_extra_versions(read_table_version(entry, tokenizer, paths))[1]
    except AuditError:
        return None


def _parse_time(text: object) -> datetime | None:
    try:
        time = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
