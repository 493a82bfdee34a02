"""Every python block of README.md and docs/ runs, and every link and every named place in the code exists.

The blocks of one page share a namespace and run in order; every warning is an error.
"""

import ast
import contextlib
import io
import re
import warnings
from pathlib import Path
from typing import NamedTuple

import pytest

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
pyplot = pytest.importorskip("matplotlib.pyplot")

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MARKDOWN = [
    page for folder in (".", "docs", "experiments", "benchmarks") for page in sorted((ROOT / folder).glob("*.md"))
]
DRAWINGS = sorted((ROOT / "docs" / "images").glob("*.svg"))
EXAMPLES = sorted((ROOT / "examples").glob("plot_*.py"))

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#]*)(?:#([^)]*))?\)")  # [text](target#anchor); an empty target is the page itself
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
OUTPUT = re.compile(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"-?\d+(\.\d+)?(e[+-]\d+)?")
PLACE = re.compile(r"`(annealed/[\w/]+\.py)(?:::([\w.]+))?`")  # `annealed/errors.py::InputError`


class Block(NamedTuple):
    line: int  # line of the page at which the code begins
    code: str


def blocks_of(text):
    return [Block(text.count("\n", 0, found.start(1)) + 1, found.group(1)) for found in BLOCK.finditer(text)]


def run_blocks(text, name):
    """Run the blocks of a page in one namespace; a traceback shows the line numbers of the page."""
    namespace = {"__name__": "page"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for block in blocks_of(text):
            code = compile("\n" * (block.line - 1) + block.code, name, "exec")
            exec(code, namespace)


def names_in(source):
    """Dotted names of the functions, classes, methods and top-level values that a module defines."""
    names = set()
    for node in ast.parse(source).body:
        names.update(_defined(node))
        if isinstance(node, ast.ClassDef):
            names.update(f"{node.name}.{name}" for child in node.body for name in _defined(child))
    return names


def _defined(node):
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.AnnAssign):
        return [node.target.id]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    return []


def missing_places(text):
    """Every `annealed/file.py::name` of a page whose file or name does not exist."""
    return [
        f"{path}::{name}" if name else path
        for path, name in PLACE.findall(text)
        if not (ROOT / path).is_file() or (name and name not in names_in((ROOT / path).read_text()))
    ]


def anchors_in(text):
    """The anchors that GitHub makes of the headings of a page."""
    titles = HEADING.findall(re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(page):
    """Relative links of a page whose file does not exist, or whose anchor is not a heading of that file."""
    broken = []
    for target, anchor in LINK.findall(re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)):
        if "://" in target:
            continue
        file = page.parent / target if target else page
        if not file.exists() or (anchor and anchor not in anchors_in(file.read_text())):
            broken.append(f"{target}#{anchor}" if anchor else target)
    return broken


@pytest.fixture(autouse=True)
def _as_in_a_fresh_folder(tmp_path, monkeypatch):
    """Pages may write files and draw."""
    monkeypatch.chdir(tmp_path)
    yield
    pyplot.close("all")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_snippets_run(page):
    text = page.read_text()
    assert text.count("```python") == len(blocks_of(text))
    run_blocks(text, str(page))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_examples_run(example, monkeypatch):
    monkeypatch.setattr("sys.argv", [str(example)])
    code = compile(example.read_text(), str(example), "exec")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="FigureCanvasAgg is non-interactive")
        exec(code, {"__name__": "__main__"})


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page):
    assert broken_links(page) == []


@pytest.mark.parametrize("page", [*PAGES, *DRAWINGS], ids=lambda page: page.name)
def test_named_places_in_the_code_exist(page):
    assert missing_places(page.read_text()) == []


def test_readme_output_is_what_the_code_prints():
    """Numbers may differ between machines in their last digits, so only the words are compared."""
    text = (ROOT / "README.md").read_text()
    ((code, shown),) = OUTPUT.findall(text)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {"__name__": "page"})
    assert NUMBER.sub("#", printed.getvalue()).split() == NUMBER.sub("#", shown).split()


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) < 90


# --- the checks themselves --------------------------------------------------------------------------


PAGE = """A page.

```python
value = 1
```

```text
not python at all
```

```python
{second}
```
"""


def test_blocks_are_found_with_their_lines():
    blocks = blocks_of(PAGE.format(second="value += 1"))
    assert blocks == [Block(4, "value = 1\n"), Block(12, "value += 1\n")]


def test_blocks_share_a_namespace():
    run_blocks(PAGE.format(second="assert value == 1"), "page.md")


@pytest.mark.parametrize(
    ("second", "error"),
    [
        ("assert value == 2", AssertionError),
        ("import warnings; warnings.warn('careful')", UserWarning),
        ("unknown_name", NameError),
        ("not python at all", SyntaxError),
    ],
)
def test_a_bad_block_fails_and_names_its_line(second, error):
    with pytest.raises(error) as caught:
        run_blocks(PAGE.format(second=second), "page.md")
    where = [(str(entry.path), entry.lineno + 1) for entry in caught.traceback]
    assert ("page.md", 12) in where or (caught.value.filename, caught.value.lineno) == ("page.md", 12)


def test_a_missing_place_is_found():
    text = "`annealed/errors.py::InputError` `annealed/errors.py` `annealed/errors.py::melt` `annealed/oven.py`"
    assert missing_places(text) == ["annealed/errors.py::melt", "annealed/oven.py"]


def test_a_broken_link_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# A page: `code`\n\n[a](#a-page-code) [b](#b) [c](gone.md) [d](page.md#a-page-code) [e](page.md#e)\n"
    )
    assert broken_links(page) == ["#b", "gone.md", "page.md#e"]
