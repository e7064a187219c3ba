"""How often each term occurs in each text, counted once for all folds; and its TF-IDF as learnt on some of the texts.

Features are to the last bit those of scikit-learn's TfidfVectorizer (sublinear_tf, max_features) fitted to the training
texts. It would read every text again in every fold, and hold every term as a Python string; here terms are numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse
from sklearn.feature_extraction.text import TfidfTransformer

from audit_pipeline.statistics.roc import Places

_TEXTS_AT_ONCE = 1024

Counts = Any
"""A sparse matrix in rows, [texts, terms]. Terms are in alphabetical order; the entries of a row are in the order in
which the text has them, which scikit-learn's sums follow."""


def count_terms(texts: Sequence[str], terms_of: Callable[[str], Sequence[str]]) -> Counts:
    """Return how often each of all terms occurs in each text."""
    counted = [
        _count_part(texts[start : start + _TEXTS_AT_ONCE], terms_of) for start in range(0, len(texts), _TEXTS_AT_ONCE)
    ]
    terms = pa.chunked_array(
        [terms_of_batch for terms_of_batch, _, _ in counted], pa.dictionary(pa.int32(), pa.large_string())
    )
    terms = terms.unify_dictionaries()
    names = terms.chunk(0).dictionary
    alphabetical = np.empty(len(names), np.int32)
    alphabetical[pc.sort_indices(names).to_numpy()] = np.arange(len(names), dtype=np.int32)
    indices = alphabetical[np.concatenate([chunk.indices.to_numpy() for chunk in terms.chunks])]
    counts = np.concatenate([counts_of_batch for _, counts_of_batch, _ in counted])
    starts = np.cumsum(np.concatenate([[0], *(starts_of_batch for _, _, starts_of_batch in counted)])).astype(np.int32)
    return sparse.csr_array((counts, indices, starts), shape=(len(texts), len(names)))


def compute_tf_idf(counts: Counts, training: Places, held_out: Places, max_terms: int) -> tuple[Counts, Counts] | None:
    """The features of the training and of the held-out texts, of at most so many terms; None where there is no term."""
    learnt = counts[training]
    if not learnt.nnz:
        return None
    met = np.full(counts.shape[1], learnt.nnz, np.int32)
    # Backwards, so that the first place of each term is what is left.
    met[learnt.indices[::-1]] = np.arange(learnt.nnz, dtype=np.int32)[::-1]
    terms = np.flatnonzero(met < learnt.nnz)
    if len(terms) > max_terms:
        often = np.bincount(learnt.indices, weights=learnt.data, minlength=counts.shape[1])[terms]
        terms = terms[np.sort((-often).argsort()[:max_terms])]
    fitted = _select_terms(learnt, terms, met)
    del learnt
    weights = TfidfTransformer(sublinear_tf=True).fit(fitted)
    scored = weights.transform(_select_terms(counts[held_out], terms), copy=False) if len(held_out) else fitted[:0]
    return weights.transform(fitted, copy=False), scored


def _count_part(texts: Sequence[str], terms_of: Callable[[str], Sequence[str]]) -> tuple[pa.Array, Any, Any]:
    """The terms of some texts, each once a text, in the order in which it has them; how often; how many a text has."""
    found = [terms_of(text) for text in texts]
    terms = pa.array(itertools.chain.from_iterable(found), pa.large_string()).dictionary_encode()
    rows = np.repeat(np.arange(len(found)), [len(terms_of_text) for terms_of_text in found])
    codes = terms.indices.to_numpy()
    _, first, counts = np.unique(rows * (len(terms.dictionary) + 1) + codes, return_index=True, return_counts=True)
    order = np.argsort(first)
    places = first[order]
    sizes = np.bincount(rows[places], minlength=len(found))
    terms_left = pa.DictionaryArray.from_arrays(pa.array(codes[places]), terms.dictionary)
    return terms_left, counts[order].astype(np.int32), sizes


def _select_terms(counts: Counts, terms: Places, term_order: npt.NDArray[np.int32] | None = None) -> Counts:
    """Return the entries of these terms alone, renumbered: in each row by ``term_order``, or else by number."""
    order = np.arange(len(terms)) if term_order is None else np.argsort(term_order[terms])
    chosen = counts[:, terms[order]]
    chosen.sort_indices()
    columns = order.astype(np.int32)[chosen.indices]
    return sparse.csr_array((chosen.data.astype(np.float64), columns, chosen.indptr), shape=chosen.shape)
