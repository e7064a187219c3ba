"""The search for passages in a tiny model that was taught one passage, and the probabilities of its windows."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from taught import DOCUMENTS, PASSAGE, Taught
from tiny_models import save_model, tokenized
from tokenizers import Tokenizer, processors

from audit_pipeline.benchmarks.settings import ExtractionSettings
from audit_pipeline.errors import DataError
from audit_pipeline.extras.extraction.continuations import count_hits, generate_suffix
from audit_pipeline.extras.extraction.memorisation import MAX_GAP_CHARACTERS, THRESHOLDS, Windows
from audit_pipeline.extras.extraction.window_probabilities import encode_windows_at
from audit_pipeline.token_statistics.run import Progress
from audit_pipeline.token_statistics.tokens import encode

pytestmark = pytest.mark.usefixtures("one_thread")

PREFIX, SUFFIX = 16, 24
FINE = ExtractionSettings(prefix=PREFIX, suffix=SUFFIX)
TILED, GRID = (FINE.override(stride=stride) for stride in ("tiled", "chars:10"))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data folder. Its cache makes repeated searches fast."""
    return tmp_path_factory.mktemp("search")


def test_coarse_to_fine_finds_what_the_whole_grid_finds(taught: Taught, shared: Path) -> None:

    def find_likely(windows: Windows) -> set[int]:
        """Return the starts of the windows whose suffix reaches the lowest threshold."""
        return set(windows.start[windows.log_p_top >= math.log(THRESHOLDS[0])].tolist())

    settings = (GRID, FINE, TILED)
    on_whole_grid, found, tiled = (taught.search(shared, asked).run(taught.load) for asked in settings)
    planted, clean, short = on_whole_grid
    on_grid = find_likely(planted.windows)
    assert len(on_grid) >= 5, len(on_grid)
    assert find_likely(found[0].windows) >= on_grid
    assert found[0].memorisation.covered[0] == pytest.approx(planted.memorisation.covered[0], abs=0.02)
    assert found[0].memorisation.longest_run > len(PASSAGE) / 2
    # An unknown document needs only the tiles.
    assert find_likely(clean.windows) == find_likely(found[1].windows) == set()
    assert len(found[1].windows) == len(tiled[1].windows)
    assert (len(short.windows), short.memorisation.covered) == (0, (0.0,) * len(THRESHOLDS))


def test_an_unknown_document_costs_hardly_more_than_its_tiles(taught: Taught, tmp_path: Path) -> None:
    before = taught.forward.tokens_run
    taught.search(tmp_path, FINE, DOCUMENTS[1:2]).run(taught.load)
    [tokens] = encode(taught.model, [DOCUMENTS[1].text])
    passes = (taught.forward.tokens_run - before) / len(tokens.token_id)
    assert passes <= (PREFIX + SUFFIX + 1) / SUFFIX * 1.05


@torch.inference_mode()
def test_probabilities_are_those_of_the_bare_model(taught: Taught, shared: Path) -> None:
    planted = taught.search(shared, FINE).run(taught.load)[0]
    encoded = encode_windows_at(taught.model, planted.document.text, planted.windows.start.tolist(), TILED.lengths)
    assert len(encoded) == len(planted.windows) > 20
    for number, window in enumerate(encoded):
        ids = torch.tensor([[taught.model.start_token_id, *window.token_id.tolist()]])
        logits = taught.forward.model(input_ids=ids).logits[0, PREFIX:-1].double()
        own = torch.log_softmax(logits, 1).gather(1, ids[0, PREFIX + 1 :, None]).squeeze(1)
        best = logits.topk(40).values
        kept = torch.log_softmax(logits, 1) - (best.logsumexp(1) - logits.logsumexp(1)).unsqueeze(1)
        among = logits.gather(1, ids[0, PREFIX + 1 :, None]).squeeze(1) >= best[:, -1]
        top = kept.gather(1, ids[0, PREFIX + 1 :, None]).squeeze(1)
        windows = planted.windows
        assert windows.log_p[number] == pytest.approx(own.sum().item(), abs=1e-3)
        assert windows.outside[number] == (~among).sum().item()
        expected = top.sum().item() if among.all() else -math.inf
        assert windows.log_p_top[number] == pytest.approx(expected, abs=1e-3)
        assert windows.matches[number] == (logits.argmax(1) == ids[0, PREFIX + 1 :]).sum().item()
        # A token may hold a part of a letter only.
        decoded = taught.model.tokenizer.decode(window.token_id[PREFIX:].tolist()).strip("\ufffd")
        assert decoded in planted.document.text[windows.begin[number] : windows.end[number]]


