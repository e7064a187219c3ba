import json
import re
from pathlib import Path

import numpy as np
import pytest

from audit_pipeline.errors import DataError
from audit_pipeline.splits.blind_controls import compute_blind_control
from audit_pipeline.statistics.roc import compute_metrics

WIKIMIA = Path(__file__).parents[3] / "shared" / "benchmarks" / "wikimia" / "WikiMIA_length32.jsonl"


def made(n=240, size=1, telling=0.0, seed=0, alphabet=None):
    """n texts of 30 made-up words, groups of ``size``; a share ``telling`` of members' texts holds a word of theirs."""
    generator = np.random.default_rng(seed)
    words = alphabet or [f"word{index}" for index in range(400)]
    group = np.arange(n) // size
    labels = generator.permutation(np.arange(group[-1] + 1) % 2)[group]
    texts = []
    for label in labels:
        chosen = generator.choice(words, 30).tolist()
        if label and generator.random() < telling:
            chosen[7] = words[0] * 2
        texts.append(("" if alphabet else " ").join(chosen))
    return [f"id{index:04d}" for index in range(n)], texts, labels, [f"g{one:04d}" for one in group]


def test_a_telling_word_is_found():
    ids, texts, labels, groups = made(telling=1.0)
    control = compute_blind_control(ids, texts, labels, groups, language="en")
    assert control.reason is None
    assert compute_metrics(control.scores, labels)["auroc"] > 0.75


def test_a_telling_pair_of_characters_is_found_where_words_have_no_blanks():
    han = [chr(0x4E00 + index) for index in range(300)]
    ids, texts, labels, groups = made(telling=1.0, alphabet=han)
    control = compute_blind_control(ids, texts, labels, groups, language="zh")
    assert "character 1-3-grams" in control.method
    assert compute_metrics(control.scores, labels)["auroc"] > 0.85
    # Taken for one with blanks, each text is one word, which no other has.
    by_words = compute_blind_control(ids, texts, labels, groups, language="en")
    assert by_words.scores is None
    assert "it learned nothing" in by_words.reason


def test_what_only_a_group_has_in_common_does_not_help():
    # Each group has its own vocabulary: with the group in the training folds the label could be read off it.
    ids, _, labels, groups = made(n=240, size=6)
    texts = [f"{group}a {group}b {group}c common words" for group in groups]
    control = compute_blind_control(ids, texts, labels, groups, language="en")
    assert control.scores is None
    assert control.reason.endswith("it learned nothing: all texts of a fold get the same prediction")
    ungrouped = compute_blind_control(ids, texts, labels, ids, language="en")
    assert compute_metrics(ungrouped.scores, labels)["auroc"] > 0.95


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"n": 199}, "199 labelled examples, it needs 200"),
        ({"n": 200, "size": 25}, "the members are of 4 groups, it needs 5"),
        ({"n": 200, "size": 200}, "groups?, it needs 5"),
    ],
)
def test_it_is_not_read_on_too_little(how, reason):
    ids, texts, labels, groups = made(**how)
    control = compute_blind_control(ids, texts, labels, groups, language="en")
    assert control.scores is None
    assert control.reason is not None
    assert re.search(reason, control.reason)


def test_it_is_not_read_with_one_class():
    ids, texts, _, groups = made()
    control = compute_blind_control(ids, texts, np.zeros(240, dtype=int), groups, language="en")
    assert control.reason == "the blind control was not computed: the members are of 0 groups, it needs 5"


def test_it_is_not_read_without_words():
    ids, _, labels, groups = made()
    control = compute_blind_control(ids, ["🙂 🙂"] * 240, labels, groups, language="en")
    assert control.reason == "the blind control was not computed: the texts hold no words"


@pytest.mark.parametrize("shared", [0, 3, 20])
def test_it_is_not_read_where_texts_share_no_words(shared):
    ids, _, labels, groups = made()
    texts = [f"only{index} here{index}" + " hello" * (index < shared) for index in range(240)]
    control = compute_blind_control(ids, texts, labels, groups, language="en")
    assert control.scores is None
    assert control.reason.startswith("the blind control was not computed: it learned nothing: ")
    enough = compute_blind_control(
        ids, [f"{text} {index % 2}0" for index, text in enumerate(texts)], labels, groups, language="en"
    )
    assert enough.scores is not None


def test_unequal_lengths_are_refused():
    ids, texts, labels, groups = made()
    with pytest.raises(DataError, match="for each example"):
        compute_blind_control(ids, texts[1:], labels, groups, language="en")


@pytest.mark.skipif(not WIKIMIA.exists(), reason="the WikiMIA files are not beside the repository")
def test_wikimia_is_told_apart_without_a_model():
    rows = [json.loads(line) for line in WIKIMIA.read_text(encoding="utf-8").splitlines()]
    texts, labels = [row["input"] for row in rows], np.array([row["label"] for row in rows])
    ids = [f"{index:04d}" for index in range(len(rows))]
    control = compute_blind_control(ids, texts, labels, ids, language="en")
    assert compute_metrics(control.scores, labels)["auroc"] > 0.95
