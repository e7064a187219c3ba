"""A fix of the built site's search for a fault of lunr. mkdocs.yml uses this module as a hook.

lunr names each node of its tree of words by its letters and the numbers of their children, without a separator. The
letter "a" of child 12 and the letter "3" of child 4 therefore read as the letter "a" of child 123. Nodes with the same
name become one node, so the tree contains words that no page has. Every search that meets such a word ends in an error.
On this site, "p-value" found nothing. lunr has no later version.
"""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError

_NAMED = "e=e+s+o.id}"
_NAMED_WITH_A_MARK = 'e=e+s+o.id+","}'


def on_post_build(config: MkDocsConfig) -> None:
    """Put a mark behind each child's number; raises PluginError if the theme's script has other code there."""
    workers = list(Path(config.site_dir, "assets", "javascripts", "workers").glob("search.*.min.js"))
    if len(workers) != 1:
        raise PluginError(f"The theme has {len(workers)} search workers instead of 1. Adapt docs/writers/search.py.")
    code = workers[0].read_text(encoding="utf-8")
    if code.count(_NAMED) != 1:
        raise PluginError("The theme's search names its nodes differently now. Adapt docs/writers/search.py.")
    workers[0].write_text(code.replace(_NAMED, _NAMED_WITH_A_MARK), encoding="utf-8")
