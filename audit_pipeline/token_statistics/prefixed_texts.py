"""Token statistics of texts after a prefix of other texts: planning, computing and reading them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import pyarrow as pa

from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.store.files import read_json_if_whole
from audit_pipeline.tables import KINDS, digest, text_sha256
from audit_pipeline.token_statistics import cached_texts
from audit_pipeline.token_statistics.backend import Backend
from audit_pipeline.token_statistics.run import Progress, RunSummary, run_prepared
from audit_pipeline.token_statistics.tokens import EncodedText, Prefix, encode, put_after, window_and_stride


def count_own_tokens(model: TokenizedModel, texts: Sequence[str]) -> list[int]:
    """Return the number of tokens of each text, without start tokens."""
    return [len(text.token_id) for text in encode(model, texts)]


def has_room(model: TokenizedModel, prefix: Prefix, tokens: int) -> bool:
    """Return True if a text of ``tokens`` tokens fits after ``prefix`` into the model's window.

    The prefix must also not move the text beyond the model's position border (:func:`crosses_border`).
    """
    fits = len(prefix.ids) + tokens <= window_and_stride(model)[0]
    return fits and not crosses_border(model, prefix, tokens)


def crosses_border(model: TokenizedModel, prefix: Prefix, tokens: int) -> bool:
    """Return True if ``prefix`` moves a text of ``tokens`` tokens beyond the model's position border.

    LongRoPE encodes all positions of a longer input in another way. The difference between the text after a prefix and
    the text alone would then also come from the encoding.
    """
    border = model.position_border
    if border is None:
        return False
    alone = tokens
    if model.entry.start_token_policy == "always":
        alone += 1
    return alone <= border < len(prefix.ids) + tokens


def is_prefix_rerun(model: TokenizedModel, location: cached_texts.CacheLocation) -> bool:
    """Return True if the load checks (load_checks.py) found that a prefix must run again with every text."""
    load_check = read_json_if_whole(
        cached_texts.open_caches(location).paths.load_check(model.identity.model_fingerprint, model.entry.devices)
    )
    return load_check is not None and not load_check["found"]["shared_prefix"]


def plan_prefixed(
    model: TokenizedModel, texts: Sequence[str], prefix: Prefix, location: cached_texts.CacheLocation
) -> cached_texts.CachePlan:
    """Plan the work of :func:`compute_prefixed` without the tokens of the prefix. It needs only the tokenizer.

    If the prefix runs again with every text (:func:`is_prefix_rerun`), the caller must add its tokens.
    """
    prepared = _prepare_prefixed(model, texts, prefix, location)
    return cached_texts.describe_plan(len(texts), prepared, cached_texts.estimate_bytes_to_write(model, prepared, 0))


def compute_prefixed(
    model: TokenizedModel,
    texts: Sequence[str],
    prefix: Prefix,
    location: cached_texts.CacheLocation,
    backend: Callable[[], Backend],
    on_progress: Callable[[Progress], None] | None = None,
) -> RunSummary:
    """Run the model on the ``texts`` after ``prefix`` that the cache lacks, and write their rows as they arrive.

    A text that does not fit after the prefix is skipped and has no row.
    """
    caches = cached_texts.open_caches(location)
    prepared = _prepare_prefixed(model, texts, prefix, caches)
    return run_prepared(model, prepared, caches, backend, on_progress=on_progress)


def read_prefixed(
    model: TokenizedModel, texts: Iterable[str], prefix: Prefix, location: cached_texts.CacheLocation
) -> pa.Table:
    """Return the cached rows (PREFIXED) of ``texts`` after ``prefix``, each once. Texts without a row are absent."""
    keys = (_compute_row_key(model, text_sha256(text), prefix) for text in texts)
    return cached_texts.open_caches(location).of(model, "prefixed").read(keys)


def compute_prefixed_parts(
    model: TokenizedModel,
    parts: Sequence[EncodedText],
    prefix: Prefix,
    location: cached_texts.CacheLocation,
    backend: Callable[[], Backend],
    on_progress: Callable[[Progress], None] | None = None,
) -> list[float]:
    """Return the log-probability of each of ``parts`` after ``prefix`` in nats, from the cache if possible.

    Parts, such as suffixes of windows, keep the tokens that they have within their text. Prefix and part must fit into
    the window of the model.
    """
    keys = [_compute_row_key(model, digest(part.text_sha256, part.token_id.tolist()), prefix) for part in parts]
    caches = cached_texts.open_caches(location)
    cache = caches.of(model, "prefixed")
    missing = cache.missing(keys)
    absent = {key: part for key, part in zip(keys, parts, strict=True) if key in missing}
    prepared = _put_all_after(absent, prefix, len({*keys}) - len(absent))
    run_prepared(model, prepared, caches, backend, on_progress=on_progress)
    rows = cache.read(keys).select(["key", "logprob"]).to_pylist()
    log_p = {row["key"]: math.fsum(row["logprob"]) for row in rows}
    return list(map(log_p.__getitem__, keys))


def _prepare_prefixed(
    model: TokenizedModel, texts: Sequence[str], prefix: Prefix, location: cached_texts.CacheLocation
) -> cached_texts.Prepared:
    keys: Mapping[str, str] = {text: _compute_row_key(model, text_sha256(text), prefix) for text in texts}
    missing = cached_texts.open_caches(location).of(model, "prefixed").missing(keys.values())
    absent = [text for text, key in keys.items() if key in missing]
    fitting: dict[str, EncodedText] = {}
    for text, tokens in zip(absent, encode(model, absent), strict=True):
        if has_room(model, prefix, len(tokens.token_id)):
            fitting[keys[text]] = tokens
    return _put_all_after(fitting, prefix, len(keys) - len(absent))


def _put_all_after(absent: Mapping[str, EncodedText], prefix: Prefix, cached: int) -> cached_texts.Prepared:
    after = {key: put_after(prefix, tokens) for key, tokens in absent.items()}
    return cached_texts.prepare_single_windows("prefixed", after, cached=cached, prefix=prefix)


def _compute_row_key(model: TokenizedModel, sha256: str, prefix: Prefix) -> str:
    """Return the cache key of a text's row after ``prefix``. It covers everything that can change the row.

    ``sha256`` is the digest of the text, or of its tokens and the text that contains them. The tokens of the prefix
    include its start token. The length of the window and the position border decide if both fit.
    """
    border = [] if model.position_border is None else [model.position_border]
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
        *border,
    )
