"""A command that is stopped by a signal ends with one line, also if a library turns the signal into another error."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

SCRIPT = """
import signal, sys, time
import click, duckdb
from audit_pipeline.cli.main_command import main

signal.signal(signal.SIGINT, signal.default_int_handler)

def query():
    duckdb.connect().execute("SELECT count(*) FROM range(1000000000000) t(i) WHERE i % 7 = 3").fetchall()

def sleep():
    time.sleep(600)

def make_another_error():
    try:
        time.sleep(600)
    except KeyboardInterrupt:
        raise ValueError("a step failed")

@main.command()
@click.argument("name")
def work(name):
    print("ready", flush=True)
    {"query": query, "sleep": sleep, "another error": make_another_error}[name]()

main(["work", sys.argv[1]])
"""


@pytest.mark.parametrize(
    ("number", "work", "code"),
    [
        (signal.SIGTERM, "query", 143),
        (signal.SIGINT, "query", 130),
        (signal.SIGTERM, "sleep", 143),
        (signal.SIGTERM, "another error", 143),
    ],
)
def test_a_stop_is_one_line(number: signal.Signals, work: str, code: int) -> None:
    command = [sys.executable, "-c", SCRIPT, work]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        _, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (code, "stopped. This command stores no partial results. Run it again.\n")
