"""Style rules for docstrings, comments, messages and statements of the product.

``python tests/style_rules.py PATH ...`` prints the violations and the measures of the given files or folders.
tests/test_style.py requires that the product has none.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

# Verbs that a function's docstring may start with: the imperative, as in "Return the cached rows."
VERBS = frozenset(
    """
    Abort Accept Account Acquire Adapt Add Adjust Adopt Advance Aggregate Align Allocate Allow Annotate Answer
    Append Apply Approve Archive Arrange Ask Assemble Assert Assign Assume Attach Audit Await Balance Batch Begin
    Bind Blend Block Bound Break Build Bundle Cache Calculate Calibrate Call Cancel Carry Cast Categorise Change
    Check Choose Claim Clamp Classify Clean Clear Clip Clone Close Collapse Collect Colour Combine Compare Compile
    Complete Compose Compress Compute Concatenate Conclude Configure Confirm Connect Consume Continue Convert Copy
    Correct Count Cover Create Cross Cut Damage Date Decide Declare Decode Decorate Decrement Decrypt Deduplicate
    Define Delay Delegate Delete Deliver Derive Describe Deselect Detach Detect Determine Digest Disable Discard
    Disconnect Discover Dispatch Display Divide Do Download Draw Drop Dump Duplicate Embed Emit Empty Enable Encode
    Encrypt End Enforce Ensure Enter Enumerate Escape Estimate Evaluate Evict Examine Exchange Exclude Execute Exit
    Expand Expect Explain Export Expose Express Extend Extract Fail Fall Feed Fetch Fill Filter Find Finish Fit Fix
    Flag Flatten Flush Fold Follow Forbid Force Forget Format Forward Free Gather Generate Get Give Give Group Guard
    Guess Halve Handle Hash Hide Hold Hook Identify Ignore Import Include Increment Index Infer Inform Inherit
    Initialise Initialize Inject Insert Inspect Install Interpolate Interpret Interrupt Invert Invite Invoke Isolate
    Issue Iterate Join Jump Keep Kill Label Launch Lay Leave Let Level Lift Limit Link List Listen Load Locate Lock
    Log Look Lower Make Map Mark Mask Match Materialise Measure Merge Migrate Mirror Mix Modify Monitor Move
    Multiply Name Narrow Negotiate Normalise Normalize Note Notify Number Observe Obtain Offer Omit Open Order
    Override Overwrite Pack Pad Pair Parse Partition Pass Paste Patch Pause Perform Permute Persist Pick Place Plan
    Plot Point Poll Pool Pop Predict Prefer Prepare Present Preserve Prevent Print Process Produce Project Prompt
    Propose Protect Prove Provide Prune Publish Pull Push Put Query Queue Quote Raise Randomise Rank Rate Re-raise
    Reach Read Rebuild Receive Recognise Recompute Reconcile Reconnect Record Recover Redact Redirect Reduce Refer
    Refresh Refuse Register Reject Relate Release Reload Remember Remove Rename Render Reopen Reorder Repair Repeat
    Replace Replay Reply Report Represent Request Require Rerun Resample Reserve Reset Resize Reshape Resolve
    Respond Restart Restore Restrict Resume Retain Retrieve Retry Return Reuse Reveal Reverse Revert Rewrite Rotate
    Round Route Run Sample Satisfy Save Scale Scan Schedule Score Scrub Seal Search Select Send Separate Sequence
    Serialise Serialize Serve Set Settle Share Shift Shorten Show Shrink Shuffle Shut Sign Simulate Skip Sleep Slice
    Smooth Snap Snapshot Solve Sort Split Spread Stage Stamp Standardise Start State Stop Store Stream Stretch Strip
    Subtract Suggest Sum Summarise Summarize Supply Suppress Surround Suspend Swap Sweep Switch Synchronise Take Tag
    Tell Test Throttle Throw Tighten Time Toggle Tokenize Total Touch Trace Track Train Transfer Transform Translate
    Transpose Traverse Treat Trim Truncate Try Tune Turn Undo Unify Unite Unload Unlock Unpack Unwrap Update Upload
    Use Validate Vary Verify View Visit Vote Wait Walk Warn Watch Weigh Withhold Work Wrap Write Yield Zero
    """.split()  # noqa: SIM905 - 250 verbs are easier to read as a text
)

BANNED_STARTS = re.compile(r"^(What|Whether|How|Why|Of|Where|The one|Those|That)\b")
BANNED = (
    re.compile(r"\bwhere (there|it|they|none|one|no)\b"),
    re.compile(r"\b(anew|whatever|but for|of which|in whose|of whose|as it (?:is|was)|made again|so many)\b"),
    re.compile(r"\ba (row|line) an? \w+"),
    re.compile(r"\b(is|are) not there\b"),
    re.compile(r"\bwhat (is said|came of|it came to|is known of)\b"),
    re.compile(r"\bgives? up\b"),
)
# "Where" names a place after these words; elsewhere a condition is meant.
_PLACES = "folders?|directory|places?|path|files?|positions?|location|machine|page|cell|column|row|line|point|site"
WHERE = re.compile(r"(?<!np\.)(?<!torch\.)(?<!``)\bwhere\b", re.IGNORECASE)
PLACE_BEFORE = re.compile(rf"\b({_PLACES}|know|knows|shows|from|of|is|stand|tell) $", re.IGNORECASE)
GLOSSARY = re.compile(r"``[\w.]+``: ")
MAX_WORDS = 25

_MEASURED = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.IfExp)
_INNER_BLOCKS = (ast.stmt, ast.ExceptHandler, ast.match_case)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Violation:
    """A style violation: file, line, rule and the offending text."""

    path: Path
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.text}"


def find_violations(path: Path) -> Iterator[Violation]:
    """Yield the style violations of a Python file."""
    source = path.read_text()
    nodes = list(ast.walk(ast.parse(source)))
    docstrings = set()
    for node in nodes:
        if not isinstance(node, (*_FUNCTIONS, ast.ClassDef, ast.Module)):
            continue
        text = ast.get_docstring(node)
        if text is None:
            continue
        line = node.body[0].lineno
        docstrings.add(line)
        yield from (Violation(path, line, *found) for found in _check_docstring(node, text))
        yield from (Violation(path, line, *found) for found in check_prose(text))
    for node in nodes:
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and node.lineno not in docstrings and _is_message(node.value):
            yield from (Violation(path, node.lineno, *found) for found in check_message(node.value))
    for line, comment in _read_comments(source):
        yield from (Violation(path, line, *found) for found in check_prose(comment))
        if BANNED_STARTS.search(comment):
            yield Violation(path, line, "comment starts with a question word", comment[:60])
    for node in nodes:
        if isinstance(node, ast.stmt):
            yield from (Violation(path, node.lineno, *found) for found in _check_statement(node))


def _check_docstring(node: ast.AST, text: str) -> Iterator[tuple[str, str]]:
    first = text.split("\n", 1)[0]
    word = re.split(r"[\s.,:;]", first, maxsplit=1)[0]
    if isinstance(node, _FUNCTIONS) and word not in VERBS:
        yield "function docstring does not start with a known verb", first[:70]
    if not isinstance(node, _FUNCTIONS) and BANNED_STARTS.search(first):
        yield "docstring starts with a question word", first[:70]
    if isinstance(node, _FUNCTIONS):
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]
        parameters = {argument.arg for argument in arguments if argument is not None}
        for name in _list_entries(text, "Args:"):
            if name not in parameters:
                yield "Args: documents a parameter that does not exist", name
    if isinstance(node, ast.ClassDef):
        attributes = _list_attributes(node)
        for name in _list_entries(text, "Attributes:"):
            if name not in attributes:
                yield "Attributes: documents an attribute that does not exist", name
    if len(GLOSSARY.findall(text)) > 1:
        yield "run-in glossary; use Args: or Attributes:", first[:70]


def _list_entries(docstring: str, section: str) -> list[str]:
    """Return the names that a section of a Google-style docstring documents."""
    found = re.search(rf"^{section}\n((?:[ \t]+.*\n?|\n)+)", docstring, re.MULTILINE)
    if found is None:
        return []
    lines = found[1].split("\n")
    indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    starts = [re.match(rf" {{{indent}}}\*{{0,2}}(\w+)(?: \([^)]*\))?:", line) for line in lines]
    return [start[1] for start in starts if start is not None]


def _list_attributes(node: ast.ClassDef) -> set[str]:
    """Return the names of a class's fields, methods and attributes of ``self``."""
    names: set[str] = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.AnnAssign | ast.Assign):
            targets = [inner.target] if isinstance(inner, ast.AnnAssign) else inner.targets
            names |= {ast.unparse(target).removeprefix("self.") for target in targets}
        elif isinstance(inner, _FUNCTIONS):
            names.add(inner.name)
            names |= {argument.arg for argument in [*inner.args.args, *inner.args.kwonlyargs]}
    return names


