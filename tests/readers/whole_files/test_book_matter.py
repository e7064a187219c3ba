"""Front and back matter of invented books, in the spellings of several decades."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from profiles import max_examples

from audit_pipeline.readers.whole_files.book_matter import classify_chapter, extract_book_text
from audit_pipeline.readers.whole_files.document import WholeDocument
from audit_pipeline.readers.whole_files.epub import Chapter, Epub
from audit_pipeline.readers.whole_files.gutenberg_frame import find_gutenberg_head, split_gutenberg_file
from audit_pipeline.readers.whole_files.html import INVISIBLE, extract_prose
from audit_pipeline.readers.whole_files.matter_pages import remove_front_and_back_matter


def gutenberg_body(text: str) -> str:
    return "\n".join(line for _, line in split_gutenberg_file(list(enumerate(text.split("\n")))).body)


def strip(text: str) -> str:
    return remove_front_and_back_matter(text).text


RUNNING = "\n".join(["The lamps were lit before the carriage came down the long hill to the town,"] * 6)
LATER = RUNNING.replace("lamps", "fires") + "\n\nHe said nothing more that night."

HEAD = "The Project Gutenberg eBook of The Lamp\n\nTitle: The Lamp\n\nOriginal publication: London: Fox, 1871\n"
STARTS = [
    "*** START OF THE PROJECT GUTENBERG EBOOK THE LAMP ***",
    "*** START OF THIS PROJECT GUTENBERG EBOOK THE LAMP ***",
    "***START OF THE PROJECT GUTENBERG EBOOK THE LAMP***",
    "*** START OF THE PROJECT GUTENBERG EBOOK THE LAMP: BEING THE HISTORY OF\nA LIGHT AND OF THOSE WHO SAW IT ***",
    "*** START OF THIS PROJECT GUTENBERG E-BOOK, THE LAMP ***",
    "*** START OF THIS PROJECT GUTENBERG ETEXT THE LAMP ***",
    "*** START OF THE COPYRIGHTED PROJECT GUTENBERG EBOOK THE LAMP ***",
    "*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*",
    "*END THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.10/04/01*END*",
]
ENDS = [
    "*** END OF THE PROJECT GUTENBERG EBOOK THE LAMP ***",
    "*** END OF THIS PROJECT GUTENBERG EBOOK THE LAMP ***",
    "***END OF THE PROJECT GUTENBERG EBOOK THE LAMP***",
    "End of the Project Gutenberg EBook of The Lamp, by Ada Miller",
    "End of Project Gutenberg's The Lamp, by Ada Miller",
    "End of The Project Gutenberg Etext of The Lamp, by Ada Miller",
    "The End of the Project Gutenberg Etext of The Lamp",
    "End of this Project Gutenberg Etext of The Lamp",
    "*** START: FULL LICENSE ***",
    "Ende dieses Projekt Gutenberg Etextes Die Lampe",
]


@pytest.mark.parametrize("start", STARTS)
def test_every_spelling_of_the_start_mark_is_recognised(start: str) -> None:
    text = f"{HEAD}\n{start}\n\n\n{RUNNING}\n\n\n{ENDS[0]}\nThe licence.\n"
    assert strip(text) == RUNNING


@pytest.mark.parametrize("end", ENDS)
def test_every_spelling_of_the_end_mark_is_recognised(end: str) -> None:
    text = f"{HEAD}\n{STARTS[0]}\n\n\n{RUNNING}\n\n\n{end}\n\n\n{LATER}\n*** END OF THE PROJECT GUTENBERG EBOOK ***\n"
    assert strip(text) == RUNNING


def test_the_small_print_may_precede_or_follow_the_book() -> None:
    early = f"{STARTS[0]}\n{HEAD}\n{STARTS[7]}\n\n\n{RUNNING}\n\n\n{ENDS[3]}\n"
    late = f"{HEAD}\n{STARTS[0]}\n\n\n{RUNNING}\n\n\n{ENDS[3]}\n\n\nPlease give.\n{STARTS[8]}\n"
    assert strip(early) == strip(late) == RUNNING


def test_a_start_or_end_mark_may_be_missing() -> None:
    assert gutenberg_body(f"{HEAD}\n{STARTS[0]}\n\n{RUNNING}\n") == RUNNING
    assert gutenberg_body(f"{RUNNING}\n\n{ENDS[0]}\nLicence") == RUNNING
    assert gutenberg_body(RUNNING) == RUNNING
    assert gutenberg_body(f"{ENDS[0]}\nLicence") == ""
    talk = "She read *** START OF SOMETHING *** in the End of Project papers."
    assert gutenberg_body(talk) == talk


def test_the_first_of_several_books_is_read() -> None:
    two = f"{STARTS[0]}\n{RUNNING}\n{ENDS[0]}\nbetween\n{STARTS[0]}\n{LATER}\n{ENDS[0]}\n"
    assert gutenberg_body(two) == RUNNING


OLD_HEAD = "The Project Gutenberg Etext of The Lamp, by Ada Miller\n\nTitle: The Lamp\nAuthor: Ada Miller\n"
SMALL_PRINT = f"***START**THE SMALL PRINT!**FOR PUBLIC DOMAIN ETEXTS**START***\nWhy is it here? Lawyers.\n{STARTS[7]}"
LICENCE = "Project Gutenberg and its licence; this eBook is for anyone. " * 30
BOOK = "\n".join([RUNNING, *["The keeper went down to the harbour and counted the boats until it was dark,"] * 30])
OTHER = BOOK.replace("keeper", "farmer")


@pytest.mark.parametrize(
    "text",
    [
        f"{OLD_HEAD}\n\n\n{BOOK}\n\n\n{ENDS[5]}\n\n\n{SMALL_PRINT}\n",
        f"{OLD_HEAD}\n\n\n{BOOK}\n\n\n{SMALL_PRINT}\n",
        f"{OLD_HEAD}\n\n\n{BOOK}\n\n\n{ENDS[5]}\n\n\n{LICENCE}\n",
        f"{OLD_HEAD}\n{SMALL_PRINT}\n\n\n{BOOK}\n\n\n{ENDS[5]}\n",
        f"{OLD_HEAD}\n\n\n{BOOK}\n",
        f"{HEAD}\n{STARTS[0]}\n\n{BOOK}\n\n\n{ENDS[3]}\n\n{ENDS[0]}\n\n{LICENCE}\n{ENDS[8]}\n{LICENCE}",
        f"{HEAD}\n{STARTS[0]}\n\n{BOOK}\n",
        f"{HEAD}\n*** DÉBUT DU LIVRE ÉLECTRONIQUE DU PROJET GUTENBERG ***\n\n{BOOK}\n\nFin du Projet Gutenberg\n",
    ],
)
def test_the_book_is_complete_if_marks_are_missing_or_out_of_order(text: str) -> None:
    found = remove_front_and_back_matter(text)
    assert found.text == BOOK
    skipped = [int(reason.split(" words")[0].rpartition(" ")[2].replace(",", "")) for _, reason in found.problems]
    assert sum(skipped) == len(text.split()) - len(BOOK.split())


@pytest.mark.parametrize("mark", [STARTS[0], STARTS[7], ENDS[0], ENDS[3], f"“{ENDS[4]}”, he read."])
@pytest.mark.parametrize(("before", "after"), [(f"{STARTS[0]}\n\n", f"\n\n\n{ENDS[0]}"), ("", "")])
def test_a_quoted_mark_does_not_end_the_book(mark: str, before: str, after: str) -> None:
    quoting = f"{BOOK}\n{mark}\n{OTHER}"
    assert strip(f"{before}{quoting}{after}") == quoting


@pytest.mark.parametrize(
    ("start", "end"), [(f"{HEAD}\n{STARTS[0]}", f"{ENDS[0]}\n{LICENCE}"), (f"{OLD_HEAD}\n{SMALL_PRINT}", ENDS[5])]
)
def test_a_second_book_in_a_file_is_reported_with_its_size(start: str, end: str) -> None:
    found = remove_front_and_back_matter(f"{start}\n\n{BOOK}\n\n{end}\n\n{start}\n\n{OTHER}\n\n{end}\n")
    assert found.text == BOOK
    named = dict(found.problems)["another book in the same file"]
    assert f", {len(OTHER.split()):,} words, is skipped. Save each book as a separate file." in named


def test_the_head_is_the_text_before_the_first_mark() -> None:
    assert find_gutenberg_head(f"{HEAD}\n{STARTS[3]}\n{RUNNING}") == HEAD.rstrip("\n")
    assert find_gutenberg_head(RUNNING) == ""


CONTENTS = "CONTENTS\n\nCHAPTER I. The Hill ........ 1\nCHAPTER II. The Town ....... 23\nThe Last Chapter         41"
FRONT = [
    "Produced by Ann Other and the Online Distributed Proofreading Team",
    "E-text prepared by Ann Other",
    "This etext was produced by Ann Other, from scans of the library",
    "Transcriber's Note: Spelling has been left as it was.\nErrors were mended.\n\nItalics are _marked_.",
    "[Transcriber's Notes\n\nA list of what was mended stands behind the book.]",
    "THE LAMP\n\nA Novel\n\nby\n\nAda Miller",
    "LONDON: Fox & Sons, Publishers.\n1871.",
    "Copyright © 2024 by Ada Miller. All rights reserved.\nISBN 000-0-00-000000-0\nFirst edition.",
    CONTENTS,
    "CONTENTS\n\n\nI. The Hill     1\nII. The Town   23\n\n\n\nIII. The Sea  40\nIV. The Lamp 51",
    "LIST OF ILLUSTRATIONS\n\nThe carriage       12\nThe lamp           33",
    "[Illustration: The lamp,\nas it was]",
    "_To my mother_",
]
BACK = [
    "Transcriber's note:\n\nPage 12: 'lampp' changed to 'lamp'",
    "Printed by Fox & Sons, London",
]


@pytest.mark.parametrize("matter", FRONT)
def test_front_matter_is_removed(matter: str) -> None:
    assert strip(f"{matter}\n\n\n\nCHAPTER I\n\n\n{RUNNING}") == f"CHAPTER I\n\n\n{RUNNING}"


def test_all_front_matter_together_is_removed() -> None:
    assert strip("\n\n\n\n".join([*FRONT, RUNNING, LATER])) == f"{RUNNING}\n\n\n\n{LATER}"


@pytest.mark.parametrize("matter", BACK)
def test_back_matter_is_removed(matter: str) -> None:
    assert strip(f"{RUNNING}\n\n\n\n{LATER}\n\n\n\n{matter}\n") == f"{RUNNING}\n\n\n\n{LATER}"


KEPT = [
    # The heading of a chapter, and what stands alone under it.
    f"CHAPTER I\n\n\n{RUNNING}",
    f"I\n\n\n{RUNNING}",
    # A chapter about contents, and one that tells of a copyright.
    f"{RUNNING}\n\n\nCONTENTS\n\n{LATER}\n\n\n{LATER}",
    f"{RUNNING}\n\n\n" + "\n".join(["the copyright 1871 had been sold to a man in the town by the long hill"] * 5),
    # Verse: no page of running text, no listing.
    "The hill\n\n\nO lamp upon the hill,\nO fire,\n\n\nO sea,\nbe still",
    # An index.
    f"{RUNNING}\n\n\nINDEX\n\nCarriage, the, 1, 14-16\nHill, long, 1",
    # A last page under 60 words, and one that speaks of a transcriber.
    f"{RUNNING}\n\n\nHe said nothing more that night.",
    f"{RUNNING}\n\n\nThe transcriber noted that the lamp was out.",
]


@pytest.mark.parametrize("text", KEPT)
def test_parts_of_the_book_that_resemble_matter_are_kept(text: str) -> None:
    assert strip(text) == text


def test_places_of_illustrations_are_removed_everywhere() -> None:
    ship, without = "[Illustration: A ship\nat sea]", "[Illustration without"
    text = f"{RUNNING}\n\n{ship}\n\n{LATER}\n\n[Illustration]\n\n{RUNNING}\n\n{without}"
    assert strip(text) == f"{RUNNING}\n\n{LATER}\n\n{RUNNING}\n\n[Illustration without"


LINES = st.sampled_from(
    [
        "", "", "", *STARTS, *ENDS, *RUNNING.split("\n")[:1], RUNNING, LATER, *FRONT, *BACK, CONTENTS, "INDEX",
        "CONTENTS",
        "A", "CHAPTER I", "I. The Hill     1", "Ada, 12", "[1] A note.", "FOOTNOTES", "***", "1871",
    ]
)  # fmt: skip
FREE = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=60)


@max_examples(250)
@given(st.lists(LINES | FREE, max_size=25))
def test_removal_is_idempotent_and_adds_no_line(parts: list[str]) -> None:
    text = "\n".join(parts)
    stripped = strip(text)
    assert strip(stripped) == stripped
    remaining = iter(text.split("\n"))
    # Each line is searched after the previous line, so the order is checked, too.
    assert not stripped or all(line in remaining for line in stripped.split("\n"))


def test_hostile_texts_are_processed_quickly() -> None:
    for line in ("1" * 4000 + "x", "* " * 4000, "a, 1 " * 4000 + "x", "I. " * 3000, "\t" * 5000 + "."):
        for text in (line, f"INDEX\n\n{line}", "\n\n\n".join([line[:40]] * 2000), f"{RUNNING}\n\n\n{line}"):
            strip(text)


# --- EPUB


def chapter(path: str, body: str, types: str = "", roles: frozenset[str] = frozenset()) -> Chapter:
    return Chapter(path, roles, f'<html><body epub:type="{types}">{body}</body></html>')


def book(*chapters: Chapter) -> Epub:
    return Epub("The Lamp", chapters, ())


CHAPTER_1 = f'<section epub:type="chapter"><h2>I</h2><p>{" ".join(RUNNING.split())}</p></section>'
CHAPTER_2 = f'<section epub:type="chapter"><h2>II</h2><p>{" ".join(LATER.split())}</p></section>'
WANTED = f"I\n\n{' '.join(RUNNING.split())}\n\n\n\nII\n\n{' '.join(LATER.split())}"


def test_a_book_with_the_types_of_standard_ebooks() -> None:
    def section(kind: str, words: str) -> str:
        return f'<section id="{kind}" epub:type="{kind}"><h2 epub:type="title">{kind}</h2><p>{words}</p></section>'

    got = extract_book_text(
        book(
            chapter("text/titlepage.xhtml", section("titlepage", "The Lamp"), "frontmatter"),
            chapter("text/imprint.xhtml", section("imprint", "Standard Ebooks and volunteers"), "frontmatter"),
            chapter("text/dedication.xhtml", section("dedication", "To all"), "frontmatter"),
            chapter("text/preface.xhtml", section("preface", RUNNING), "frontmatter"),
            chapter("text/halftitlepage.xhtml", section("halftitlepage", "The Lamp"), "frontmatter"),
            chapter("text/chapter-1.xhtml", CHAPTER_1, "bodymatter z3998:fiction"),
            chapter(
                "text/chapter-2.xhtml", CHAPTER_2.replace("fires", 'fires<a epub:type="noteref">1</a>', 1), "bodymatter"
            ),
            chapter("text/endnotes.xhtml", section("endnotes", "A note"), "backmatter"),
            chapter("text/colophon.xhtml", section("colophon", "was published in 1871 by"), "backmatter"),
            chapter("text/uncopyright.xhtml", section("copyright-page", "May you do good"), "backmatter"),
            chapter("toc.xhtml", '<nav epub:type="toc"><ol><li>I</li></ol></nav>', roles=frozenset({"nav"})),
        )
    )
    assert got.text == WANTED
    assert got.problems[0] == (
        "front and back matter",
        "120 words are skipped: preface (91); colophon (6); imprint (5); copyright-page (5); titlepage (3); 4 more",
    )
    assert got.places == ((0, "chapter 1 (I)"), (WANTED.index("II\n"), "chapter 2 (II)"))


@pytest.mark.parametrize(
    ("path", "body", "roles"),
    [
        ("copyright.xhtml", "<p>© 2024</p>", ()),
        ("003_copyright_page.xhtml", "<p>© 2024</p>", ()),
        ("x1.xhtml", "<h1>Acknowledgments</h1><p>Thanks.</p>", ()),
        ("x1.xhtml", "<h3>Also by Ada Miller</h3><p>The Hill</p>", ()),
        ("x1.xhtml", "<p>One</p><p>Two</p>", ("toc",)),
        ("contents.xhtml", "".join(f"<p>Chapter {n}</p>" for n in range(1, 50)), ()),
        ("x1.xhtml", "<p>One</p><p>Two</p>", ("non-linear",)),
        ("x1.xhtml", '<div class="pg-boilerplate"><p>The Project Gutenberg eBook</p></div>', ()),
    ],
)
def test_names_headings_and_the_guide_classify_chapters_without_types(
    path: str, body: str, roles: tuple[str, ...]
) -> None:
    matter = chapter(path, body, roles=frozenset(roles))
    assert classify_chapter(matter, extract_prose(matter.markup)) != "text"
    assert (
        extract_book_text(book(matter, chapter("a.xhtml", CHAPTER_1), chapter("b.xhtml", CHAPTER_2), matter)).text
        == WANTED
    )


STORY = f"<p>{' '.join(RUNNING.split())} it was late.</p><p>And he went home, where it was day 3.</p>"
SURE = [chapter("a.xhtml", CHAPTER_1), chapter("b.xhtml", CHAPTER_2)]
CHAPTER_HEADINGS = [
    *("Chapter Three", "CHAPTER III.", "Chapter 3: The Notes", "The Third Chapter", "Kapitel 3", "Drittes Kapitel"),
    *(
        "Chapitre III",
        "Capítulo 3",
        "Capitolo terzo",
        "Глава 3",
        "Глава третья",
        "第三章",
        "第3回",
        "제3장",
        "3. fejezet",
    ),
    *("3", "3.", "III.", "Three", "III. Notes", "Part Two", "Book II", "Act I", "Prologue", "Epilogue", "Letter 4"),
]
NO_CHAPTER_HEADINGS = ["Notes", "Chapter Notes", "Introduction", "Book Notes", "Parting Words", "Civil Contents"]


@pytest.mark.parametrize("heading", CHAPTER_HEADINGS)
@pytest.mark.parametrize("markup", ["<h1>{}</h1>", '<p class="title">{}</p>'])
def test_the_heading_of_a_chapter_outweighs_name_guide_and_reading_order(heading: str, markup: str) -> None:
    page = markup.format(heading) + STORY
    for path, roles in (
        ("notes.xhtml", ()),
        ("title-1.xhtml", ()),
        ("c.xhtml", ("non-linear",)),
        ("c.xhtml", ("notes",)),
    ):
        found = extract_book_text(book(chapter(path, page, roles=frozenset(roles)), *SURE))
        assert "it was day 3" in found.text


@pytest.mark.parametrize("heading", NO_CHAPTER_HEADINGS)
def test_chapters_with_other_headings_before_the_book_are_skipped_and_counted(heading: str) -> None:
    found = extract_book_text(book(chapter("notes.xhtml", f"<h1>{heading}</h1>{STORY}"), *SURE))
    size = len(heading.split()) + len(extract_prose(STORY).text.split())
    assert "it was day" not in found.text
    assert found.problems == (("front and back matter", f"{size} words are skipped: {heading} ({size})"),)


@pytest.mark.parametrize(
    ("path", "heading", "roles"),
    [
        ("c.xhtml", "Notes", ()),
        ("c.xhtml", "Introduction", ()),
        ("notes.xhtml", "A Letter Home", ()),
        ("c.xhtml", "An interlude", ("non-linear",)),
    ],
)
def test_running_text_between_two_chapters_is_kept(path: str, heading: str, roles: tuple[str, ...]) -> None:
    inside = chapter(path, f"<h1>{heading}</h1>{STORY}", roles=frozenset(roles))
    assert "it was day 3" in extract_book_text(book(SURE[0], inside, SURE[1])).text
    listing = chapter(path, f"<h1>{heading}</h1>" + "<p>The Hill, 12</p>" * 40, roles=frozenset(roles))
    found = extract_book_text(book(SURE[0], listing, SURE[1]))
    assert found.text == WANTED
    assert f"{heading} (" in dict(found.problems)["front and back matter"]


def test_a_chinese_chapter_in_a_file_named_notes_is_kept() -> None:
    story = "<p>灯在马车下山之前就点亮了，镇上没有人说话。</p>" * 20
    chapters = [
        chapter(path, f"<h1>第{n}章</h1>{story}") for n, path in (("一", "notes.xhtml"), ("二", "notes-2.xhtml"))
    ]
    found = extract_book_text(book(*chapters))
    assert [label for _, label in found.places] == ["chapter 1 (第一章)", "chapter 2 (第二章)"]
    assert found.problems == ()


def test_notes_within_a_chapter_are_counted() -> None:
    noted = f'{CHAPTER_1}<aside epub:type="footnote">1. A note of six words.</aside>'
    found = extract_book_text(book(chapter("a.xhtml", noted), SURE[1]))
    assert found.text == WANTED
    reason = "6 words are skipped: notes and page numbers within chapters (6)"
    assert found.problems == (("front and back matter", reason),)


def test_a_file_with_most_of_the_book_is_kept() -> None:
    whole = chapter("index.xhtml", f"<h1>Contents</h1><p>{RUNNING}</p>{CHAPTER_2}")
    assert CHAPTER_2.split("<p>")[1][:40] in extract_book_text(book(whole, chapter("a.xhtml", "<p>Short.</p>"))).text
    story = chapter("notes-from-the-hill.xhtml", "<h1>Notes from the Hill</h1><p>x</p>")
    assert classify_chapter(story, extract_prose(story.markup)) == "text"
    assert extract_book_text(book(chapter("cover.xhtml", "<img src='c.png'/>"))) == WholeDocument("", "The Lamp")


@max_examples(60)
@example(["ﬀ", "co\u00adop"])
@given(st.lists(st.text(st.characters(categories=("L", "N", "P")), min_size=1, max_size=8), max_size=30))
def test_the_text_of_an_epub_has_only_words_of_its_markup(words: list[str]) -> None:
    markup = "".join(f"<p>{word.replace('&', '&amp;').replace('<', '&lt;')}</p>" for word in words)
    got = extract_book_text(book(chapter("a.xhtml", markup)))
    # Soft hyphens are removed, and ligatures become letters.
    assert set(got.text.split()) <= {word.translate(INVISIBLE) for word in words}
