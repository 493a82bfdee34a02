"""Imports follow the layers of the architecture; those inside functions are checked as well."""

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from inspect import getsource
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

import pytest
from sklearn.datasets import load_iris

import annealed
from annealed import AnnealedLogisticRegression
from gates.size import core, tuned_numbers

PACKAGE = Path(__file__).resolve().parents[1] / "annealed"

LAYERS = [
    "datasets",
    "gpu",
    "rows",
    "problems",
    "solvers",
    "path",
    "validation",
    "potts",
    "estimators",
    "plots",
    "export",
    "app",
]
OPEN_TO_ALL = {"arrays", "callbacks", "errors", "lazy", "optional"}
MAY_IMPORT_EVERYTHING = {"annealed", "annealed.app.cli", "annealed.__main__"}
LONGEST_MODULE = 400  # lines

# Classes with more members than MOST_MEMBERS, everything inherited from the package counted: they may only shrink.
# Those of estimators are the parameters, fitted attributes and methods that users see, and what computes them.
MOST_MEMBERS = 40
WIDER = {
    "AnnealedClassifier": 42,
    "AnnealedKernelClassifier": 58,
    "AnnealedLDA": 49,
    "AnnealedLogisticRegression": 46,
    "KernelProblem": 41,
    "MELDA": 53,
    "PottsDA": 44,
}

# The core may only shrink: lower these after a deletion.
MOST_LINES, MOST_TUNED_NUMBERS = 17_850, 132
MOST_FILES_OF_A_FIT = 34

INSTALLED_BY_THE_USER = {"torch", "dask", "matplotlib", "pandas"}
HOME_OF = {"matplotlib": "plots", "torch": "arrays"}
IMPORTING_CALLS = {"require", "import_module", "__import__"}


class Import(NamedTuple):
    target: str  # dotted name of the module, such as annealed.rows.base or matplotlib.pyplot
    line: int
    at_module_level: bool


class Source(NamedTuple):
    name: str  # dotted name of the module; a folder's __init__ has the folder's name
    text: str
    is_folder: bool = False


def sources():
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        is_folder = parts[-1] == "__init__"
        yield Source(".".join(parts[:-1] if is_folder else parts), path.read_text(), is_folder)


SOURCES = list(sources())
MODULES = {source.name for source in SOURCES}


# --- reading imports --------------------------------------------------------------------------------


def imports_of(source):
    return list(_imports_within(ast.parse(source.text), source, at_module_level=True))


def _imports_within(node, source, at_module_level):
    for child in ast.iter_child_nodes(node):
        for target in _targets(child, source):
            yield Import(target, child.lineno, at_module_level)
        is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from _imports_within(child, source, at_module_level and not is_function)


def _targets(node, source):
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return _targets_of_from(node, source)
    if isinstance(node, ast.Call) and _called_name(node) in IMPORTING_CALLS:
        return [first.value for first in node.args[:1] if isinstance(first, ast.Constant)]
    return []


def _targets_of_from(node, source):
    """`from a import b` imports a.b if that is a module of this package, otherwise a."""
    origin = _origin(node, source)
    names = [f"{origin}.{alias.name}" for alias in node.names]
    return [name if name in MODULES else origin for name in names]


def _origin(node, source):
    if not node.level:
        return node.module
    parts = source.name.split(".")
    folder = parts[: len(parts) - node.level + source.is_folder]
    return ".".join([*folder, *([node.module] if node.module else [])])


def _called_name(call):
    return getattr(call.func, "id", getattr(call.func, "attr", None))


# --- the rules of the layers ------------------------------------------------------------------------


def layer_of(module):
    """The folder or file right under the package; None for the package itself and for other packages."""
    parts = module.split(".")
    return parts[1] if parts[0] == "annealed" and len(parts) > 1 else None


def violations(source):
    """Every broken rule of one module, as text."""
    return [
        f"{source.name}, line {imported.line}: {violation}"
        for imported in imports_of(source)
        for violation in [_layer_violation(source, imported), _library_violation(source, imported)]
        if violation
    ]


def _layer_violation(source, imported):
    if imported.target.split(".")[0] != "annealed" or source.name in MAY_IMPORT_EVERYTHING:
        return None
    layer, imported_layer = layer_of(source.name), layer_of(imported.target)
    if imported_layer in OPEN_TO_ALL:
        return None
    if imported_layer is None:
        return "imports the package itself, which imports every layer; import from the layer"
    if layer in OPEN_TO_ALL:
        return f"imports {imported.target}; a module open to all layers imports none of them"
    if layer == imported_layer:
        return None
    if imported_layer not in LAYERS:
        return f"imports {imported.target}, which is no layer; the layers are {LAYERS}"
    if LAYERS.index(imported_layer) > LAYERS.index(layer):
        return f"imports {imported.target}, which lies to the right of {layer}"
    return None


