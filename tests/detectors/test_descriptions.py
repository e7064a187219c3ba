"""The descriptions of detectors in the terminal and in docs/detectors.md, which `make docs` writes."""

from __future__ import annotations

import pytest

from audit_pipeline.detectors.detector import Detector, Parameter, outcomes
from audit_pipeline.detectors.detector_inputs import Need
from audit_pipeline.detectors.registry import REGISTRY, format_as_text
from docs.writers.detectors import format_as_markdown, format_overview_table, insert_detector_pages
from docs.writers.markdown import BEGIN, END

MADE_UP = Detector(
    name="made_up",
    summary="a share of |something|",
    source="Nobody, 2026",
    passes="1 + n",
    compute=lambda statistics, settings: outcomes([0.0] * len(settings)),
    parameters={
        "k": Parameter(0.2, (0.1, 0.2), "the share", "a number above 0", lambda value: True),
        "form": Parameter("plain", ("plain",), "the form", "plain or not", lambda value: True),
    },
    needs=(Need("more", "extra passes (more)"),),
    optional_needs=(Need("sums", "sums"),),
    on_request=True,
    equation="mean of l_t over t",
    reported="0.5 on *all* texts.",
    also_reads="p(x_t | x_<t).",
)

MARKDOWN = """\
### made_up

A share of \\|something\\|.

```text
mean of l_t over t
```

|  |  |
| --- | --- |
| source | Nobody, 2026 |
| needs | extra passes (more), one pass, for some settings: sums |
| passes over a text | 1 + n |
| own log-probabilities suffice | yes |
| scored | only if you name it (--detectors, --set) |

| parameter | default | with `--grid` | takes | meaning |
| --- | --- | --- | --- | --- |
| k | 0.2 | 0.1, 0.2 | a number above 0 | the share |
| form | plain | the default only | plain or not | the form |

**What is reported.** 0.5 on \\*all\\* texts.

**It also reads.** p(x_t \\| x_\\<t)."""

PLAIN = """\
made_up: a share of |something|

score: mean of l_t over t
source: Nobody, 2026
needs: extra passes (more), one pass, for some settings: sums
passes over a text: 1 + n
own log-probabilities suffice: yes
scored: only if you name it (--detectors, --set)

What is reported: 0.5 on *all* texts.

It also reads: p(x_t | x_<t).

parameter k: default 0.2; --grid: 0.1, 0.2
    the share
    accepts a number above 0

parameter form: default plain; --grid: the default only
    the form
    accepts plain or not"""


def test_a_page_in_full() -> None:
    assert format_as_markdown(MADE_UP) == MARKDOWN
    assert format_as_text(MADE_UP) == PLAIN
    row = format_overview_table([MADE_UP]).splitlines()[-1]
    assert row == "| [made_up](#made_up) (on request) | 1 + n | extra passes (more), for some settings: sums | yes |"


@pytest.mark.parametrize("name", REGISTRY)
def test_no_line_in_the_terminal_is_longer_than_its_width(name: str) -> None:
    assert [line for line in format_as_text(REGISTRY[name]).splitlines() if len(line) > 100] == []


def test_hand_written_text_around_the_pages_is_unchanged() -> None:
    once = insert_detector_pages(f"head\n{BEGIN}\nold\n{END}\ntail\n", [MADE_UP])
    assert once.startswith(f"head\n{BEGIN}\n\n| detector |")
    assert once.endswith(f"{MARKDOWN}\n\n{END}\ntail\n")
    assert insert_detector_pages(once, [MADE_UP]) == once
    with pytest.raises(ValueError, match="unpack"):
        insert_detector_pages("no mark", [MADE_UP])


@pytest.mark.parametrize("field", ["summary", "source", "passes", "equation", "reported", "also_reads"])
def test_every_detector_has_the_fields_of_its_page(field: str) -> None:
    empty = [name for name, detector in REGISTRY.items() if not getattr(detector, field).strip()]
    assert empty == [], f"the page of a detector shows {field}: write a sentence, such as 'Nothing.'"
