"""DuckDB connections without a progress bar on standard output."""

from __future__ import annotations

import duckdb


def open_in_memory() -> duckdb.DuckDBPyConnection:
    """Open a new in-memory database."""
    connection = duckdb.connect()
    hide_progress_bar(connection)
    return connection


def hide_progress_bar(connection: duckdb.DuckDBPyConnection) -> None:
    """Disable the progress bar, which DuckDB writes to standard output even if this is a pipe.

    If the bar is disabled already, as in a notebook without widgets, DuckDB refuses to change the setting.
    """
    [(is_on,)] = connection.execute("SELECT current_setting('enable_progress_bar')").fetchall()
    if is_on:
        connection.execute("SET enable_progress_bar = false").fetchall()
