"""Corpora of the hub, streamed through `datasets` and the hub's file system."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain, product
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import yaml
from bad_server import fault
from hub_server import HubServer
from made_repositories import jsonl, parquet
from made_workspace import made_text
from tokenizers import Tokenizer

CallInProcess = Callable[..., Any]
ROOT = Path(__file__).parent.parent.parent
COMMON = {"language": "en", "licence": "CC0-1.0"}
SHIPPED = yaml.safe_load((ROOT / "config" / "references.yaml").read_text(encoding="utf-8"))["references"]
KILLED_AFTER = 150


@pytest.mark.slow
def test_counting_resumes_after_a_kill_and_after_transient_faults(
    hub: HubServer,
    run: Callable[..., subprocess.CompletedProcess[str]],
    call_in_process: CallInProcess,
    tiny_folder: Callable[[str], Path],
    configured: Callable[..., dict[str, str]],
) -> None:
    """The corpora are the shipped ones, and one with files of three formats."""

    def shard_of(texts: Sequence[str]) -> bytes:
        """Return a shard of C4."""
        row = {"timestamp": "2019-04-25T12:57:54Z", "url": "https://x.invalid"}
        return gzip.compress(jsonl([{"text": text, **row} for text in texts]))

    tiny_model = tiny_folder("llama")
    texts: dict[str, list[str]] = {"c4_en": [], "chinesewebtext": [], "mixed": []}
    # allenai/c4: numbered shards, other variants and a validation split.
    files = {}
    for number in range(3):
        shard = [made_text(f"c4-{number}-{one}", 20 + one % 30) for one in range(120)]
        texts["c4_en"] += shard
        files[f"en/c4-train.{number:05}-of-00003.json.gz"] = shard_of(shard)
    for name in ("en/c4-validation.00000-of-00008.json.gz", "en.noclean/c4-train.00000-of-07168.json.gz"):
        files[name] = shard_of(["this text belongs to another part of the data set"])
    hub.add("dataset", "allenai/c4", {**files, "README.md": b"# C4\n"})
    # CASIA-LM/ChineseWebText: parts of two crawls next to a test file.
    files = {"README.md": b"# ChineseWebText\n", "test.jsonl": jsonl([{"text": "不算在内"}])}
    for crawl, part in product(("2021-43", "2022-05"), range(2)):
        lines = [f"第{part}部分，第{one}篇：" + "港口清晨很安静。" * (1 + one % 7) for one in range(40)]
        texts["chinesewebtext"] += lines
        files[f"cleaner_subset/{crawl}/part-{part:04}.jsonl"] = jsonl([{"title": "题", "text": text} for text in lines])
    hub.add("dataset", "CASIA-LM/ChineseWebText", files)
    # Three formats, which are read in this order. One line is damaged.
    a, b, c = ([made_text(f"{name}{one}", 15) for one in range(30)] for name in "abc")
    texts["mixed"] = [*a, *b, *c]
    files = {
        "data/a.parquet": parquet([{"text": text, "n": 1} for text in a], row_group=7),
        "data/b.jsonl": jsonl([{"text": text} for text in b]) + b"{broken\n",
        "data/c.jsonl.gz": gzip.compress(jsonl([{"text": text} for text in c])),
    }
    hub.add("dataset", "maker/mixed", files)
    environment = configured(
        "references.yaml",
        COMMON,
        **{name: SHIPPED[name] for name in ("c4_en", "chinesewebtext")},
        mixed={"hub": "maker/mixed", "files": ["*.parquet", "*.jsonl", "*.jsonl.gz"]},
    )
    hub.cut("maker/mixed/data/c.jsonl.gz", after=50)
    hub.fail("maker/mixed/resolve/", fault(429, retry_after=0), method="GET")
    script = str(Path(__file__).parent / "in_process.py")
    killed = run(sys.executable, script, "count", json.dumps([("c4_en", str(tiny_model), KILLED_AFTER)]), **environment)
    assert killed.returncode == -signal.SIGKILL
    found = call_in_process("count", *[(name, str(tiny_model), None) for name in texts], **environment)
    tokenizer = Tokenizer.from_file(str(tiny_model / "tokenizer.json"))
    for one, (name, corpus) in zip(found, texts.items(), strict=True):
        assert (one["documents"], one["skipped"]) == (len(corpus), 1 if name == "mixed" else 0)
        encoded = (tokenizer.encode(text, add_special_tokens=False).ids for text in corpus)
        assert {token: count for token, count in enumerate(one["counts"]) if count} == Counter(chain(*encoded))
    assert found[0]["began_behind"] == KILLED_AFTER, "it goes on from the checkpoint"
    read = {unquote(request.path) for request in hub.asked("response-content-disposition")}
    assert not [path for path in read if "validation" in path or "noclean" in path]
    assert not hub.asked("test.jsonl"), "no file that the patterns leave out"


def test_unusable_corpora_raise_errors_with_a_remedy(
    hub: HubServer, call_in_process: CallInProcess, configured: Callable[..., dict[str, str]]
) -> None:
    good = {"a.jsonl": jsonl([{"text": "x"}])}
    hub.add("dataset", "maker/gated", good, gated=True)
    hub.add("dataset", "maker/open", good)
    hub.add("dataset", "maker/busy", good)
    hub.add("dataset", "maker/lists", {"a.jsonl": jsonl([{"text": ["a", "b"]}] * 3000)})
    hub.add("dataset", "maker/columns", {"a.parquet": parquet([{"other": "x"}])})
    hub.fail("/api/datasets/maker/busy", fault(429, retry_after=30))
    files = ["*.jsonl", "*.parquet"]
    entries: dict[str, dict[str, Any]] = {
        name: {"hub": f"maker/{name}", "files": files} for name in ("gated", "none", "busy", "lists", "columns")
    }
    entries["revision"] = {"hub": "maker/open", "files": files, "revision": "v9"}
    entries["pattern"] = {"hub": "maker/open", "files": ["en/*.json.gz"]}
    environment = configured("references.yaml", COMMON, **entries)
    expected = {
        "gated": "the data set maker/gated, after row 0, is gated: accept its terms on the hub, and set HF_TOKEN",
        "none": "the data set maker/none is not on the hub, or is private: correct the name, or set HF_TOKEN",
        "revision": "the data set maker/open has no revision v9",
        "busy": "maker/busy cannot be fetched now, because the hub is busy (status 429) and requests a pause of 30 s",
        "pattern": "the data set maker/open has no file that matches en/*.json.gz",
        "lists": "The problem of the first row: column 'text' is not a string but list",
        "columns": "the data set maker/columns cannot be read after row 0 (",
    }
    # Only to save the second that importing torch takes; the corpora above are counted with it.
    found = call_in_process("stream", *expected, USE_TORCH="0", **environment)
    for (name, message), one in zip(expected.items(), found, strict=True):
        assert message in one["error"]
        assert "\n" not in one["error"]
        assert one["transient"] is (name == "busy")
    # A stream cannot be read offline, regardless of the cache.
    [offline] = call_in_process("stream", "gated", HF_HUB_OFFLINE="1", **environment)
    assert "maker/gated is not in the local hub cache, and HF_HUB_OFFLINE forbids requests: unset" in offline["error"]
    assert "set path to a copy of the data set's files" in offline["error"]
    assert offline["transient"] is False