def check_prose(text: str) -> Iterator[tuple[str, str]]:
    """Yield the rules that a docstring or comment violates, with the offending words."""
    yield from check_message(text)
    for found in WHERE.finditer(text):
        before = text[: found.start()].replace("\n", " ")
        is_start = not before.strip() or before.rstrip()[-1] in ".:("
        if not is_start and not PLACE_BEFORE.search(re.sub(r"\s+$", " ", before)):
            yield "'where' that is no place; use 'if' or 'when'", text[max(0, found.start() - 25) : found.end() + 25]
    for sentence in split_sentences(text):
        n_words = len(sentence.split())
        if n_words > MAX_WORDS:
            yield f"sentence of {n_words} words", " ".join(sentence.split()[:8])


def check_message(text: str) -> Iterator[tuple[str, str]]:
    """Yield the banned patterns that a text contains."""
    for pattern in BANNED:
        found = pattern.search(text)
        if found:
            yield "banned words", text[max(0, found.start() - 25) : found.end() + 25].replace("\n", " ")


def split_sentences(text: str) -> list[str]:
    """Split prose into sentences. List items, table rows and indented code count by themselves."""
    text = re.sub(r"``[^`]+``|`[^`]+`|\([^()]*\d{4}[^()]*\)|https?://\S+", "X", text)
    parts: list[str] = []
    for paragraph in re.split(r"\n\s*\n|\n\s*(?:[-*|>]|\w+(?: \([^)]*\))?:\s)|:\n", text):
        parts += re.split(r"(?<=[.!?;])\s+", paragraph)
    return [part for part in parts if part.strip() and "  " not in part.strip().replace("\n    ", " ")]


