"""One HTTP client for everything: limits, retries, redaction of keys, pauses, and one vocabulary of errors.

Model servers, chat, timestamps, alerts, the package index, crawls and the hub use it. From this project,
the package imports only audit_pipeline.errors.
"""
