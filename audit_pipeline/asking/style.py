"""The quiz without the model: which of four wordings a classifier of style takes for the verbatim one.

What belongs here: the style of a text in numbers, and the choice made by it. What does not: the model's choices, and
what follows where the classifier does as well (quiz.py).

The classifier sees the options and nothing else, and learns from the quizzes of other documents only: lower case,
length, punctuation, variety and rarity of words, of an option alone and beside the other three of its question. What it
gets right, nobody needs to have read the document for. It reads style coarsely, so what it gets wrong proves nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from audit_pipeline.metrics.roc import Floats
from audit_pipeline.overlap.words import split_texts

MIN_DOCUMENTS = 3
FOLDS = 10
_OPTIONS = 4
_TIE = 1e-9
_PUNCTUATION = re.compile(r"[^\w\s]")


def choose_by_style(options: Sequence[Sequence[str]], documents: Sequence[str]) -> Floats | None:
    """How far the classifier is right about each question, out of fold: 1, 0, or 1/k where k options tie: [n].

    options: four texts for each of n questions, the verbatim one first; documents: whose question it is. The questions
    of one document are never learned from to answer another of its questions (10 folds by document, or as many as there
    are documents). None with fewer than 3 documents. The order of questions changes nothing.
    """
    if len(set(documents)) < MIN_DOCUMENTS:
        return None
    # Imported where it is used: other importers need not wait for scikit-learn.
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415
    from sklearn.model_selection import GroupKFold  # noqa: PLC0415
    from sklearn.preprocessing import StandardScaler  # noqa: PLC0415

    order = sorted(range(len(documents)), key=lambda number: (documents[number], *options[number]))
    names, groups = np.unique([documents[number] for number in order], return_inverse=True)
    features = _describe_style([options[number] for number in order], groups)
    is_verbatim = np.arange(_OPTIONS) == 0
    right = np.empty(len(order))
    for training, asked in GroupKFold(min(FOLDS, len(names))).split(features, groups=groups):
        known, unknown = (features[part].reshape(len(part) * _OPTIONS, -1) for part in (training, asked))
        scaler = StandardScaler().fit(known)
        classifier = LogisticRegression(solver="liblinear")
        classifier.fit(scaler.transform(known), np.tile(is_verbatim, len(training)))
        odds = classifier.decision_function(scaler.transform(unknown)).reshape(len(asked), _OPTIONS)
        is_best = odds >= odds.max(axis=1, keepdims=True) - _TIE
        right[asked] = is_best[:, 0] / is_best.sum(axis=1)
    found = np.empty(len(order))
    found[order] = right
    return found


def _describe_style(options: Sequence[Sequence[str]], groups: npt.NDArray[np.intp]) -> Floats:
    """Of n questions' options what they are like, and by how much more than the mean of the four: [n, 4, 12]."""
    texts = [option for four in options for option in four]
    words, first = split_texts(texts)
    counts = np.diff(first)
    owners = np.repeat(np.arange(len(texts)), counts)
    _, ids = np.unique(words.hashes, return_inverse=True)
    vocabulary = int(ids.max()) + 1
    distinct = np.bincount(np.unique(owners * vocabulary + ids) // vocabulary, minlength=len(texts))
    letters = np.bincount(owners, words.ends - words.starts, len(texts))
    # How often the other documents use a word: what a document's own name is counts for nothing.
    group_of_word = np.repeat(groups, _OPTIONS)[owners]
    _, place, own = np.unique(group_of_word * vocabulary + ids, return_inverse=True, return_counts=True)
    elsewhere = np.bincount(ids, minlength=vocabulary)[ids] - own[place]
    rarity = np.log((elsewhere + 1) / (len(ids) - np.bincount(group_of_word)[group_of_word] + 1))
    some = np.maximum(counts, 1)
    lower, cased, signs = np.array([_count_characters(text) for text in texts], dtype=np.float64).T
    columns = (
        lower / np.maximum(cased, 1),
        counts,
        letters / some,
        signs / some,
        distinct / some,
        np.bincount(owners, rarity, len(texts)) / some,
    )
    alone = np.stack(columns, axis=1).reshape(len(options), _OPTIONS, len(columns))
    return np.concatenate([alone, alone - alone.mean(axis=1, keepdims=True)], axis=2)


def _count_characters(text: str) -> tuple[int, int, int]:
    """Letters in lower case, letters in either, and signs that are neither words nor blanks."""
    lower = sum(map(str.islower, text))
    return lower, lower + sum(map(str.isupper, text)), len(_PUNCTUATION.findall(text))
