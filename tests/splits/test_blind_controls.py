"""Blind controls: classifiers that separate the two sides without the model."""

import functools
import json
import re
from pathlib import Path

import numpy as np
import pytest
from sklearn import linear_model

from audit_pipeline.errors import DataError
from audit_pipeline.splits import blind_controls as controls
from audit_pipeline.splits.blind_controls import (
    BlindControl,
    ControlAuroc,
    build_dense_features,
    compute_blind_control,
    compute_length_features,
    compute_other_controls,
    find_strongest_control,
    measure_controls,
)
from audit_pipeline.statistics.intervals import NO_INTERVAL, measure_auroc_of_scores
from audit_pipeline.statistics.roc import compute_metrics

WORDS = [f"word{index:03d}" for index in range(300)]
WIKIMIA = Path(__file__).parents[3] / "shared" / "benchmarks" / "wikimia" / "WikiMIA_length32.jsonl"


def made(n=240, size=1, alphabet=WORDS, tell=lambda words, label, generator: words):
    """Return ids, texts of 25 made-up words, labels and groups. ``tell`` changes the words of a text by its label."""
    generator = np.random.default_rng(0)
    groups = np.arange(n) // size
    labels = generator.permutation(np.arange(groups[-1] + 1) % 2)[groups]
    blank = " " if alphabet is WORDS else ""
    texts = [blank.join(tell(generator.choice(alphabet, 25).tolist(), label, generator)) for label in labels]
    return [f"{index:04d}" for index in range(n)], texts, labels, [f"g{group:04d}" for group in groups]


def controls_of(names, texts, labels, groups, language="en"):
    counts = [len(text.split()) for text in texts]
    words = compute_blind_control(names, texts, labels, groups, language=language)
    return {
        "words": words,
        **compute_other_controls(names, texts, labels, groups, language=language, word_counts=counts),
    }


def aurocs(names, texts, labels, groups, language="en"):
    found = controls_of(names, texts, labels, groups, language)
    return {one.name: one for one in measure_controls(found, labels, groups)}


def test_controls_of_equal_sides_are_near_one_half():
    for one in aurocs(*made(n=400)).values():
        if one.name == "dates":
            assert one.value is None
            assert "no training text mentions a year" in one.method
        else:
            assert one.interval.low - 0.03 < 0.5 < one.interval.high + 0.03


def test_each_control_detects_its_own_difference():
    def years(words, label, generator):
        return [*words, f"{generator.integers(2005, 2015) + 10 * label}"]

    def ending(words, label, generator):
        # Some shared words remain. Otherwise the control of words would know no word and would not be computed.
        made_up = [f"{word}{generator.integers(10**9)}{'ing' if label else 'ion'}" for word in words[5:]]
        return [*words[:5], *made_up]

    def longer(words, label, generator):
        return words[: 25 - 8 * label - generator.integers(4)]

    by_year = aurocs(*made(tell=years))
    assert by_year["dates"].value > 0.95
    assert find_strongest_control(list(by_year.values())).name == "dates"
    assert by_year["length"].value < 0.65
    by_ending = aurocs(*made(tell=ending))
    assert by_ending["characters"].value > 0.95
    assert by_ending["words"].value < 0.7
    assert aurocs(*made(tell=longer))["length"].value > 0.95


def test_a_difference_in_the_spread_of_lengths_is_detected():
    def spread(words, label, generator):
        return words[: 20 - (generator.choice([-5, 5]) if label else 0)]

    assert aurocs(*made(tell=spread))["length"].value > 0.95


def test_the_word_control_is_the_blind_control_and_its_interval():
    names, texts, labels, groups = made()
    one = aurocs(names, texts, labels, groups)["words"]
    alone = compute_blind_control(names, texts, labels, groups, language="en")
    assert one.value == compute_metrics(alone.scores, labels)["auroc"]
    assert one.interval == measure_auroc_of_scores(alone.scores, labels, groups).interval


def test_without_blanks_the_control_of_characters_is_omitted():
    found = controls_of(*made(), "zh")
    assert "characters" not in found
    assert "character 1-3-grams" in found["words"].method


