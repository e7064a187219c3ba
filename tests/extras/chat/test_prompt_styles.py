"""Prompt styles: passages, prompts, and the words of the document in each prompt."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import max_examples

from audit_pipeline.errors import ConfigError
from audit_pipeline.extras.chat.config import ChatModel
from audit_pipeline.extras.chat.prompt_styles import (
    PROMPT_STYLES,
    AskOptions,
    AskRequest,
    choose_passages,
    list_requests,
)
from audit_pipeline.extras.extraction.documents import SearchedDocument

ENTRY = ChatModel(name="m", model="openai/m", url="http://127.0.0.1:1/v1")


def words(count: int, begin: int = 0) -> str:
    return " ".join(f"w{number}" for number in range(begin, begin + count))


def document(text: str, title: str | None = "A Title", name: str = "book.txt") -> SearchedDocument:
    return SearchedDocument(name, text, title)


def by_style(requests: list[AskRequest]) -> dict[str, AskRequest]:
    return {request.style: request for request in requests}


def text_of(text: str, span: tuple[int, int]) -> str:
    return text[span[0] : span[1]]


@given(count=st.integers(0, 3000), most=st.integers(1, 12))
@max_examples(50)
def test_passages_never_overlap(count: int, most: int) -> None:
    text = words(count)
    spans = [one.get_span(0, 90) for one in choose_passages(text, most)]
    assert len(spans) == min(most, count // 90)
    assert all(before[1] < after[0] for before, after in itertools.pairwise(spans))
    assert all(len(text_of(text, span).split()) == 90 for span in spans)


def test_prompts_and_expected_words_of_each_style() -> None:
    text = words(10) + "\n" + words(140, 10)
    first = by_style(list_requests([document(text)], AskOptions(draws=0, passages=1)))
    assert list(first) == ["title", "first line", "prefix", "instruction"]
    assert [request.words_in for request in first.values()] == [0, 10, 50, 50]
    assert first["title"].prompt.startswith('How does "A Title" begin?')
    assert first["first line"].prompt == words(10)
    assert first["prefix"].prompt == words(10) + "\n" + words(40, 10)
    assert first["instruction"].prompt.endswith("\n\n" + first["prefix"].prompt)
    begins = [text_of(text, request.target).split()[0] for request in first.values()]
    assert begins == ["w0", "w10", "w50", "w50"]
    assert {len(text_of(text, request.target).split()) for request in first.values()} == {40}


def test_the_title_style_quotes_ten_words_before_later_passages() -> None:
    requests = list_requests([document(words(180))], AskOptions(rungs=("title",), headline="title", draws=0))
    assert [request.words_in for request in requests] == [0, 10]
    assert f'go on after the words "{words(10, 130)}"' in requests[1].prompt
    assert text_of(words(180), requests[1].target) == words(40, 140)


def test_a_first_line_has_five_to_twelve_words() -> None:
    for given_words, expected in ((3, 12), (5, 5), (11, 11), (20, 12)):
        text = words(given_words) + "\n" + words(200, given_words)
        line = by_style(list_requests([document(text)], AskOptions(draws=0, passages=1)))["first line"]
        assert line.words_in == expected
        assert len(line.prompt.split()) == expected


def test_the_name_replaces_a_missing_title() -> None:
    [request] = list_requests(
        [document(words(150), None)], AskOptions(rungs=("title",), headline="title", draws=0, passages=1)
    )
    assert 'How does "book.txt" begin?' in request.prompt


def test_the_likeliest_answers_come_before_all_draws() -> None:
    requests = list_requests([document(words(180)), document(words(90), name="b")], AskOptions(draws=2))
    assert [request.draw for request in requests] == sorted(request.draw for request in requests)
    assert len(requests) == 3 * 3 * 4
    digests = {request.compute_digest(ENTRY) for request in requests}
    assert len(digests) == len(
        {(request.document.text, request.passage, request.style, request.draw) for request in requests}
    )


def test_settings_that_change_answers_change_the_digest() -> None:
    [request] = list_requests(
        [document(words(150))], AskOptions(rungs=("prefix",), headline="prefix", draws=0, passages=1)
    )
    others = [
        ENTRY.model_copy(update=update)
        for update in (
            {"model": "openai/n"},
            {"url": "http://127.0.0.1:2/v1"},
            {"system_prompt": "Be brief."},
            {"answer_tokens": 199},
            {"revision": "2"},
        )
    ]
    assert len({request.compute_digest(entry) for entry in [ENTRY, *others]}) == 6
    changed = replace(request, document=document(words(90) + " more"))
    assert changed.compute_digest(ENTRY) != request.compute_digest(ENTRY), "the same words asked for in another text"
    same = [ENTRY.model_copy(update=update) for update in ({"max_cost": 3.0}, {"temperature": 0.5}, {"notes": "M"})]
    assert {request.compute_digest(entry) for entry in [ENTRY, *same]} == {request.compute_digest(ENTRY)}


def test_unknown_prompt_styles_are_refused() -> None:
    assert AskOptions.from_names("chat", PROMPT_STYLES, "title", 0, 1).rungs == PROMPT_STYLES
    assert AskOptions.from_names("chat", ["title", "title"], "title", 0, 1).rungs == ("title",)
    with pytest.raises(ConfigError, match=r"Unknown prompt style 'titles'\. Choose from: title, first line"):
        AskOptions.from_names("chat", ["titles"], "titles", 0, 1)
    with pytest.raises(ConfigError, match="'instruction' is not among the prompt styles of --rungs"):
        AskOptions.from_names("chat", ["title"], None, 0, 1)
    assert AskOptions.from_names("completions", PROMPT_STYLES, None, 0, 1).headline == "prefix"
