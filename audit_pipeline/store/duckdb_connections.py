"""Connections of DuckDB that draw nothing on standard output."""

from __future__ import annotations

import duckdb


def open_in_memory() -> duckdb.DuckDBPyConnection:
    """A database of its own in memory."""
    connection = duckdb.connect()
    hide_progress_bar(connection)
    return connection


def hide_progress_bar(connection: duckdb.DuckDBPyConnection) -> None:
    """Switch DuckDB's progress bar off, which is drawn on standard output, into a pipe too.

    Where it is off already, as in a notebook without widgets, nothing is set: DuckDB refuses any change there.
    """
    [(is_on,)] = connection.execute("SELECT current_setting('enable_progress_bar')").fetchall()
    if is_on:
        connection.execute("SET enable_progress_bar = false").fetchall()
