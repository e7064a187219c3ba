"""CSV files as users have them: which rows are read, and which are skipped."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_files import written

from audit_pipeline.errors import DataError
from audit_pipeline.readers.formats import open_rows, open_texts, read_rows

Rows = list[dict[str, object]]
TWO: Rows = [{"text": "a, b; c", "label": "1"}, {"text": "d", "label": "0"}]

DELIMITED: dict[str, tuple[str, Rows, dict[int, str]]] = {
    "Excel's first line": ('sep=;\r\ntext;label\r\n"a, b; c";1\r\nd;0\r\n', TWO, {}),
    "quoted, after a byte-order mark": ('\ufeff"sep=;"\ntext;label\n"a, b; c";1\nd;0\n', TWO, {}),
    "which says a tab": ("sep=\t\ntext\tlabel\na, b; c\t1\nd\t0\n", TWO, {}),
    "which says an unusual one": ("SEP=^\ntext^label\na, b; c^1\nd^0\n", TWO, {}),
    "lines keep their numbers": (
        "sep=;\ntext;label\na;1;2\nd;0\n",
        TWO[1:],
        {3: "has 3 fields, but the header has 2"},
    ),
    "blanks in the header alone": ('text, label\n"a, b; c",1\nd,0\n', TWO, {}),
    "blanks after each comma": (
        'label, text, group\n1, "a, b; c", "g, h"\n0, d, i\n',
        [{"label": "1", "text": "a, b; c", "group": "g, h"}, {"label": "0", "text": "d", "group": "i"}],
        {},
    ),
    "blanks that belong to a text": (
        "text, label\n  indented,1\nd,0\n",
        [{"text": "  indented", "label": "1"}, {"text": "d", "label": "0"}],
        {},
    ),
    "no-break spaces, and marks that nobody sees": ('text,\u00a0label\u200b \n"a, b; c",1\nd,0\n', TWO, {}),
    "a quoted header after a byte-order mark": ('\ufeff"text","label"\n"a, b; c",1\nd,0\n', TWO, {}),
    "empty columns at the end": (
        'text,label,,\n"a, b; c",1,,\nd,0\n',
        TWO[:1],
        {3: "has 2 fields, but the header has 4"},
    ),
    "an index without a name": (",text\n0,hello\n1,you\n", [{"text": "hello"}, {"text": "you"}], {}),
}


@pytest.mark.parametrize("name", DELIMITED)
def test_rows_of_usual_csv_files(tmp_path: Path, name: str) -> None:
    content, rows, named = DELIMITED[name]
    file = read_rows(written(tmp_path, "t.csv", content))
    assert [dict(row.values) for row in file.rows] == rows
    assert {row.location: row.reason for row in file.skipped} == {f"t.csv:{line}": why for line, why in named.items()}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("text, text\na,b\n", "contains a column name twice: text, text"),
        (
            "It was a dark and stormy night.\nAnother text.\n",
            "the only column has the name 'It was a .*'. If this",
        ),
        (
            "It was a dark and stormy night,1\nAnother text,0\n",
            "it is unclear which column contains the text. The columns are: It",
        ),
        ("body,label\na,1\n", "it is unclear which column contains the text. The columns are: body, label"),
    ],
)
def test_ambiguous_headers_are_refused(tmp_path: Path, content: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        list(open_texts(written(tmp_path, "t.csv", content)))


def test_capitals_of_usual_columns_are_ignored(tmp_path: Path) -> None:
    for name, content in (
        ("t.csv", "Text,Label\na,1\nb,0\n"),
        ("t.jsonl", '{"Text": "a", "Label": 1}\n{"Text": "b", "Label": 0}\n'),
    ):
        texts = open_texts(written(tmp_path, name, content))
        assert texts.include_column("label", required=False) == "Label"
        assert [(row.text, str(row.values["Label"])) for row in texts] == [("a", "1"), ("b", "0")]
        with pytest.raises(DataError, match="no column 'side'; the columns are: Text, Label"):
            texts.include_column("side", required=True)
    both = open_rows(written(tmp_path, "both.csv", "label,Label\na,1\n"))
    assert both.columns == ("label", "Label")
