"""Formats of files of rows, one module each, found by its place: ``FORMAT`` says its suffixes and opens its files.

A new format is one module here: names, messages, folders and tests of every format follow from its declaration.
"""
