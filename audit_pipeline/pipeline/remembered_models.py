"""Models as they were last seen, from the ledger and the model cards, without opening a model's files.

Loading a model takes seconds, and the first time every byte of its weights is read. Callers that inspect many models,
or inspect them every half minute, use the fingerprints that were last seen under a model's name. These come from the
model's latest run or from its card, which is written when it is first loaded. If the files changed since, the next
audit notices that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from audit_pipeline.errors import AuditError
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.fingerprint import ModelIdentity, entry_version, list_earlier_fingerprints
from audit_pipeline.scoring.needs.provider import SeenIdentities, all_providers
from audit_pipeline.store.files import read_json_if_whole
from audit_pipeline.store.ledger import read_ledger
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import parse_pair

Card = Mapping[str, Any]
"""The content of a model card (models/tokenized_model.py, write_card)."""
_LONG_AGO = "0001-01-01T00:00:00+00:00"


@dataclass(frozen=True)
class SeenModel:
    """The recorded facts of a model, from its latest load or run.

    Attributes:
        entry: Its entry in config/models.yaml.
        identity: The latest recorded fingerprints.
        start_token: The start token, or None if it is unknown.
        context_length: The context length in tokens, or 0 if it is unknown.
        is_known: Whether the facts suffice to compute the version of its token statistics.
        is_current: Whether its entry, and the names, sizes and times of its files, are unchanged since the last load.
        needs: The versions of other inputs of detectors, by the kind of input, such as ``reference_model``. None if
            they are unknown.
    """

    entry: ModelEntry
    identity: ModelIdentity
    start_token: str | None
    context_length: int
    is_known: bool
    is_current: bool
    needs: Mapping[str, Mapping[str, str] | None]


def find_seen_models(entries: Mapping[str, ModelEntry], paths: DataPaths) -> dict[str, SeenModel]:
    """Return the models that were seen before, by name."""
    cards: dict[str, Card] = {}
    for card in _read_cards(paths):
        if card.get("fingerprint"):
            cards[card["fingerprint"]] = card
    seen = _find_latest_identities(cards, paths)
    models = {}
    for name, entry in entries.items():
        if name in seen:
            card = cards.get(seen[name][0], {})
            models[name] = _build_seen_model(entry, seen, card, paths)
    return models


def _find_latest_identities(cards: Mapping[str, Card], paths: DataPaths) -> SeenIdentities:
    """Return the latest fingerprints of each model and its tokenizer, by the model's name.

    Args:
        cards: Model cards by the model's fingerprint.
        paths: The data folder.
    """
    sightings: list[tuple[datetime, str, str, str]] = []
    for fingerprint, card in cards.items():
        if card.get("name"):
            loaded_at = datetime.fromisoformat(card.get("first_loaded_at") or _LONG_AGO)
            sightings.append((loaded_at, fingerprint, card.get("tokenizer_fingerprint") or "", card["name"]))
    for entry in read_ledger(paths).entries:
        if entry.model_fingerprint is not None:
            model = parse_pair(entry.partition).model
            sightings.append((entry.finished_at, entry.model_fingerprint, entry.tokenizer_fingerprint or "", model))
    return {model: (fingerprint, tokenizer) for _, fingerprint, tokenizer, model in sorted(sightings)}


def _build_seen_model(entry: ModelEntry, seen: SeenIdentities, card: Card, paths: DataPaths) -> SeenModel:
    weights, tokenizer = seen[entry.name]
    # Models with other names can have the same files and therefore the same card, but another start token.
    has_own_card = card.get("name") == entry.name
    has_context = isinstance(card.get("context_length"), int)
    before = _read_earlier_fingerprints(entry, tokenizer, paths) if tokenizer else None
    needs: dict[str, Mapping[str, str] | None] = {}
    for provider in all_providers().values():
        if provider.source is not None:
            needs[provider.source] = provider.read_seen_versions(entry, seen, paths)
    return SeenModel(
        entry,
        ModelIdentity(weights, tokenizer, "", "", before),
        start_token=entry.start_token or card.get("start_token"),
        context_length=card["context_length"] if has_context else 0,
        is_known=bool(tokenizer) and has_context and (has_own_card or entry.start_token is not None),
        is_current=has_own_card and card.get("entry_version") == entry_version(entry),
        needs=needs,
    )


def _read_cards(paths: DataPaths) -> list[Card]:
    """Return the cards of all models that were ever loaded, except unreadable cards."""
    folder = paths.model_card("any").parent
    cards: list[Card] = []
    for path in sorted(folder.glob("*.json")):
        if path != paths.digest_cache:
            card = read_json_if_whole(path)
            if isinstance(card, dict):
                cards.append(card)
    return cards


def _read_earlier_fingerprints(entry: ModelEntry, tokenizer: str, paths: DataPaths) -> frozenset[str] | None:
    try:
        return list_earlier_fingerprints(entry, tokenizer, paths)
    except AuditError:
        # The earlier models are unknown. `corpus-audit doctor` reports the damaged file.
        return frozenset()
