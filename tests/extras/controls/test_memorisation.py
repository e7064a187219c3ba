"""A control with several numbers of occurrences: texts that were read more often are reproduced."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from pathlib import Path
from statistics import median

import pyarrow as pa
import pytest
from control_corpus import entry, table_of

from audit_pipeline.benchmarks.settings import ExtractionSettings
from audit_pipeline.extras.controls.build import train_models_into
from audit_pipeline.extras.controls.config import Architecture
from audit_pipeline.extras.controls.draw import draw_texts
from audit_pipeline.extras.extraction.documents import SearchedDocument
from audit_pipeline.extras.extraction.search import Search
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.tokenized_model import load_tokenized
from audit_pipeline.models.weights import load_weights
from audit_pipeline.statistics.claims import REPRODUCED_FROM
from audit_pipeline.store.paths import EXPOSED, TWIN, DataPaths, Role
from audit_pipeline.token_statistics.cached_texts import Caches
from audit_pipeline.token_statistics.forward import ForwardPass

NUMBERS = (1, 4, 16, 64)
CONTROL = entry(
    words=40,
    members=6 * len(NUMBERS),
    held_out=6,
    occurrences=NUMBERS,
    epochs=1,
    learning_rate=0.003,
    batch_size=4,
    architecture=Architecture(hidden_size=128, layers=1, heads=4, intermediate_size=256, context=128, vocabulary=600),
)
# With 400 words, two words in a row are nearly unique, so a prefix determines its text.
SYLLABLES = [first + second for first in "bdfgk" for second in "aeio"]


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_texts_with_more_occurrences_are_likelier_and_the_twin_knows_no_text(tmp_path: Path) -> None:

    def corpus() -> pa.Table:
        """Return documents of random words, the same every time."""
        draw = random.Random(3)
        return table_of([" ".join("".join(draw.choices(SYLLABLES, k=2)) for _ in range(240)) for _ in range(12)])

    texts = draw_texts(corpus(), CONTROL)
    train_models_into(tmp_path, texts, CONTROL, device="cpu", paths=DataPaths(tmp_path))
    asked = [text for text in texts if text.role in ("member", "held_out")]
    searched = [SearchedDocument(str(at), text.text) for at, text in enumerate(asked)]
    settings = ExtractionSettings(prefix=20, suffix=20, stride="tiled")
    paths = DataPaths(tmp_path / "data")
    # The log-probability of the strongest window of each text, by its number of occurrences in the exposed model.
    strongest: dict[Role, dict[int, list[float]]] = {EXPOSED: defaultdict(list), TWIN: defaultdict(list)}
    for role, found in strongest.items():
        model = load_tokenized(ModelEntry(name=role, path=tmp_path / role), paths)
        forward = ForwardPass(load_weights(model, "cpu"), model.vocab_size)
        results = Search(model, searched, settings, Caches(paths)).run(lambda _, forward=forward: forward)
        for text, extracted in zip(asked, results, strict=True):
            found[text.exposed].append(float(extracted.windows.log_p.max()))
    exposed, twin = strongest[EXPOSED], strongest[TWIN]
    assert sorted(exposed) == sorted(twin) == [0, *NUMBERS]
    curve = [median(exposed[number]) for number in (0, *NUMBERS)]
    assert curve == sorted(curve)
    assert min(exposed[64]) > max(exposed[1])
    assert all(log_p > math.log(REPRODUCED_FROM) for log_p in exposed[64])
    of_twin = [median(twin[number]) for number in (0, *NUMBERS)]
    assert max(of_twin) - min(of_twin) < (curve[-1] - curve[0]) / 5
    assert all(log_p < math.log(REPRODUCED_FROM) for number in twin for log_p in twin[number])
