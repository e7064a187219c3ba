"""The settings of the source, and where the text of a page ends."""

from __future__ import annotations

from audit_pipeline.sources.wikipedia import WikipediaSettings, remove_tail_sections


def test_a_text_ends_at_its_references() -> None:
    english = "The floods began.\n\nThey rose. \n\nCourse \n\nIt rained.\n\nReferences\n\nExternal links\nCategory:X"
    assert remove_tail_sections(english) == "The floods began.\n\nThey rose.\n\nCourse\n\nIt rained."
    assert remove_tail_sections("只有一段。\n\n历史\n\n很久。\n\n参考文献\n\n书") == "只有一段。\n\n历史\n\n很久。"


def test_what_has_to_be_set() -> None:
    def missing_setting(**settings: object) -> str:
        return WikipediaSettings(**settings).missing_setting or ""

    assert "wikipedia.categories" in missing_setting()
    assert "wikipedia.contact to an address" in missing_setting(categories=("2023 events",))
    assert missing_setting(categories=("2023 events",), contact="ann@example.org") == ""