@pytest.mark.parametrize("draws", [200, pytest.param(10_000, marks=pytest.mark.slow)])
def test_samples_equal_a_passage_with_its_probability(taught: Taught, shared: Path, draws: int) -> None:
    """Compare samples of transformers from the 40 best tokens with the probability from one pass."""
    search = taught.search(shared, FINE)
    planted = search.run(taught.load)[0]
    windows = planted.windows
    number = int(np.argmin(np.abs(windows.log_p_top - math.log(0.3))))
    p = math.exp(windows.log_p_top[number])
    assert 0.05 < p < 0.95
    window = search.encode_window(planted, number)
    low, high = stats.binom.interval(0.999, draws, p)
    assert low <= count_hits(taught.forward, window, draws, seed=0) <= high
    assert count_hits(taught.forward, window, 20, seed=1) == count_hits(taught.forward, window, 20, seed=1)


def test_a_greedy_suffix_equals_the_passage_if_all_of_its_tokens_are_first_choices(
    taught: Taught, shared: Path
) -> None:
    search = taught.search(shared, FINE)
    planted = search.run(taught.load)[0]
    windows, text = planted.windows, planted.document.text
    chosen = [*np.flatnonzero(windows.reproduced_greedily)[:4], *np.flatnonzero(~windows.reproduced_greedily)[:4]]
    assert len(chosen) == 8
    for number in chosen:
        greedy = generate_suffix(taught.model, taught.forward, search.encode_window(planted, int(number)))
        same = greedy.strip("\ufffd") in text[windows.begin[number] : windows.end[number]]
        assert same is bool(windows.reproduced_greedily[number])


def test_a_stopped_run_continues(taught: Taught, tmp_path: Path) -> None:
    def stop(progress: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        taught.search(tmp_path, TILED).run(taught.load, stop)
    left = taught.search(tmp_path, TILED).count_windows_and_tokens()[1]
    assert left < taught.search(tmp_path / "other", TILED).count_windows_and_tokens()[1]
    taught.search(tmp_path, TILED).run(taught.load)
    assert taught.search(tmp_path, TILED).count_windows_and_tokens()[1] == 0


def test_the_generation_settings_of_a_model_change_nothing(taught: Taught, shared: Path) -> None:
    search = taught.search(shared, FINE)
    planted = search.run(taught.load)[0]
    number = int(planted.windows.log_p_top.argmax())
    window = search.encode_window(planted, number)
    plain = count_hits(taught.forward, window, 20, seed=0), generate_suffix(taught.model, taught.forward, window)
    settings = taught.forward.model.generation_config
    settings.no_repeat_ngram_size, settings.min_p, settings.repetition_penalty = 1, 0.5, 3.0
    try:
        assert count_hits(taught.forward, window, 20, seed=0) == plain[0]
        assert generate_suffix(taught.model, taught.forward, window) == plain[1]
        assert taught.forward.model.generation_config is settings
        assert settings.no_repeat_ngram_size == 1
    finally:
        settings.no_repeat_ngram_size = settings.min_p = settings.repetition_penalty = None


@pytest.mark.parametrize("trim", [False, True])
def test_coarse_suffixes_leave_no_gap(tmp_path: Path, trim: bool) -> None:
    folder = save_model(tmp_path / "llama")
    file = folder / "tokenizer.json"
    written = file.read_text(encoding="utf-8").replace('"trim_offsets": false', f'"trim_offsets": {str(trim).lower()}')
    file.write_text(written, encoding="utf-8")
    model = tokenized(folder, tmp_path / "data")
    text = DOCUMENTS[1].text
    starts = encode(model, [text])[0].char_start[::SUFFIX].tolist()
    windows = encode_windows_at(model, text, starts, TILED.lengths)
    assert len(windows) > 3
    ends = [int(window.char_end[-1]) for window in windows]
    begins = [int(window.char_start[PREFIX]) for window in windows]
    assert max(begin - end for begin, end in zip(begins[1:], ends, strict=False)) <= MAX_GAP_CHARACTERS
    assert [int(window.char_start[0]) for window in windows] == starts[: len(windows)]


def test_an_end_token_of_the_tokenizer_is_in_no_window(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "llama")
    file = folder / "tokenizer.json"
    core = Tokenizer.from_file(str(file))
    end = core.token_to_id("</s>")
    core.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", end)])
    core.save(str(file))
    model = tokenized(folder, tmp_path / "data", start_token_policy="tokenizer")
    text = DOCUMENTS[1].text
    assert encode(model, [text])[0].token_id[-1] == end
    windows = encode_windows_at(model, text, range(0, len(text), 5), TILED.lengths)
    assert len(windows) > 5
    assert all(end not in window.token_id for window in windows)
    assert all(window.char_end[-1] > window.char_start[PREFIX] for window in windows)


@pytest.mark.parametrize("stride", ["chars:0", "chars:x", "fine", "", "chars:-1"])
def test_an_unknown_stride_is_refused(stride: str) -> None:
    with pytest.raises(DataError, match="coarse-to-fine"):
        ExtractionSettings().override(stride=stride)
