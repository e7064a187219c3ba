"""Models that forgot, or only look so, in ways that are known: the comparison has to say which is which.

A tiny model is trained on two sets of texts, and one of them is then to be forgotten: by gradient ascent that stops in
time, by one that does not, and by further training on other texts, after which the model merely says less of them. Only
a model that is trained from nothing without them has forgotten for certain; a second one is the reference.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from made_workspace import Workspace, made_text, make_workspace, quick_folder
from transformers import PreTrainedTokenizerBase

from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.extras.controls.build import START, build_untrained_model, train, train_tokenizer
from audit_pipeline.extras.controls.config import Architecture, ControlEntry
from audit_pipeline.extras.unlearning.comparison import UnlearningRequest, compare_models
from audit_pipeline.extras.unlearning.conclusion_section import Conclusion, conclude_unlearning
from audit_pipeline.tables import MEMBER, NON_MEMBER
from audit_pipeline.warehouse.query import query_warehouse

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread", "quick_audits")]

TEXTS, WORDS = 80, 16
ENTRY = ControlEntry(
    name="forgetting",
    description="made up",
    sources=("made",),
    words=WORDS,
    members=TEXTS,
    held_out=TEXTS,
    epochs=60,
    learning_rate=0.005,
    architecture=Architecture(hidden_size=64, layers=2, heads=2, intermediate_size=128, context=128, vocabulary=320),
    seed=5,
)
MODELS = ("base", "retrained", "anew", "quieter", "untouched", "ascended", "reminded", "damaged")
SETS = ("secret", "kept", "unseen", "others", "never", "unseen too")


def texts_of(name: str) -> list[str]:
    return [made_text(f"{name} {number}", WORDS) for number in range(TEXTS)]


class Lessons:
    """A tokenizer, and functions that train models and make them forget."""

    def __init__(self) -> None:
        self.tokenizer: PreTrainedTokenizerBase = train_tokenizer(
            [text for name in SETS for text in texts_of(name)],
            ENTRY.architecture.vocabulary,
            ENTRY.architecture.context,
        )
        self.start = int(self.tokenizer.convert_tokens_to_ids(START))

    def learn(self, model: Any, *names: str, **changes: object) -> Any:
        """Return ``model`` trained on the named sets of texts."""
        texts = [text for name in names for text in texts_of(name)]
        entry = ENTRY.model_copy(update=changes)
        given = (copy.deepcopy(model), self.tokenizer, self.start, texts, entry)
        return train(*given, role="exposed", device="cpu").model

    def new(self, seed: int) -> Any:
        return build_untrained_model(ENTRY.architecture, len(self.tokenizer), self.start, seed)

    def ascend(self, model: Any, *, steps: int, rate: float, until_like: str | None = None) -> Any:
        """Ascend on the secret texts and descend on others until secret texts are as unlikely as ``until_like``."""
        unlearned, chance = copy.deepcopy(model).train(), random.Random(1)
        optimiser = torch.optim.AdamW(unlearned.parameters(), lr=rate, weight_decay=0.0)
        sets = {name: texts_of(name) for name in SETS}
        for step in range(steps):
            drawn = {name: self.loss(unlearned, chance.sample(sets[name], 8)) for name in ("secret", "kept", "others")}
            (2 * drawn["kept"] + 2 * drawn["others"] - drawn["secret"]).backward()
            torch.nn.utils.clip_grad_norm_(unlearned.parameters(), 1.0)
            optimiser.step()
            optimiser.zero_grad()
            if until_like is not None and step % 5 == 0:
                with torch.inference_mode():
                    if self.loss(unlearned, sets["secret"]) >= self.loss(unlearned, sets[until_like]):
                        break
        return unlearned.eval()

    def loss(self, model: Any, texts: Sequence[str]) -> torch.Tensor:
        rows = [[self.start, *ids] for ids in self.tokenizer(list(texts), add_special_tokens=False)["input_ids"]]
        longest = max(map(len, rows))
        ids = torch.tensor([[*row, *[self.start] * (longest - len(row))] for row in rows])
        labels = torch.tensor([[*row, *[-100] * (longest - len(row))] for row in rows])
        loss: torch.Tensor = model(input_ids=ids, labels=labels).loss
        return loss


def taught(folder: Path) -> dict[str, Path]:
    """Train all models, and return their folders by name."""
    lessons = Lessons()
    base = lessons.learn(lessons.new(5), "secret", "kept")
    # Which texts tell when to stop must not be those that the result is measured by.
    ascended = lessons.ascend(base, steps=400, rate=0.001, until_like="unseen too")
    models = {
        "base": base,
        "retrained": lessons.learn(lessons.new(6), "kept"),
        # Few steps at a small rate: it says less of the secret texts, and knows them still.
        "quieter": lessons.learn(base, "others", epochs=3, learning_rate=0.001),
        "untouched": lessons.learn(base, "others", epochs=1, learning_rate=1e-7),
        "anew": lessons.learn(lessons.new(7), "kept"),
        "ascended": ascended,
        # It reads none of the secret texts again.
        "reminded": lessons.learn(ascended, "kept", "others", epochs=10, learning_rate=0.003),
        "damaged": lessons.ascend(base, steps=200, rate=0.003),
    }
    for name, model in models.items():
        model.save_pretrained(folder / name)
        lessons.tokenizer.save_pretrained(folder / name)
    return {name: folder / name for name in models}


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    """Yield a workspace with all models audited on secret texts, and three on texts that none of them read."""
    root = tmp_path_factory.mktemp("forgetting")
    with pytest.MonkeyPatch.context() as patch, quick_folder(root) as folder:
        workspace = make_workspace(folder / "made", patch, **taught(root))
        (workspace.root / "rows").mkdir()
        for name in ("secret", "never"):
            rows = [(text, MEMBER) for text in texts_of(name)] + [(text, NON_MEMBER) for text in texts_of("unseen")]
            lines = [json.dumps({"input": text, "label": label}) for text, label in rows]
            (workspace.root / "rows" / f"{name}.jsonl").write_text("\n".join(lines), encoding="utf-8")
        entry = {
            "builder": "labelled",
            "description": "made up",
            "path": str(workspace.root / "rows"),
            "words": [WORDS],
        }
        workspace.write_benchmarks(
            **{
                name: {
                    **entry,
                    "files": [f"{name}.jsonl"],
                    "design": "selected",
                    "calibration_fraction": 0.4,
                    "seed": 5,
                }
                for name in ("secret", "never")
            }
        )
        for benchmark in ("secret", "never"):
            workspace.build(benchmark)
            workspace.assess(benchmark)
        for model in MODELS:
            workspace.audit(model, "secret")
        for model in ("base", "ascended", "retrained"):
            workspace.audit(model, "never")
        yield workspace


def concluded(workspace: Workspace, after: str, benchmark: str = "secret", retrained: str | None = None) -> Conclusion:
    built = read_built(workspace.paths, f"{benchmark}_{WORDS}")
    other = None if retrained is None else workspace.model(retrained)
    asked = UnlearningRequest(workspace.model("base"), workspace.model(after), other, built, built)
    findings, _ = compare_models(asked, workspace.paths)
    rows = [vars(row) for row in findings]
    return conclude_unlearning(rows, before="base", after=after)


@pytest.mark.parametrize("retrained", [None, "retrained"])
@pytest.mark.parametrize(
    ("after", "outcome"),
    [
        ("anew", "forgotten"),
        # As unlikely as texts that nobody read, and still there: a little training on other texts brings them back.
        ("ascended", "partly forgotten"),
        ("reminded", "only looks forgotten"),
        ("quieter", "only looks forgotten"),
        ("damaged", "over-forgotten"),
        ("untouched", "still known"),
    ],
)
def test_the_comparison_says_what_was_done(audited: Workspace, after: str, outcome: str, retrained: str | None) -> None:
    found = concluded(audited, after, retrained=retrained)
    assert found.outcome == outcome, found


@pytest.mark.parametrize("retrained", [None, "retrained"])
def test_texts_that_were_never_read_cannot_be_forgotten(audited: Workspace, retrained: str | None) -> None:
    assert concluded(audited, "ascended", "never", retrained).outcome == "never known"


def test_the_page_of_the_model_says_it(audited: Workspace) -> None:
    arguments = ("--before", "base", "--after", "quieter", "--retrained", "retrained", "--forget", "secret")
    done = audited.run("compare", *arguments, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["outcome"] == "only looks forgotten"
    rows = {(row["metric"], row["role"]): row for row in found["unlearning"]}
    # What a user sees changed, what the model knows did not.
    assert rows["extraction_strength", "change"]["forget"]["value"] < -0.3
    assert abs(rows["extraction_strength", "change"]["holdout"]["value"]) < 0.05
    assert rows["privleak", "after"]["both"]["value"] < -90
    # The held-out texts were hardly called members, and so are not suspicious.
    assert rows["member_before", "before"]["forget"]["value"] > 0.9
    assert rows["suspicious", "change"]["holdout"]["value"] < 0.1
    assert rows["forget_quality", "after"]["forget"]["value"] < 0.001
    page = next(audited.paths.reports.glob("*quieter*.html")).read_text(encoding="utf-8")
    assert "quieter reproduces less of the texts than base." in page
    kept = query_warehouse(audited.paths.warehouse, "FROM current_unlearning WHERE model = 'quieter'").to_pylist()
    assert len(kept) == sum(side in row for row in found["unlearning"] for side in ("forget", "holdout", "both"))
