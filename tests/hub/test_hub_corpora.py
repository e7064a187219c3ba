"""Corpora of the hub streamed through `datasets` and the hub's file system: counted, killed, cut off and refused."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import yaml
from bad_server import fault
from hub_server import HubServer
from made_repositories import c4, chinese_web_text, jsonl, mixed, parquet
from tokenizers import Tokenizer

Told = Callable[..., Any]
ROOT = Path(__file__).parent.parent.parent
C4, CHINESE = "allenai/c4", "CASIA-LM/ChineseWebText"
SHIPPED = yaml.safe_load((ROOT / "config" / "references.yaml").read_text(encoding="utf-8"))["references"]
KILLED_AFTER = 150


@pytest.fixture(scope="module")
def tiny_model(tiny_folder: Callable[[str], Path]) -> Path:
    return tiny_folder("llama")


@pytest.fixture
def plain(tiny_model: Path) -> Callable[[Sequence[str]], dict[int, int]]:
    """Every token of the texts, one after the other."""
    tokenizer = Tokenizer.from_file(str(tiny_model / "tokenizer.json"))

    def count(texts: Sequence[str]) -> dict[int, int]:
        return Counter(token for text in texts for token in tokenizer.encode(text, add_special_tokens=False).ids)

    return count


@pytest.fixture
def configured(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Write a configuration with these corpora of the hub."""

    def write(**entries: dict[str, Any]) -> dict[str, str]:
        folder = tmp_path / "config"
        folder.mkdir()
        named = {name: {"language": "en", "licence": "CC0-1.0", **entry} for name, entry in entries.items()}
        (folder / "references.yaml").write_text(yaml.safe_dump({"references": named}))
        return {"CORPUS_AUDIT_CONFIG": str(folder)}

    return write


@pytest.mark.slow
def test_corpora_are_counted_killed_and_counted_on_through_faults_that_pass(
    hub: HubServer,
    run: Callable[..., subprocess.CompletedProcess[str]],
    told: Told,
    tiny_model: Path,
    plain: Callable[[Sequence[str]], dict[int, int]],
    configured: Callable[..., dict[str, str]],
) -> None:
    """The corpora that are shipped, and one with files of three formats."""
    made = {"c4_en": c4(), "chinesewebtext": chinese_web_text(), "mixed": mixed()}
    for name, (files, _) in zip((C4, CHINESE, "maker/mixed"), made.values(), strict=True):
        hub.add("dataset", name, files)
    environment = configured(
        **{name: SHIPPED[name] for name in ("c4_en", "chinesewebtext")},
        mixed={"hub": "maker/mixed", "files": ["*.parquet", "*.jsonl", "*.jsonl.gz"]},
    )
    hub.cut("maker/mixed/data/c.jsonl.gz", after=50)
    hub.fail("maker/mixed/resolve/", fault(429, retry_after=0), times=1, method="GET")
    script = str(Path(__file__).parent / "in_process.py")
    killed = run(sys.executable, script, "count", json.dumps([("c4_en", str(tiny_model), KILLED_AFTER)]), **environment)
    assert killed.returncode == -signal.SIGKILL
    found = told("count", *[(name, str(tiny_model), None) for name in made], **environment)
    for one, (name, (_, texts)) in zip(found, made.items(), strict=True):
        assert (one["documents"], one["skipped"]) == (len(texts), 1 if name == "mixed" else 0)
        assert {token: count for token, count in enumerate(one["counts"]) if count} == plain(texts)
    assert found[0]["began_behind"] == KILLED_AFTER, "it goes on from the checkpoint"
    read = {unquote(request.path) for request in hub.asked("response-content-disposition")}
    assert not [path for path in read if "validation" in path or "noclean" in path]
    assert not hub.asked("test.jsonl"), "no file that the patterns leave out"


def test_what_cannot_be_counted_says_what_to_do(
    hub: HubServer, told: Told, configured: Callable[..., dict[str, str]]
) -> None:
    good = {"a.jsonl": jsonl([{"text": "x"}])}
    hub.add("dataset", "maker/gated", good, gated=True)
    hub.add("dataset", "maker/open", good)
    hub.add("dataset", "maker/busy", good)
    hub.add("dataset", "maker/lists", {"a.jsonl": jsonl([{"text": ["a", "b"]}] * 3000)})
    hub.add("dataset", "maker/columns", {"a.parquet": parquet([{"other": "x"}])})
    hub.fail("/api/datasets/maker/busy", fault(429, retry_after=30), times=1)
    files = ["*.jsonl", "*.parquet"]
    entries: dict[str, dict[str, Any]] = {
        name: {"hub": f"maker/{name}", "files": files} for name in ("gated", "none", "busy", "lists", "columns")
    }
    entries["revision"] = {"hub": "maker/open", "files": files, "revision": "v9"}
    entries["pattern"] = {"hub": "maker/open", "files": ["en/*.json.gz"]}
    environment = configured(**entries)
    expected = {
        "gated": "the data set maker/gated, after row 0, is gated: accept its terms on the hub and set HF_TOKEN",
        "none": "the data set maker/none is not on the hub, or is private: correct the name, or set HF_TOKEN",
        "revision": "the data set maker/open has no revision v9",
        "busy": "maker/busy cannot be fetched now: the hub is busy (status 429) and asks to wait 30 s",
        "pattern": "the data set maker/open has no file that matches en/*.json.gz",
        "lists": "none of its first 1,000 rows can be used; the first: column 'text' is not a string but list; correct",
        "columns": "the data set maker/columns cannot be read after row 0 (",
    }
    # Only to save the second that importing torch takes; the corpora above are counted with it.
    found = told("stream", *expected, USE_TORCH="0", **environment)
    for (name, message), one in zip(expected.items(), found, strict=True):
        assert message in one["error"]
        assert "\n" not in one["error"]
        assert one["transient"] is (name == "busy")
    # A stream cannot be read offline, whatever is in the cache.
    [offline] = told("stream", "gated", HF_HUB_OFFLINE="1", **environment)
    assert "maker/gated is not in the local hub cache, and HF_HUB_OFFLINE is set: unset it" in offline["error"]
    assert "set path to a copy of its files" in offline["error"]
    assert offline["transient"] is False
