"""From the progress of passes to that of a file."""

from __future__ import annotations

from audit_pipeline.fetch.stream import Expected
from audit_pipeline.scoring.file_progress import FileProgress, Pace, PassWeight
from audit_pipeline.token_statistics.run import Progress


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def paced(*passes: PassWeight) -> tuple[Pace, list[FileProgress], Clock]:
    told: list[FileProgress] = []
    clock = Clock()
    return Pace(passes or [PassWeight()], told.append, clock), told, clock


def inner(tokens: int, of: int, seconds: float) -> Progress:
    return Progress(0, 0, tokens, of, seconds)


def test_the_first_batch_tells_what_the_whole_file_will_take() -> None:
    pace, told, clock = paced()
    pace.begin(50, Expected(200, estimated=True))
    clock.now += 10
    pace(inner(100, 1000, 10.0))
    # A tenth of 50 texts in 10 s: 195 texts are left, at half a text a second; 20 tokens per text.
    assert told == [FileProgress(5, 200, True, 100, 4000, 10.0, 390.0)]


def test_several_passes_of_a_chunk_are_parts_of_its_texts() -> None:
    pace, told, _ = paced(PassWeight(time=4), PassWeight(), PassWeight(tokens=5, time=5))
    pace.begin(50, Expected(50, estimated=False))
    pace(inner(500, 1000, 10.0))
    pace(inner(1000, 1000, 20.0))
    pace(inner(250, 500, 5.0))
    pace(inner(3000, 3000, 1.0))
    pace.end()
    assert [(one.texts_done, one.tokens_done, one.tokens_total) for one in told] == [
        (10, 500, 7000),
        (20, 1000, 7000),
        (22, 1250, 4000),
        (50, 4500, 4500),
        (50, 4500, 4500),
    ]


def test_more_passes_than_were_thought_of_are_the_end_of_the_chunk() -> None:
    pace, told, _ = paced()
    pace.begin(50, Expected(50, estimated=False))
    pace(inner(1000, 1000, 10.0))
    pace(inner(100, 1000, 1.0))
    assert [(one.texts_done, one.tokens_total) for one in told] == [(50, 1000), (50, 2000)]


def test_what_came_from_the_cache_says_nothing_of_the_pace() -> None:
    pace, told, clock = paced()
    pace.begin(100, Expected(300, estimated=True))
    clock.now += 1
    pace.end()
    assert (told[-1].texts_done, told[-1].tokens_total) == (100, 0)
    pace.begin(100, Expected(310, estimated=True))
    clock.now += 60
    pace(inner(500, 1000, 50.0))
    # Fifty texts in 50 s, so 160 more take 160 s; the second before and the loading of the model are left out.
    assert (told[-1].texts_done, told[-1].texts_total, told[-1].seconds_left) == (150, 310, 160.0)


def test_a_file_with_more_texts_than_it_looked_like() -> None:
    pace, told, _ = paced()
    for expected in (Expected(90, estimated=True), Expected(100, estimated=True)):
        pace.begin(60, expected)
        pace.end()
    assert [(one.texts_done, one.texts_total) for one in told] == [(60, 90), (120, 120)]


def test_one_chunk_from_the_cache_is_not_told_of() -> None:
    pace, told, _ = paced()
    pace.begin(50, Expected(50, estimated=False))
    pace.end()
    assert told == []