def _library_violation(source, imported):
    library = imported.target.split(".")[0]
    if library in INSTALLED_BY_THE_USER and imported.at_module_level:
        return f"imports {library} at module level; import it where the user's data first needs it"
    if library in HOME_OF and layer_of(source.name) != HOME_OF[library]:
        return f"imports {library}, which only {HOME_OF[library]} may"
    return None


def circle_in(sources):
    """Modules that import each other in a circle, the first one again at the end; none if there is no circle."""
    names = {source.name for source in sources}
    imported = {source.name: {target for target, *_ in imports_of(source)} & names for source in sources}
    try:
        TopologicalSorter(imported).prepare()
    except CycleError as error:
        return error.args[1]
    return []


# --- the package ------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_imports_of_every_module_follow_the_rules(source):
    assert violations(source) == []


def test_no_modules_import_each_other_in_a_circle():
    assert circle_in(SOURCES) == []


def test_every_module_belongs_to_a_layer():
    known = {*LAYERS, *OPEN_TO_ALL, "__main__", None}
    assert {source.name for source in SOURCES if layer_of(source.name) not in known} == set()


def test_no_attribute_is_computed_under_the_lock_of_functools():
    """Python 3.11 shares it between instances and keeps it in forked processes: `annealed.lazy` has none."""
    under = [source.name for source in SOURCES for node in ast.walk(ast.parse(source.text)) if _is_functools_one(node)]
    assert under == []


def test_the_only_lock_is_the_one_that_a_forked_process_makes_anew():
    """`annealed.rows.threads` has a test that forks while it is held."""
    locks = {"Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Event", "Barrier", "Queue"}
    named = {
        source.name
        for source in SOURCES
        for node in ast.walk(ast.parse(source.text))
        if (isinstance(node, ast.ImportFrom) and locks & {alias.name for alias in node.names})
        or (isinstance(node, ast.Attribute) and node.attr in locks)
    }
    assert named == {"annealed.rows.threads"}


def _is_functools_one(node):
    imported = isinstance(node, ast.ImportFrom) and node.module == "functools"
    if imported:
        return "cached_property" in {alias.name for alias in node.names}
    return isinstance(node, ast.Attribute) and ast.unparse(node) == "functools.cached_property"


def test_no_module_is_long():
    lengths = {source.name: len(source.text.splitlines()) for source in SOURCES}
    assert {name: length for name, length in lengths.items() if length > LONGEST_MODULE} == {}


def test_public_names_are_sorted_and_exist():
    assert annealed.__all__ == sorted(set(annealed.__all__))
    assert [name for name in annealed.__all__ if not hasattr(annealed, name)] == []


def test_importing_the_package_imports_no_optional_library():
    """Other than those that scikit-learn imports."""
    program = (
        "import sys, sklearn.model_selection; before = set(sys.modules); import annealed; "
        f"print(*{INSTALLED_BY_THE_USER | {'triton'}!r} & (sys.modules.keys() - before))"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert process.stdout.split() == []


def test_the_core_does_not_grow():
    """A new tuned number needs a row in `bench ablation` that shows at least 5 % somewhere."""
    size = core()
    assert size.n_lines <= MOST_LINES
    assert len(size.tuned) <= MOST_TUNED_NUMBERS, size.tuned


def test_a_small_fit_crosses_few_files():
    """Files of the package in which a fit of a small dense table runs a function: they may only become fewer."""
    X, y = load_iris(return_X_y=True)
    crossed = set()
    sys.setprofile(lambda frame, event, _: crossed.add(frame.f_code.co_filename) if event == "call" else None)
    try:
        AnnealedLogisticRegression().fit(X, y)
    finally:
        sys.setprofile(None)
    files = {name for name in crossed if Path(name).is_relative_to(PACKAGE)}
    assert len(files) <= MOST_FILES_OF_A_FIT, sorted(files)


def test_no_class_has_many_members():
    """A class is made of parts that it holds, not of bases that it inherits."""
    for name in MODULES:
        if not name.startswith("annealed.gpu.") and name != "annealed.__main__":  # kernels need triton
            import_module(name)
    modules = [module for name, module in sys.modules.items() if name in MODULES]
    classes = {value for module in modules for value in vars(module).values() if isinstance(value, type)}
    numbers = {cls.__name__: len(members(cls)) for cls in classes if cls.__module__ in MODULES}
    assert {name: number for name, number in numbers.items() if number > WIDER.get(name, MOST_MEMBERS)} == {}
    assert [name for name in WIDER if numbers[name] < WIDER[name]] == [], "lower these numbers"


def members(cls):
    """Names defined in the body of a class and of its bases in the package, or assigned to `self` there."""
    own = [base for base in cls.__mro__ if base.__module__ in MODULES]
    names = {name for base in own for name in (*vars(base), *vars(base).get("__annotations__", {}), *_assigned(base))}
    return {name for name in names if not name.startswith("__") and name != "_abc_impl"}


def _assigned(cls):
    tree = ast.parse(dedent(getsource(cls)))
    stored = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)]
    return [node.attr for node in stored if getattr(node.value, "id", None) == "self"]


