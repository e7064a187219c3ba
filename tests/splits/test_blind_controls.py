import numpy as np
import pytest

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


def made(n=240, seed=0, tell=lambda words, label, generator: words):
    """n texts of 25 made-up words; ``tell`` makes a text's words show its label."""
    generator = np.random.default_rng(seed)
    labels = generator.permutation(np.arange(n) % 2)
    texts = [" ".join(tell(generator.choice(WORDS, 25).tolist(), label, generator)) for label in labels]
    names = [f"{index:04d}" for index in range(n)]
    return names, texts, labels, names


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


def test_nothing_is_found_where_there_is_nothing():
    for one in aurocs(*made(n=400)).values():
        if one.name == "dates":
            assert one.value is None
            assert "too few texts mention a year" in one.method
        else:
            assert one.interval.low - 0.03 < 0.5 < one.interval.high + 0.03


def test_each_control_sees_its_own():
    def years(words, label, generator):
        return [*words, f"{generator.integers(2005, 2015) + 10 * label}"]

    def ending(words, label, generator):
        # Some words of others are left: a control that meets none of them has learned nothing and is not computed.
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


def test_the_spread_of_lengths_is_seen_not_only_their_mean():
    def spread(words, label, generator):
        return words[: 20 - (generator.choice([-5, 5]) if label else 0)]

    assert aurocs(*made(tell=spread))["length"].value > 0.95


def test_the_word_control_is_the_blind_control_and_its_interval():
    names, texts, labels, groups = made()
    one = aurocs(names, texts, labels, groups)["words"]
    alone = compute_blind_control(names, texts, labels, groups, language="en")
    assert one.value == compute_metrics(alone.scores, labels)["auroc"]
    assert one.interval == measure_auroc_of_scores(alone.scores, labels, groups).interval


def test_without_blanks_between_words_characters_are_what_the_word_control_has():
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
    monkeypatch.setattr(controls, "MOST_CHARACTERS", 240 * 100)
    short = aurocs(*told)["characters"]
    assert short.value < 0.65
    assert "of each text's first 100 characters" in short.method


def test_dense_features_by_hand():
    rows = np.array([[1.0, 5.0], [3.0, 5.0], [np.nan, 5.0], [1000.0, 6.0]])
    training, held_out = build_dense_features(rows)(np.array([0, 1, 2]), np.array([3]))
    # Mean 2, deviation 1; no value counts as the mean; a column that does not vary says nothing, ever.
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
