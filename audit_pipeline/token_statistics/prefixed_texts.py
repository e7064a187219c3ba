"""Texts behind a prefix of other texts: what of them is cached, running what is not, and reading it.

What belongs here: the key of a text behind a prefix, whether there is room for both, running and reading. What does
not: which texts make a prefix (scoring/known_texts.py), the pass (forward.py, shared_prefix.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import pyarrow as pa

from audit_pipeline.catalogue.contracts import KINDS, digest, text_sha256
from audit_pipeline.catalogue.files import read_json_if_whole
from audit_pipeline.models.load import TokenizedModel
from audit_pipeline.token_statistics.backend import Backend
from audit_pipeline.token_statistics.cached_texts import Caches, Plan, Prepared, Where, bytes_to_write, caches_of
from audit_pipeline.token_statistics.run import Progress, RunSummary, run_prepared
from audit_pipeline.token_statistics.tokens import Prefix, Window, behind, encode, window_and_stride


def tokens_of(model: TokenizedModel, texts: Sequence[str]) -> list[int]:
    """How many tokens each text has of its own, a start token aside."""
    return [len(one.token_id) for one in encode(model, texts)]


def has_room(model: TokenizedModel, prefix: Prefix, tokens: int) -> bool:
    """Whether so many tokens fit behind ``prefix`` into the tokens that the model is run with."""
    return len(prefix.ids) + tokens <= window_and_stride(model)[0]


def runs_anew(model: TokenizedModel, where: Where) -> bool:
    """Whether the prefix is run again with every text, as far as the check at loading has told (ready.py)."""
    paths = where.paths if isinstance(where, Caches) else where
    kept = read_json_if_whole(paths.load_check(model.identity.model_fingerprint, model.entry.division))
    return kept is not None and not kept["found"].get("shared_prefix", True)


def plan_prefixed(model: TokenizedModel, texts: Sequence[str], prefix: Prefix, where: Where) -> Plan:
    """What :func:`compute_prefixed` would run, but for the prefix itself; needs the tokenizer only.

    Where the prefix is run again with every text (:func:`runs_anew`), its tokens come on top.
    """
    prepared = _prepared(model, texts, prefix, where)
    return Plan(
        texts=len(texts),
        cached_texts=prepared.distinct - len(prepared.encoded),
        texts_to_run=len(prepared.encoded),
        tokens_to_run=sum(window.length for window in prepared.windows),
        passes=len(prepared.windows),
        bytes_to_write=bytes_to_write(model, prepared, 0),
    )


def compute_prefixed(
    model: TokenizedModel,
    texts: Sequence[str],
    prefix: Prefix,
    where: Where,
    backend: Callable[[], Backend],
    on_progress: Callable[[Progress], None] | None = None,
) -> RunSummary:
    """Run the model on those of ``texts`` behind ``prefix`` that the cache lacks, and write their rows as they come.

    A text for which there is no room is left out: it has no row.
    """
    caches = caches_of(model, where, ("prefixed",))
    summary = run_prepared(model, _prepared(model, texts, prefix, where), caches, backend, on_progress=on_progress)
    if not isinstance(where, Caches):
        caches["prefixed"].compact()
    return summary


def read_prefixed(model: TokenizedModel, texts: Iterable[str], prefix: Prefix, where: Where) -> pa.Table:
    """The cached rows (PREFIXED) of ``texts`` behind ``prefix``, each once; texts without one are absent."""
    cache = caches_of(model, where, ("prefixed",))["prefixed"]
    return cache.read(_key(model, text_sha256(text), prefix) for text in texts)


def _prepared(model: TokenizedModel, texts: Sequence[str], prefix: Prefix, where: Where) -> Prepared:
    keys: Mapping[str, str] = {text: _key(model, text_sha256(text), prefix) for text in texts}
    known = caches_of(model, where, ("prefixed",))["prefixed"].known(keys.values())
    lacking = [text for text, key in keys.items() if key not in known]
    fitting = {
        text: behind(prefix, one)
        for text, one in zip(lacking, encode(model, lacking), strict=True)
        if has_room(model, prefix, len(one.token_id))
    }
    return Prepared(
        distinct=len(keys) - len(lacking) + len(fitting),
        keys=[{"prefixed": keys[text]} for text in fitting],
        encoded=list(fitting.values()),
        missing=[frozenset({"prefixed"})] * len(fitting),
        windows=[
            Window(number, 0, len(one.token_id), 0, has_start_token=True)
            for number, one in enumerate(fitting.values())
            if len(one.token_id)
        ],
        prefix=prefix,
    )


def _key(model: TokenizedModel, sha256: str, prefix: Prefix) -> str:
    """The key of a text's row behind ``prefix``: whatever can change the row is in it.

    The tokens of the prefix stand for its text, its start token and how they are cut. The tokens that the model is run
    with decide whether there is room for both.
    """
    return digest(
        sha256,
        prefix.sha256,
        list(prefix.ids),
        model.identity.model_fingerprint,
        model.identity.tokenizer_fingerprint,
        model.entry.start_token_policy,
        window_and_stride(model)[0],
        "prefixed",
        KINDS["prefixed"].version,
    )
