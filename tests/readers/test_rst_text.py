"""Conversion of reStructuredText to the visible text."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import max_examples

from audit_pipeline.readers.rst_text import convert_rst_to_text, find_section_titles


@pytest.mark.parametrize(
    ("markup", "shown"),
    [
        ("``a*b*c`` and *d*", "a*b*c and d"),
        (":func:`~demo.tools.mend`", "mend()"),
        (":meth:`.Shelf.put`, :func:`_orm.load()`", "Shelf.put(), load()"),
        (":class:`!Hidden` :py:class:`a.B`", "Hidden a.B"),
        (":func:`the tool <demo.tools.mend>`", "the tool"),
        (":paramref:`_sa.thing.flag`", "thing.flag"),
        (":ticket:`12` :pep:`8` :cve:`2030-1` :issue:`7`", "#12 PEP 8 CVE-2030-1 issue #7"),
        (":ticket:`bug <12>`", "bug"),
        (":setting:`COLOUR` and :option:`--loud`", "COLOUR and --loud"),
        ("`#14 <https://example.invalid/14>`_: mended", "#14: mended"),
        ("`a\nbroken link <https://example.invalid>`__.", "a broken link."),
        ("`Named link`_ and `plain`", "Named link and plain"),
        ("**strong** (*soft*) 2*3*4 a * b", "strong (soft) 2*3*4 a * b"),
        ("takes *args and **kwargs, and ``**more``", "takes *args and **kwargs, and **more"),
        (r"escaped\ s and \*stars\*", "escapeds and *stars*"),
        ("a note [1]_ and [#x]_", "a note [1] and [#x]"),
        ("``__init__`` and __slots__ and snake_case", "__init__ and __slots__ and snake_case"),
        ("**see** :func:`a`\\s", "see a()s"),
    ],
)
def test_inline_markup_becomes_visible_words(markup: str, shown: str) -> None:
    assert convert_rst_to_text(markup) == shown


PAGE = """\
.. _page:

============
Demo changes
============

.. _first:
.. _second:

Mended ``tools``
================

Text.

.. _dangling:

No title here.

Small
~~~~~
"""


def test_titles_of_labelled_sections_are_found() -> None:
    assert find_section_titles(PAGE) == {
        "": "Demo changes",
        "page": "Demo changes",
        "first": "Mended ``tools``",
        "second": "Mended ``tools``",
    }


BLOCKS = """\
Heading
=======

A paragraph over
two lines.

* first point
  goes on

  - nested point
* second point
#. third point

1. one
2. two

Code follows::

    if *a* and ``b``:
        run()

Back. ::

  more

.. a comment
   over two lines

.. _target: https://example.invalid

.. code-block:: python
   :linenos:

   x = *y*

.. note:: Mind
   this.

.. warning::

    And :func:`that`.

.. admonition:: A title

   Under it.

.. toctree::
   :hidden:

   other

.. versionadded:: 3.1

   New words.

.. [1] A footnote.

======  =====
Left    Right
======  =====

>>> print("*as it is*")
*as it is*

The end.
--------
"""


def test_blocks_become_paragraphs() -> None:
    assert convert_rst_to_text(BLOCKS).split("\n\n") == [
        "Heading",
        "A paragraph over two lines.",
        "first point goes on",
        "nested point",
        "second point",
        "third point",
        "one",
        "two",
        "Code follows:",
        "if *a* and ``b``:\n    run()",
        "Back.",
        "more",
        "x = *y*",
        "Mind this.",
        "And that().",
        "A title",
        "Under it.",
        "New words.",
        "A footnote.",
        "Left",
        "Right",
        '>>> print("*as it is*")\n*as it is*',
        "The end.",
    ]


def test_tags_of_changelog_entries_are_removed() -> None:
    markup = """
    .. change::
        :tags: bug, orm
        :tickets: 1, 2,
            3
        :versions: 2.0

        Fixed the shelf.

        .. seealso::

            :ref:`shelves`

    .. change::
        :tags:

      Under-indented body.

    .. change::

        :tags: set apart

        :class:`.Shelf` opens a paragraph.
    """
    assert convert_rst_to_text(markup, {"shelves": "On shelves"}).split("\n\n") == [
        "Fixed the shelf.",
        "On shelves",
        "Under-indented body.",
        "Shelf opens a paragraph.",
    ]


WORDS = st.lists(st.from_regex(r"[A-Za-z]{2,8}", fullmatch=True), min_size=1, max_size=8).map(" ".join)


@max_examples(80)
@given(paragraphs=st.lists(WORDS, min_size=1, max_size=5))
def test_plain_prose_stays_unchanged(paragraphs: list[str]) -> None:
    assert convert_rst_to_text("\n\n".join(paragraphs)).split("\n\n") == paragraphs
    assert convert_rst_to_text("\n".join(f"* {paragraph}" for paragraph in paragraphs)).split("\n\n") == paragraphs


@max_examples(150)
@given(markup=st.text(alphabet="ab *`:_.\\|<>=-#[]1\n\t", max_size=120))
def test_any_markup_is_converted_without_new_letters(markup: str) -> None:
    shown = convert_rst_to_text(markup)
    assert len(re.findall("[ab]", shown)) <= len(re.findall("[ab]", markup))
