"""Years, months and the language of a text."""

import pytest

from audit_pipeline.splits.text_traits import detect_languages, find_years_and_months, is_same_language


@pytest.mark.parametrize(
    ("text", "years"),
    [
        ("In 1999, and the 1990s; (2021) 2021–22.", (1999, 1990, 2021, 2021)),
        ("2024-03-01, 2020/5/6, 1.3.2024, 15/03/2019, 2023年", (2024, 2020, 2024, 2019, 2023)),
        ("二〇二三年 and 二零二四年, 共2022年 and ２０２１年", (2023, 2024, 2022, 2021)),
        ("1499 1500 2099 2100", (1500, 2099)),
        ("$2000, £1999, #2020, 2018%, 2,000, 12,2021, 1.2019, v2019, 2019a, 20191, 2017,000", ()),
        ("1800 people", (1800,)),
        ("", ()),
    ],
)
def test_years(text, years):
    assert find_years_and_months(text)[0] == [*years]


@pytest.mark.parametrize(
    ("text", "months"),
    [
        ("May, June and Sept 2018; they may march on", (5, 6, 9)),
        ("Maybe Marching in Decembers", ()),
        ("2024-03, 2024/12/1, 2024年7月, 2024-13", (3, 12, 7)),
        ("from January to Dec.", (1, 12)),
    ],
)
def test_months(text, months):
    assert find_years_and_months(text)[1] == [*months]


def test_languages_of_plain_sentences():
    texts = [
        "The committee met on Tuesday to discuss the budget for the coming year and adjourned early.",
        "Der Ausschuss tagte am Dienstag, um über den Haushalt des kommenden Jahres zu beraten.",
        "委员会于星期二开会讨论来年的预算，并提前休会。",
    ]
    assert detect_languages(texts) == ["en", "de", "zh"]
    assert is_same_language("zh-TW", "zh")
    assert is_same_language("EN", "en")
    assert not is_same_language("en", "de")