def test_scores_that_are_all_equal_have_no_interval():
    _, _, labels, groups = made()
    (found,) = measure_controls({"words": BlindControl(np.zeros(len(labels)), None, "made")}, labels, groups)
    assert (found.value, found.interval) == (0.5, NO_INTERVAL)
    assert found.method.endswith("all scores are equal, so they separate nothing")


def test_order_of_rows_does_not_matter():
    def years(words, label, generator):
        return [*words, f"{generator.integers(2005, 2025)}"]

    names, texts, labels, groups = made(tell=years)
    order = np.random.default_rng(5).permutation(len(names))
    shuffled = controls_of(
        [names[i] for i in order], [texts[i] for i in order], labels[order], [groups[i] for i in order]
    )
    for name, control in controls_of(names, texts, labels, groups).items():
        assert (shuffled[name].scores == control.scores[order]).all()


def test_long_texts_are_read_from_their_beginning(monkeypatch):
    def last(words, label, generator):
        return [*words, "yes" if label else "no"]

    told = made(tell=last)
    assert aurocs(*told)["characters"].value > 0.8
    monkeypatch.setattr(controls, "MAX_CHARACTERS", 240 * 100)
    short = aurocs(*told)["characters"]
    assert short.value < 0.65
    assert "of each text's first 100 characters" in short.method


def test_dense_features_by_hand():
    rows = np.array([[1.0, 5.0], [3.0, 5.0], [np.nan, 5.0], [1000.0, 6.0]])
    training, held_out = build_dense_features(rows)(np.array([0, 1, 2]), np.array([3]))
    # The mean is 2 and the deviation 1. A missing value counts as the mean. A constant column becomes 0.
    assert training.tolist() == [[-1, 0, 1, 0], [1, 0, 1, 0], [0, 0, 0, 0]]
    assert held_out.tolist() == [[4, 0, 16, 0]]


def test_length_features_of_a_text():
    (row,) = compute_length_features(["é é"], [2])
    assert row[:3] == pytest.approx(np.log1p([2, 3, 5]))


def test_the_worst_is_the_highest_and_the_first_of_equals():
    def of(name, auroc):
        return ControlAuroc(auroc, NO_INTERVAL, "", name, 200)

    assert find_strongest_control([of("a", 0.6), of("b", None), of("c", 0.7), of("d", 0.7)]).name == "c"
    assert find_strongest_control([of("b", None)]) is None


def test_a_fold_without_texts_to_score_is_no_error():
    training, none = np.arange(2), np.array([], dtype=int)
    fitted, held_out = controls.build_character_features(["abcd", "abce"], (3, 5))(training, none)
    assert held_out.shape == (0, fitted.shape[1])
    assert build_dense_features(np.ones((2, 1)))(training, none)[1].shape == (0, 2)


def test_a_telling_word_is_found():
    ids, texts, labels, groups = made(tell=lambda words, label, generator: [*words, "telltale"] if label else words)
    control = compute_blind_control(ids, texts, labels, groups, language="en")
    assert control.reason is None
    assert compute_metrics(control.scores, labels)["auroc"] > 0.75


def test_a_telling_pair_of_characters_is_found_in_a_script_without_blanks():
    han = [chr(0x4E00 + index) for index in range(300)]
    ids, texts, labels, groups = made(
        alphabet=han, tell=lambda words, label, generator: [*words, han[0] * 2] if label else words
    )
    control = compute_blind_control(ids, texts, labels, groups, language="zh")
    assert "character 1-3-grams" in control.method
    assert compute_metrics(control.scores, labels)["auroc"] > 0.85
    # In a language with blanks, each text is one word that no other text has.
    by_words = compute_blind_control(ids, texts, labels, groups, language="en")
    assert by_words.scores is None
    assert "the classifier learned nothing" in by_words.reason


