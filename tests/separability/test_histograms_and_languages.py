from datetime import date

from audit_pipeline.separability.evaluation_texts import (
    bin_dates,
    choose_date_unit,
    compute_shares,
    group_places_by_side,
    summarise_lengths,
)
from audit_pipeline.separability.languages import detect_languages, is_same_language


def test_sides_that_are_not_there_are_left_out():
    assert group_places_by_side([1, 0, 1, 1]) == {"members": [0, 2, 3], "nonmembers": [1]}
    assert group_places_by_side([None]) == {"unlabelled": [0]}


def test_shares_by_name():
    assert compute_shares(["b", "a", "b", "b"]) == {"a": (1, 0.25), "b": (3, 0.75)}
    assert compute_shares([]) == {}


def test_dates_within_three_years_are_told_by_month():
    assert choose_date_unit([date(2021, 1, 31), date(2023, 12, 1), None]) == "month"
    assert choose_date_unit([date(2021, 1, 31), date(2024, 1, 1)]) == "year"
    assert choose_date_unit([None]) == "year"
    assert bin_dates([date(2021, 1, 31), None], "month") == ["2021-01", "undated"]
    assert bin_dates([date(2021, 1, 31)], "year") == ["2021"]


def test_lengths_by_hand():
    found = summarise_lengths([1, 3, 5])
    assert (found.mean, found.least, found.most) == (3.0, 1.0, 5.0)
    assert abs(found.std - (8 / 3) ** 0.5) < 1e-12


def test_plain_sentences_are_told_by_language():
    texts = [
        "The committee met on Tuesday to discuss the budget for the coming year and adjourned early.",
        "Der Ausschuss tagte am Dienstag, um über den Haushalt des kommenden Jahres zu beraten.",
        "委员会于星期二开会讨论来年的预算，并提前休会。",
    ]
    assert detect_languages(texts) == ["en", "de", "zh"]
    assert is_same_language("zh-TW", "zh")
    assert is_same_language("EN", "en")
    assert not is_same_language("en", "de")
