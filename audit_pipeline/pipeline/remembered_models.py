"""Models as they were seen last: how each would be run now, as far as that is known without opening any of its files.

Loading a model takes seconds, and of a new one every byte of its weights is read. A caller that inspects many models,
or does so every half minute, takes the fingerprints that were seen last under its name: by any of its runs, or on its
card when it was first loaded. Files that were changed and have not been run since are noticed when the model is
audited.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from audit_pipeline.errors import AuditError
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.fingerprint import ModelIdentity, entry_version, list_earlier_fingerprints
from audit_pipeline.scoring.needs.provider import SeenIdentities
from audit_pipeline.scoring.needs.registry import PROVIDERS
from audit_pipeline.store.files import read_json_if_whole
from audit_pipeline.store.ledger import read_ledger
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import parse_pair

Card = Mapping[str, Any]
"""What a model's card says (models/tokenized_model.py, write_card)."""
_LONG_AGO = "0001-01-01T00:00:00+00:00"


@dataclass(frozen=True)
class SeenModel:
    """A model as it was seen last. ``is_known``: whether enough is known for the version of its token statistics.

    ``is_current``: whether it is known that its entry and its files' names, sizes and times are those that were loaded
    last. ``needs``: the versions of what detectors need besides, by kind; None: not known.
    """

    entry: ModelEntry
    identity: ModelIdentity
    start_token: str | None
    context_length: int
    is_known: bool
    is_current: bool
    needs: Mapping[str, Mapping[str, str] | None]


def find_seen_models(entries: Mapping[str, ModelEntry], paths: DataPaths) -> dict[str, SeenModel]:
    """Those of the models that were seen, by name."""
    cards = {card["fingerprint"]: card for card in _read_cards(paths) if card.get("fingerprint")}
    sightings = [
        (
            datetime.fromisoformat(card.get("first_loaded_at") or _LONG_AGO),
            fingerprint,
            card.get("tokenizer_fingerprint"),
            card["name"],
        )
        for fingerprint, card in cards.items()
        if card.get("name")
    ]
    sightings += [
        (entry.finished_at, entry.model_fingerprint, entry.tokenizer_fingerprint, parse_pair(entry.partition).model)
        for entry in read_ledger(paths).entries
        if entry.model_fingerprint is not None
    ]
    # The latest sighting of a model counts.
    by_time = sorted((at, fingerprint, tokenizer or "", model) for at, fingerprint, tokenizer, model in sightings)
    seen = {model: (fingerprint, tokenizer) for _, fingerprint, tokenizer, model in by_time}
    return {
        name: _build_seen_model(entry, seen, cards.get(seen[name][0], {}), paths)
        for name, entry in entries.items()
        if name in seen
    }


def _build_seen_model(entry: ModelEntry, seen: SeenIdentities, card: Card, paths: DataPaths) -> SeenModel:
    weights, tokenizer = seen[entry.name]
    # Models of other names may share the files, and so the card, and have another start token.
    is_its_own = card.get("name") == entry.name
    context = card.get("context_length")
    before = _read_earlier_fingerprints(entry, tokenizer, paths) if tokenizer else None
    identity = ModelIdentity(weights, tokenizer, "", "", before)
    return SeenModel(
        entry,
        identity,
        entry.start_token or card.get("start_token"),
        context if isinstance(context, int) else 0,
        bool(tokenizer) and isinstance(context, int) and (is_its_own or entry.start_token is not None),
        is_its_own and card.get("entry_version") == entry_version(entry),
        {
            provider.source: provider.read_seen_versions(entry, seen, paths)
            for provider in PROVIDERS.values()
            if provider.source is not None
        },
    )


def _read_cards(paths: DataPaths) -> list[Card]:
    """The cards of all models that were ever loaded; what cannot be read is left out."""
    folder = paths.model_card("any").parent
    cards = (read_json_if_whole(path) for path in sorted(folder.glob("*.json")) if path != paths.digest_cache)
    return [card for card in cards if isinstance(card, dict)]


def _read_earlier_fingerprints(entry: ModelEntry, tokenizer: str, paths: DataPaths) -> frozenset[str] | None:
    try:
        return list_earlier_fingerprints(entry, tokenizer, paths)
    except AuditError:
        # The doctor names the damaged file; which model was there before is not known.
        return frozenset()