def _is_message(text: str) -> bool:
    return len(re.findall(r"\b[a-z]{2,}\b", text)) >= 3 and not re.search(
        r"\bSELECT\b|\bFROM\b|\\[bws]|[\[{]\w*[\]}]\?", text
    )


def _read_comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield the comments of a source with their first line. Consecutive comment lines are one comment."""
    start, lines, last = 0, [], -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or re.match(r"#\s*(type:|noqa|fmt:)", token.string):
            continue
        text = token.string.lstrip("#").strip()
        if lines and token.start[0] == last + 1:
            lines.append(text)
        else:
            if lines:
                yield start, "\n".join(lines)
            start, lines = token.start[0], [text]
        last = token.start[0]
    if lines:
        yield start, "\n".join(lines)


def _check_statement(statement: ast.stmt) -> Iterator[tuple[str, str]]:
    nodes = list(_walk_expressions(statement))
    dense = [type(node).__name__ for node in nodes if isinstance(node, _MEASURED)]
    if len(dense) > 1:
        yield "more than one comprehension or conditional expression in a statement", ", ".join(dense)
    if is_tuple_assignment(statement):
        yield "tuple assignment of unrelated values", ast.unparse(statement)[:70]
    for node in nodes:
        if isinstance(node, ast.Dict) and any(
            key is None and isinstance(value, ast.IfExp) for key, value in zip(node.keys, node.values, strict=True)
        ):
            yield "conditional merge of dictionaries", ast.unparse(node)[:70]
        if isinstance(node, _COMPREHENSIONS) and any(isinstance(inner, ast.NamedExpr) for inner in ast.walk(node)):
            yield "walrus inside a comprehension", ast.unparse(node)[:70]


def is_tuple_assignment(statement: ast.stmt) -> bool:
    """Return True if a statement assigns several values to several names at once. A swap is allowed."""
    if not (isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Tuple)):
        return False
    target = statement.targets[0]
    if not isinstance(target, ast.Tuple) or any(isinstance(item, ast.Starred) for item in statement.value.elts):
        return False
    return {ast.unparse(item) for item in target.elts} != {ast.unparse(item) for item in statement.value.elts}


def _walk_expressions(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield the expression nodes of a statement without those of its inner statements."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (ast.Name, ast.Constant)):
            waiting += [child for child in ast.iter_child_nodes(node) if not isinstance(child, _INNER_BLOCKS)]


def list_public_classes(path: Path) -> list[str]:
    """Return the names of the public classes that a file defines at module level."""
    body = ast.parse(path.read_text()).body
    return [node.name for node in body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]


def measure(paths: Iterable[Path]) -> dict[str, float]:
    """Count lines, functions and dense expressions per 1,000 lines."""
    n_lines = n_functions = n_conditionals = n_comprehensions = n_tuples = n_imports = 0
    for path in paths:
        source = path.read_text()
        n_lines += source.count("\n")
        for node in ast.walk(ast.parse(source)):
            n_functions += isinstance(node, _FUNCTIONS)
            n_conditionals += isinstance(node, ast.IfExp)
            n_comprehensions += isinstance(node, _COMPREHENSIONS)
            n_tuples += isinstance(node, ast.stmt) and is_tuple_assignment(node)
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                n_imports += (node.end_lineno or node.lineno) - node.lineno + 1
    thousands = max(n_lines, 1) / 1000
    return {
        "lines": n_lines,
        "functions": n_functions,
        "conditional expressions per 1,000 lines (aim 12)": round(n_conditionals / thousands, 1),
        "comprehensions per 1,000 lines (aim 22)": round(n_comprehensions / thousands, 1),
        "tuple assignments per 1,000 lines (aim 1.5)": round(n_tuples / thousands, 1),
        "share of import lines in percent (aim 6)": round(100 * n_imports / max(n_lines, 1), 1),
    }


def list_files(paths: Iterable[Path]) -> list[Path]:
    """Return the Python files under the paths in order."""
    files: list[Path] = []
    for path in paths:
        files += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return files


def main() -> None:
    """Print the violations and measures of the files and folders that the command line names."""
    files = list_files(Path(argument) for argument in sys.argv[1:])
    for path in files:
        for violation in find_violations(path):
            print(violation)
    for name, value in measure(files).items():
        print(f"{value:>10,} {name}")


if __name__ == "__main__":
    main()
