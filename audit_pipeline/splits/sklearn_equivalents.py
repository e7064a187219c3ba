"""Faster equivalents of scikit-learn's TF-IDF and of its folds by group.

The features are equal, to the last bit, to those of scikit-learn's TfidfVectorizer (sublinear_tf, max_features) fitted
to the training texts. TfidfVectorizer reads every text again in every fold and stores every term as a Python string.
This module counts once for all folds and stores terms as numbers.

The module is separate because it needs scikit-learn at import time, which takes seconds to load.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.model_selection import StratifiedGroupKFold

from audit_pipeline.statistics.roc import Places

_TEXTS_PER_BATCH = 1024

Counts = Any
"""A sparse row matrix of shape (n_texts, n_terms) with the terms in alphabetical order.

The entries of a row are in the order of the text, because scikit-learn sums them in that order.
"""


def count_terms(texts: Sequence[str], list_terms: Callable[[str], Sequence[str]]) -> Counts:
    """Count the occurrences of each term in each text.

    ``list_terms`` returns the terms of a text in order, with repetitions.
    """
    term_batches = []
    count_batches = []
    size_batches = [np.zeros(1, np.int64)]
    for start in range(0, len(texts), _TEXTS_PER_BATCH):
        batch = _count_batch(texts[start : start + _TEXTS_PER_BATCH], list_terms)
        term_batches.append(batch.terms)
        count_batches.append(batch.counts)
        size_batches.append(batch.sizes)
    terms = pa.chunked_array(term_batches, pa.dictionary(pa.int32(), pa.large_string())).unify_dictionaries()
    names = terms.chunk(0).dictionary
    alphabetical = np.empty(len(names), np.int32)
    alphabetical[pc.sort_indices(names).to_numpy()] = np.arange(len(names), dtype=np.int32)
    indices = alphabetical[np.concatenate([chunk.indices.to_numpy() for chunk in terms.chunks])]
    counts = np.concatenate(count_batches)
    starts = np.cumsum(np.concatenate(size_batches)).astype(np.int32)
    return sparse.csr_array((counts, indices, starts), shape=(len(texts), len(names)))


def compute_tf_idf(counts: Counts, training: Places, held_out: Places, max_terms: int) -> tuple[Counts, Counts] | None:
    """Compute the TF-IDF features of the training texts and of the held-out texts.

    Args:
        counts: The counts of all texts, as :func:`count_terms` returns them.
        training: The positions of the texts that vocabulary and weights are learnt from.
        held_out: The positions of the other texts.
        max_terms: Maximum number of terms. The most frequent terms in the training texts are used.

    Returns:
        The features of the training texts and of the held-out texts, or None if the training texts have no term.
    """
    learnt = counts[training]
    if not learnt.nnz:
        return None
    # The assignment runs backwards, so that each term ends with its first position.
    first_positions = np.full(counts.shape[1], learnt.nnz, np.int32)
    first_positions[learnt.indices[::-1]] = np.arange(learnt.nnz, dtype=np.int32)[::-1]
    terms = np.flatnonzero(first_positions < learnt.nnz)
    if len(terms) > max_terms:
        frequencies = np.bincount(learnt.indices, weights=learnt.data, minlength=counts.shape[1])[terms]
        terms = terms[np.sort((-frequencies).argsort()[:max_terms])]
    fitted = _select_terms(learnt, terms, first_positions)
    del learnt
    weights = TfidfTransformer(sublinear_tf=True).fit(fitted)
    scored = fitted[:0]
    if len(held_out):
        scored = weights.transform(_select_terms(counts[held_out], terms), copy=False)
    return weights.transform(fitted, copy=False), scored


class _BatchCounts(NamedTuple):
    """The counts of the distinct terms of some texts.

    Attributes:
        terms: The distinct terms of each text in the order of the text, for all texts one after the other.
        counts: The number of occurrences of each of ``terms`` in its text.
        sizes: The number of distinct terms per text, of shape (n_texts,).
    """

    terms: pa.Array
    counts: npt.NDArray[np.int32]
    sizes: npt.NDArray[np.int64]


def _count_batch(texts: Sequence[str], list_terms: Callable[[str], Sequence[str]]) -> _BatchCounts:
    listed = list(map(list_terms, texts))
    terms = pa.array(itertools.chain.from_iterable(listed), pa.large_string()).dictionary_encode()
    rows = np.repeat(np.arange(len(listed)), list(map(len, listed)))
    codes = terms.indices.to_numpy()
    _, first_positions, counts = np.unique(
        rows * (len(terms.dictionary) + 1) + codes, return_index=True, return_counts=True
    )
    order = np.argsort(first_positions)
    positions = first_positions[order]
    distinct_terms = pa.DictionaryArray.from_arrays(pa.array(codes[positions]), terms.dictionary)
    sizes = np.bincount(rows[positions], minlength=len(listed))
    return _BatchCounts(distinct_terms, counts[order].astype(np.int32), sizes)


def _select_terms(counts: Counts, terms: Places, term_order: npt.NDArray[np.int32] | None = None) -> Counts:
    """Return the counts of these terms, renumbered.

    The entries of each row are sorted by ``term_order``, or by term number if ``term_order`` is None.
    """
    order = np.arange(len(terms)) if term_order is None else np.argsort(term_order[terms])
    chosen = counts[:, terms[order]]
    chosen.sort_indices()
    columns = order.astype(np.int32)[chosen.indices]
    return sparse.csr_array((chosen.data.astype(np.float64), columns, chosen.indptr), shape=chosen.shape)


ClassCounts = npt.NDArray[np.float64]


class FastStratifiedGroupKFold(StratifiedGroupKFold):  # type: ignore[misc]
    """A faster StratifiedGroupKFold of scikit-learn that yields the same folds."""

    # scikit-learn calls numpy several times for each group and fold. That takes seconds for 15,000 groups.
    # This method calls numpy once per group. If a version of scikit-learn lacks this private method, the folds are
    # the same, but slower to compute.
    def _find_best_fold(self, y_counts_per_fold: ClassCounts, y_cnt: ClassCounts, group_y_counts: ClassCounts) -> int:
        """Return the fold for which adding the group keeps the classes most even.

        If folds are equally even, return the fold with the fewest examples.
        """
        tried = y_counts_per_fold + np.eye(len(y_counts_per_fold))[:, :, None] * group_y_counts
        spreads = np.std(tried / y_cnt, axis=1).mean(axis=1).tolist()
        sizes = y_counts_per_fold.sum(axis=1).tolist()
        best = 0
        for fold, spread in enumerate(spreads):
            is_as_even = abs(spread - spreads[best]) <= 1e-8 + 1e-5 * spreads[best]
            if spread < spreads[best] or (is_as_even and sizes[fold] < sizes[best]):
                best = fold
        return best
