"""A data folder in a bucket against one on this disk: what a command pays for looking, writing and bringing.

    python bench/bench_bucket.py --objects 20000 --parts 200

The bucket is moto's, a server in Python in a process of its own on this machine: requests that it answers in
milliseconds take a real store tens of them, and ours are 16 at once. So the count of requests is the figure to keep.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pyarrow as pa

from audit_pipeline.store.bucket_folder import refresh, resolve_data_root
from audit_pipeline.store.files import write_table
from audit_pipeline.store.paths import DataPaths


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, default=20_000, help="files of findings that are in the bucket")
    parser.add_argument("--parts", type=int, default=200, help="files that are written")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, a_server():
        root = Path(folder)
        os.environ["CORPUS_AUDIT_BUCKET_CACHE"] = str(root / "cache")
        rows = pa.table({"value": list(range(1000))})
        plain = DataPaths(root / "plain")
        bucket = DataPaths(resolve_data_root("s3://audits/team"))
        in_folder = timed(lambda: write_all(plain, "new", rows, asked.parts))
        in_bucket = timed(lambda: write_all(bucket, "new", rows, asked.parts))
        print(f"{asked.parts} files of 1,000 rows: {in_folder:.2f} s in a folder, {in_bucket:.2f} s in a bucket")
        write_all(bucket, "many", rows, asked.objects)
        listing = timed(lambda: refresh(bucket.root))
        print(f"a look at {asked.objects + asked.parts:,} objects, none new: {listing:.2f} s")
        os.environ["CORPUS_AUDIT_BUCKET_CACHE"] = str(root / "another machine")
        print(f"all of them brought to another machine: {timed(lambda: resolve_data_root('s3://audits/team')):.1f} s")


def write_all(paths: DataPaths, benchmark: str, rows: pa.Table, count: int) -> None:
    for number in range(count):
        write_table(paths.run_file("scores", f"{benchmark}|{number % 500}", f"{number}"), rows)


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


@contextmanager
def a_server() -> Iterator[None]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", "from moto.server import main; main()", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    os.environ |= {
        "AWS_ENDPOINT_URL": url,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "made",
        "AWS_SECRET_ACCESS_KEY": "up",
        "AWS_REGION": "us-east-1",
    }
    try:
        while True:
            try:
                httpx2.put(f"{url}/audits").raise_for_status()
                break
            except httpx2.TransportError:
                time.sleep(0.2)
        yield
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