def test_tuned_numbers_are_numbers_that_a_module_names_in_capitals():
    text = "A = 1\nB, C = 2.0, (1 << 20, -3)\nD: int = 4\nE = A * 2\nF = True\nG = 'no'\nh = 5\nI = (A, 1)"
    assert list(tuned_numbers(text)) == ["A", "B", "C", "D"]


# --- tests of the rules -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("annealed.rows.made_up", "from annealed.estimators.base import anything"),
        ("annealed.rows.made_up", "def later():\n    import annealed.path"),
        ("annealed.rows.made_up", "from ..path import anything"),
        ("annealed.rows.made_up", "from .. import path"),
        ("annealed.rows.made_up", "from annealed import path"),
        ("annealed.rows.made_up", "from annealed import AnnealedLogisticRegression"),
        ("annealed.export.made_up", "from annealed.app.tables import anything"),
        ("annealed.gpu.made_up", "from annealed.rows import anything"),
        ("annealed.optional", "import annealed.path"),
        ("annealed.path.made_up", "import pandas"),
        ("annealed.path.made_up", "try:\n    import torch\nexcept ImportError:\n    torch = None"),
        ("annealed.path.made_up", "class Holder:\n    import dask.array"),
        ("annealed.path.made_up", "def later():\n    require('matplotlib.pyplot', extra='plot')"),
        ("annealed.plots.made_up", "pyplot = require('matplotlib.pyplot', extra='plot')"),
    ],
)
def test_a_forbidden_import_breaks_exactly_one_rule(name, text):
    assert len(violations(Source(name, text))) == 1


@pytest.mark.parametrize(
    ("name", "text", "is_folder"),
    [
        ("annealed.path.made_up", "from annealed.rows import anything", False),
        ("annealed.path.made_up", "from annealed.optional import require", False),
        ("annealed.path.made_up", "def later():\n    require('pandas', extra='frames')", False),
        ("annealed.rows.made_up", "from .base import anything\nfrom . import base", False),
        ("annealed.rows", "from .dense import anything\nfrom annealed.rows import dense", True),
        ("annealed.plots.made_up", "def later():\n    import matplotlib", False),
        ("annealed.app.report.made_up", "from annealed.app.report.base import anything", False),
        ("annealed.app.report.made_up", "from annealed.app.tables import anything", False),
        ("annealed.app.cli", "from annealed import anything", False),
    ],
)
def test_an_allowed_import_breaks_no_rule(name, text, is_folder):
    assert violations(Source(name, text, is_folder)) == []


# Two modules made up for these tests, which stand in for real ones, and the __init__ of their folder.
FOLDER = Source("annealed.rows", "from annealed.rows.base import anything", is_folder=True)


@pytest.mark.parametrize(
    ("base", "dense"),
    [
        ("from annealed.rows.dense import anything", "from annealed.rows.base import anything"),
        ("from annealed.rows.dense import anything", "def later():\n    from annealed.rows import base"),
        ("from annealed.rows import anything", ""),
    ],
)
def test_a_circle_of_imports_is_found(base, dense):
    circle = circle_in([FOLDER, Source("annealed.rows.base", base), Source("annealed.rows.dense", dense)])
    assert len(circle) == 3
    assert circle[0] == circle[-1]


def test_imports_in_one_direction_are_no_circle():
    base = Source("annealed.rows.base", "from annealed.rows.dense import anything")
    assert circle_in([FOLDER, base, Source("annealed.rows.dense", "import annealed.arrays")]) == []
