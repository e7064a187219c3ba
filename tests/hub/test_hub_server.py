"""The tests' own hub gives the real clients what was put into it: listings, pages, ranges, the Parquet branch."""

from __future__ import annotations

from pathlib import Path

import pytest
from hub_server import TOKEN, HubServer
from huggingface_hub import HfApi, HfFileSystem
from huggingface_hub.errors import GatedRepoError, RemoteEntryNotFoundError, RevisionNotFoundError
from made_repositories import mimir, wikimia

CONVERTED = "refs/convert/parquet"


@pytest.fixture
def files(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> HfFileSystem:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return HfFileSystem(endpoint=hub.url, token=TOKEN, skip_instance_cache=True)


def test_a_repository_is_listed_page_by_page_and_read_in_ranges(hub: HubServer, files: HfFileSystem) -> None:
    content = wikimia((32, 64, 128))
    hub.add("dataset", "maker/rows", content)
    hub.page = 2
    root = "datasets/maker/rows"
    assert {path.removeprefix(f"{root}/") for path in files.find(root)} == set(content)
    [name, *_] = sorted(path for path in content if path.startswith("data/"))
    fresh = HfFileSystem(endpoint=hub.url, token=TOKEN, skip_instance_cache=True)
    assert fresh.info(f"{root}/{name}")["size"] == len(content[name])
    with fresh.open(f"{root}/{name}", block_size=64, cache_type="readahead") as file:
        file.seek(100)
        assert file.read(50) == content[name][100:150]
    assert fresh.cat(f"{root}/{name}") == content[name]
    assert any(request.header("Range") for request in hub.asked("response-content-disposition"))


def test_the_branch_of_parquet_files_and_single_paths_are_answered(hub: HubServer, files: HfFileSystem) -> None:
    made = hub.add("dataset", "maker/script", mimir())
    made.commit({"arxiv/test/0000.parquet": b"PAR1"}, CONVERTED)
    assert files.ls(f"datasets/maker/script@{CONVERTED}/arxiv/test", detail=False) == [
        f"datasets/maker/script@{CONVERTED}/arxiv/test/0000.parquet"
    ]
    assert files.cat(f"datasets/maker/script@{CONVERTED}/arxiv/test/0000.parquet") == b"PAR1"
    api = HfApi(endpoint=hub.url, token=TOKEN)
    [info] = api.get_paths_info("maker/script", ["mimir.py", "none"], repo_type="dataset")
    assert (info.path, info.size) == ("mimir.py", len(mimir()["mimir.py"]))


@pytest.mark.usefixtures("files")
def test_refusals_have_the_hubs_own_codes(hub: HubServer, tmp_path: Path) -> None:
    hub.add("dataset", "maker/gated", wikimia((32,)), gated=True)
    api = HfApi(endpoint=hub.url, token="hf_somebody_else")
    assert api.dataset_info("maker/gated").gated == "manual", "that it is there may be known"
    with pytest.raises(GatedRepoError):
        api.hf_hub_download("maker/gated", "README.md", repo_type="dataset", cache_dir=tmp_path)
    with pytest.raises(RevisionNotFoundError):
        api.dataset_info("maker/gated", revision="v9")
    let_in = HfApi(endpoint=hub.url, token=TOKEN)
    with pytest.raises(RemoteEntryNotFoundError):
        let_in.hf_hub_download("maker/gated", "none.txt", repo_type="dataset", cache_dir=tmp_path)