def test_words_of_one_group_do_not_help():
    # Each group has its own vocabulary. If a group were in the training folds, its words would reveal the label.
    ids, _, labels, groups = made(size=6)
    texts = [f"{group}a {group}b {group}c common words" for group in groups]
    control = compute_blind_control(ids, texts, labels, groups, language="en")
    assert control.scores is None
    assert control.reason.endswith("the classifier learned nothing: all texts of a fold have the same prediction")
    ungrouped = compute_blind_control(ids, texts, labels, ids, language="en")
    assert compute_metrics(ungrouped.scores, labels)["auroc"] > 0.95


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"n": 199}, "there are 199 labelled examples, but 200 are required"),
        ({"n": 200, "size": 25}, "the members belong to 4 groups, but 5 are required"),
        ({"n": 200, "size": 200}, "groups?, but 5 are required"),
    ],
)
def test_too_few_texts_or_groups_yield_no_control(how, reason):
    ids, texts, labels, groups = made(**how)
    control = compute_blind_control(ids, texts, labels, groups, language="en")
    assert control.scores is None
    assert control.reason is not None
    assert re.search(reason, control.reason)


def test_one_class_and_texts_without_words_yield_no_control():
    ids, texts, labels, groups = made()
    control = compute_blind_control(ids, texts, np.zeros(240, dtype=int), groups, language="en")
    assert control.reason == "the blind control was not computed: the members belong to 0 groups, but 5 are required"
    control = compute_blind_control(ids, ["🙂 🙂"] * 240, labels, groups, language="en")
    assert control.reason == "the blind control was not computed: the texts contain no words"


@pytest.mark.parametrize("shared", [0, 3, 20])
def test_texts_without_shared_words_yield_no_control(shared):
    ids, _, labels, groups = made()
    texts = [f"only{index} here{index}" + " hello" * (index < shared) for index in range(240)]
    control = compute_blind_control(ids, texts, labels, groups, language="en")
    assert control.scores is None
    assert control.reason.startswith("the blind control was not computed: the classifier learned nothing: ")
    enough = compute_blind_control(
        ids, [f"{text} {index % 2}0" for index, text in enumerate(texts)], labels, groups, language="en"
    )
    assert enough.scores is not None


def test_unequal_lengths_are_refused():
    ids, texts, labels, groups = made()
    with pytest.raises(DataError, match="for each example"):
        compute_blind_control(ids, texts[1:], labels, groups, language="en")


@pytest.mark.skipif(not WIKIMIA.exists(), reason="the WikiMIA files are not beside the repository")
def test_wikimia_is_separable_without_a_model():
    rows = [json.loads(line) for line in WIKIMIA.read_text(encoding="utf-8").splitlines()]
    texts, labels = [row["input"] for row in rows], np.array([row["label"] for row in rows])
    ids = [f"{index:04d}" for index in range(len(rows))]
    control = compute_blind_control(ids, texts, labels, ids, language="en")
    assert compute_metrics(control.scores, labels)["auroc"] > 0.95


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_solver_for_many_texts_finds_the_same_weights(monkeypatch, share):
    def tell(words, label, generator):
        is_changed = label and generator.random() < share
        return [*words, f"in {generator.integers(2000, 2024)}", *["telltale"] * 3 * is_changed]

    ids, texts, labels, groups = made(n=400, tell=tell)
    # By default liblinear stops early: at 1e-4 of the first gradient.
    exact = functools.partial(linear_model.LogisticRegression, tol=1e-9)
    monkeypatch.setattr(linear_model, "LogisticRegression", exact)
    expected = controls_of(ids, texts, labels, groups)
    monkeypatch.setattr(controls, "MAX_LIBLINEAR_TEXTS", 0)
    found = controls_of(ids, texts, labels, groups)
    assert set(found) == {"words", "characters", "length", "dates"}
    for name, control in found.items():
        tolerance = 1e-3 * np.std(expected[name].scores)
        np.testing.assert_allclose(control.scores, expected[name].scores, rtol=0, atol=tolerance)
        auroc = compute_metrics(control.scores, labels)["auroc"]
        assert auroc == pytest.approx(compute_metrics(expected[name].scores, labels)["auroc"], abs=2e-4)


def test_many_texts_without_shared_words_still_yield_no_control(monkeypatch):
    monkeypatch.setattr(controls, "MAX_LIBLINEAR_TEXTS", 0)
    ids, _, labels, groups = made(size=6)
    texts = [f"{group}a {group}b {group}c common words" for group in groups]
    control = compute_blind_control(ids, texts, labels, groups, language="en")
    assert control.scores is None
    assert control.reason.endswith("the classifier learned nothing: all texts of a fold have the same prediction")
