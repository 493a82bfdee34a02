"""Every mechanism of the library that can be switched off, for `python dev.py bench ablation`.

An entry names the mechanism, says what it trades, and switches it off inside a context: by another value of a constant,
another value of a class attribute, or another function. The library is searched by name, wherever the file lies;
a name that is gone is an error.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import inf

from gates.counting import library_modules, patched


@contextmanager
def constant(name: str, value, module: str = "") -> Iterator[None]:
    """Set a module-level constant in its own module and wherever it was imported.

    module : last part of the name of its module, if several have a constant of this name
    """
    homes = [own for own in library_modules() if hasattr(own, name) and own.__name__.endswith(module)]
    if not homes:
        raise LookupError(f"the library has no constant {name} in a module {module or 'at all'}. Adapt its entry.")
    old = getattr(homes[0], name)
    places = [own for own in library_modules() if getattr(own, name, None) is old]
    with ExitStack() as stack:
        for place in places:
            stack.callback(setattr, place, name, old)
            setattr(place, name, value)
        yield


@contextmanager
def attribute(qualified_name: str, value) -> Iterator[None]:
    """Set an attribute of a class: a flag, a property or a static method."""
    class_name, _, name = qualified_name.rpartition(".")
    owners = {getattr(module, class_name) for module in library_modules() if hasattr(module, class_name)}
    owners = {owner for owner in owners if name in vars(owner)}
    if len(owners) != 1:
        raise LookupError(f"the library needs one class {class_name} with {name}. Got {len(owners)}. Adapt its entry.")
    (owner,) = owners
    old = vars(owner)[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, old)


def function(qualified_name: str, replacement: Callable, *parameters: str):
    """Replace a function or method."""
    return patched(qualified_name, lambda _: replacement, parameters)


def all_of(*contexts: Callable):
    """Several of these at once."""

    @contextmanager
    def together() -> Iterator[None]:
        with ExitStack() as stack:
            for context in contexts:
                stack.enter_context(context())
            yield

    return together


@dataclass(frozen=True)
class Mechanism:
    """
    off : makes a context in which the mechanism is off
    trades : what it costs, and what it gives
    fits : estimators of the ablation that it serves
    is_silent : whether it changes neither counts nor results, so that only the time tells
    numbers : the tuned numbers that only this mechanism uses, where several modules have the name with their module
    """

    name: str
    off: Callable
    trades: str
    fits: tuple[str, ...] = ("logistic",)
    is_silent: bool = False
    numbers: tuple[str, ...] = ()


def _set(text, trades, name, value, module="", *, numbers=(), **options) -> Mechanism:
    """Mechanism of one number, and of `numbers` beside it."""
    numbers = (f"{module}.{name}" if module else name, *numbers)
    return Mechanism(f"{text} [{name}]", lambda: constant(name, value, module), trades, numbers=numbers, **options)


def _flag(text, trades, name, value, **options) -> Mechanism:
    return Mechanism(f"{text} [{name}]", lambda: attribute(name, value), trades, **options)


def _call(text, trades, name, replacement, *parameters, **options) -> Mechanism:
    return Mechanism(f"{text} [{name}]", lambda: function(name, replacement, *parameters), trades, **options)


def _evidence(*args, **options):
    """A score test that knows nothing."""
    return sys.modules["annealed.path.adaptive"].NO_EVIDENCE


def _from_last_node(problem, nodes, temperature):
    return nodes[-1].parameters if nodes else problem.start(temperature)


def _with_new_factor(function):
    """The method of the same class that computes a Hessian and its factor."""
    return sys.modules[function.__module__]._Search._evaluate_hessians


def _each_fit_diagonalized(frame, estimate):
    return None


BOTH = ("logistic", "lda")
LDA = ("lda",)
POTTS = ("potts",)

MECHANISMS = [
    # --- precision -------------------------------------------------------------------------------------
    _call(
        "float32 copy of the rows",
        "a copy of X; half the bytes",
        "LinearScores.float32_copy_pays",
        lambda *_: False,
        fits=BOTH,
        numbers=("FEWEST_COPIED_VALUES", "SINGLE_PRECISION_TOL"),
    ),
    _flag(
        "products with rows in place",
        "a correction; no centred copy",
        "DenseDesign._center_is_near",
        False,
        numbers=("SPREAD_ROWS",),
    ),
    # --- solvers ---------------------------------------------------------------------------------------
    _set("Newton's method", "Hessians; few steps", "PASSES_OF_HESSIAN", 0.0, "plan"),
    _set("Newton's method after L-BFGS", "Hessians; no long runs of steps", "NEWTON_STEPS", inf, "plan"),
    Mechanism(
        "reused factors in Newton's method",
        lambda: patched("_Search._evaluate_values", _with_new_factor),
        "slower convergence; half the Hessians",
    ),
    _set("nodes solved together", "worse starts; fewer calls", "GROUP_SIZE", 1, "newton"),
    _set("no long steps without evaluation", "an evaluation; no harm to outliers", "FURTHEST_MOVE", inf),
    _flag("intermediate temperatures in one stack, Newton", "memory; fewer calls", "Newton.gaps_together", 1),
    _flag(
        "intermediate temperatures in one stack, L-BFGS",
        "memory; fewer calls",
        "LBFGS.gaps_together",
        1,
        numbers=("POINTS_TOGETHER",),
    ),
    _call("pairs of L-BFGS", "memory; second-order steps", "Pairs.add", lambda *_: None),
    _call("final fit's pairs given to folds", "a copy; fewer fold steps", "PathMemory.share", lambda *_: None),
    _call(
        "Hessian of all classes as preconditioner",
        "a Hessian; few steps",
        "Preconditioners.cost",
        lambda *_: inf,
    ),
    _flag(
        "blocks of single classes as preconditioner",
        "a kind of Hessian; few steps",
        "Preconditioners._learns_classes",
        False,
        numbers=("CLASSES_SHARE",),
    ),
    Mechanism(
        "any second-order preconditioner",
        all_of(
            lambda: function("Preconditioners.cost", lambda *_: inf),
            lambda: function("Preconditioners.class_cost", lambda *_: inf),
        ),
        "Hessians; few steps",
    ),
    _flag(
        "sampled rows in Hessians",
        "noise; a smaller Hessian product",
        "HessianSample.n_sampled",
        staticmethod(lambda n_rows, *_: n_rows),
        numbers=("ROWS_PER_COORDINATE",),
    ),
    _set("growing levels of Hessians", "several Hessians; a cheap first one", "N_LEVELS", 1),
    _set("no memory from much colder temperatures", "starts anew; no misleading Hessian", "MUCH_HOTTER", inf),
    _set("factors for several penalties", "memory, slower convergence; fewer factors", "STALE", 0.0),
    _set(
        "budget of a temperature", "an early end; no long search", "BUDGET", 10**6, "plan", numbers=("FEWEST_BEFORE",)
    ),
    _set("certificate of one hundredth", "steps; exact final fits", "SUBOPTIMALITY_SHARE", 1.0),
    _set("sufficient decrease", "shorter steps; no long ones", "ARMIJO", 0.0),
    _call("row-space solver", "a solver; wide and sparse X", "_has_row_form", lambda problem: False),
    _set("eigenvectors in the row preconditioner", "eigsh; fewer products with K", "MOST_LEADING", 1),
    _call("stacks of fits in the row-space solver", "memory; fewer calls", "_stack_size", lambda problem: 1),
    _set("columns where samples stall", "a path anew; no endless steps", "MOST_STEPS", 10**9, "span"),
    _call(
        "more eigenvectors where samples stall",
        "a second try; fewer paths anew",
        "RepresenterProblem.grow",
        lambda _: False,
        numbers=("representer.GROWTH",),
    ),
    _set("bounded steps over a few directions", "shorter steps; none too long", "LONGEST_STEP", inf, "subspace"),
    _set("formed Gram matrix of samples", "memory; one product instead of two", "MOST_FORMED_ROWS", 0),
    # --- coordinates -----------------------------------------------------------------------------------
    _call(
        "eigenbasis of the columns",
        "an eigendecomposition; well-conditioned",
        "has_affordable_rotation",
        lambda design: False,
        numbers=("WIDEST_EIGENPROBLEM",),
    ),
    Mechanism(
        "basis of the span of the samples",
        all_of(
            lambda: function("_is_in_span", lambda *_: False),
            lambda: function("spans_fewer_than_columns", lambda design: False),
        ),
        "an eigendecomposition; small problems for wide X",
        fits=BOTH,
    ),
    _set(
        "no span for dense rows, unless few", "combinations of rows; no eigendecomposition", "MOST_SPANNED_SHARE", inf
    ),
    _set("eigenbasis of many columns", "an eigendecomposition; well-conditioned", "WIDEST_ROTATION", 1000),
    _set("ridge of points of classes", "rounding; Gram matrices that have a factor", "RIDGE", 0.0, "class_points"),
    _set("no least squares with near-duplicates", "a rule; no misled choice", "TWINS", 0.0),
    _call("points of classes", "a solve; as many columns as classes", "class_point_coordinates", lambda *_: None),
    _call(
        "variances lost to rounding, recomputed",
        "a pass; accurate coordinates",
        "_with_recomputed_variances",
        lambda design, rotated, *_: rotated,
        numbers=("coordinates.SMALLEST_VARIANCE",),
    ),
    _call(
        "no empty sparse columns",
        "an index; shorter vectors",
        "CsrDesign.without_empty_columns",
        lambda self: (self, None),
        numbers=("MOST_USED",),
    ),
    _call(
        "turns of folds from one factor",
        "a rule; no eigendecomposition a fold",
        "_turned_from",
        _each_fit_diagonalized,
        fits=LDA,
    ),
    Mechanism(
        "Gram matrices shared by folds",
        lambda: attribute("DenseDesign.covariances", lambda self: [self.covariance(fit) for fit in range(self.n_fits)]),
        "groups of rows; one Gram matrix in all",
        fits=LDA,
    ),
    # --- sums over rows --------------------------------------------------------------------------------
    _call("kept products of columns for Hessians", "memory; one matrix product", "are_stored", lambda *_: False),
    _flag(
        "kept centred copy of a small X",
        "memory; no centring",
        "DenseDesign._few_centered_rows",
        None,
        is_silent=True,
        fits=BOTH,
    ),
    _set(
        "groups of rows that a fold leaves out",
        "an order of rows; a sixth of the work",
        "BLOCK",
        10**15,
        "dense",
        numbers=("cost.BLOCK",),
        fits=BOTH,
    ),
    _call(
        "narrow products in pieces",
        "a rule; no packing",
        "_pieces",
        lambda *_: None,
        is_silent=True,
        fits=BOTH,
        numbers=("MOST_WORK", "MOST_SCORES", "FEWEST"),
    ),
    _call("held-out logits from kept rows", "a rule; fewer calls", "ExactHessians.held_out_logits", lambda *_: None),
    _set("many blocks", "calls; an even load", "MANY_BLOCKS", 1, "rows.base", fits=BOTH),
    _set(
        "exponents checked in few rows", "a rare slow sum; fewer reads", "CHECKED_EVERY", 1, is_silent=True, fits=BOTH
    ),
    _set("overhead of calls in costs", "a rule; plans for small tables", "CALL", 0.0, "cost", fits=BOTH),
    _set("copied entries in costs", "a rule; plans for narrow rows", "ENTRY", 0.0, "cost", fits=BOTH),
    _set("posteriors in costs", "a rule; plans for many classes", "SCORE", 0.0, "cost", fits=BOTH),
    _set("factorizations in costs", "a rule; plans for large Hessians", "FACTOR", 0.0, "cost", fits=BOTH),
    _set("kept arrays", "memory; nothing is computed twice", "STORED_BYTES", 1, "cost", fits=BOTH),
    _set("float32 only far from cold ends", "float64; no misled steps", "LARGEST_FLOAT32_SCORE", inf, fits=LDA),
    _set(
        "validation of several temperatures at once",
        "memory; fewer calls",
        "BLOCK_BYTES",
        1,
        "selection",
        numbers=("cost.BLOCK_BYTES",),
        is_silent=True,
        fits=BOTH,
    ),
    # --- path ------------------------------------------------------------------------------------------
    _call("predicted starts of nodes", "extrapolation; fewer steps", "predicted", _from_last_node, fits=BOTH),
    _call("tangents", "a solve; better starts", "along_tangents", lambda nodes, temperature: nodes[-1].parameters),
    _set("polynomials of high degree between nodes", "a rule; starts that need no step", "N_POINTS", 2),
    _call("middles of gaps", "more temperatures; a finer choice", "_Path._await_middle", lambda *_: None),
    _set("halving of gaps beside poor starts", "more temperatures; accurate in between", "MOST_HALVINGS", 0),
    _set("nodes on both sides of a gap", "gaps wait; better starts", "COLDER_NODES", 1),
    _set("nodes far apart", "interpolated folds; fewer nodes", "REACH", 0.0, "prediction"),
    _set("no polynomials through close temperatures", "a rule; no amplified errors", "CLOSEST", 0.0),
    _call("no start above the hotter minimum", "a pass; no lost fits", "_leave_misleading_starts", lambda *_: None),
    _flag("folds move as the final fit does", "a rule; fewer fold steps", "SmoothProblem.fits_are_alike", False),
    _flag("last step without evaluation", "a rule; a pass less", "PenalizedLinearProblem.takes_last_step", False),
    _set("folds solved loosely", "less exact folds; fewer steps", "STEP_SHARE", 1e-3, fits=BOTH),
    _flag(
        "cooling on when nothing was learned",
        "more temperatures; late signals",
        "InnerProduct.learns_late",
        False,
    ),
    _call("score test", "a pass; ends a hopeless path", "evidence_held_back", _evidence),
    _call(
        "predicted end of the path",
        "a parabola; fewer temperatures",
        "_extrapolated",
        lambda scores, cooled, best: scores[best],
        fits=BOTH,
    ),
    _set(
        "end of the path soon after the best",
        "a late gain missed; fewer temperatures",
        "PATIENCE",
        4.0,
        "adaptive",
        fits=BOTH,
    ),
    _set(
        "end of the path long after the best", "a late gain missed; fewer temperatures", "LONG_PATIENCE", 8.0, fits=BOTH
    ),
    _set("end of the path without learning", "a late signal missed; fewer temperatures", "OVERFITTED", 0.0, fits=BOTH),
    _set("end of the path where nothing changes", "a late gain missed; fewer temperatures", "FLAT", 0.0, fits=BOTH),
    _set("end of the path at certainty", "a rule; fewer temperatures", "HARD", 0.0, fits=BOTH),
    _set("path goes on for large signals only", "a small signal missed; fewer temperatures", "MUCH_HELD_BACK", 0.0),
    _set("path goes on for clear signals only", "a signal missed; fewer temperatures", "CLEAR_EXCESS", 0.0),
    _set("hopeless path ends", "a signal missed; fewer temperatures", "NO_EXCESS", -inf),
    _set("no score test of many parameters", "no early end; none misled", "TESTED_SHARE", inf),
    _set("hot end", "temperatures; smooth starts", "HOT_LOGIT", 0.01, fits=BOTH),
    # --- choice and calibration ------------------------------------------------------------------------
    _set("discount of certainty in calibration", "a term; no overconfidence", "UNSEEN_ERRORS", 0.0),
    _set("prior of the posterior scale", "a term; no extreme scales", "SCALE_PRIOR", 0.0),
    _set(
        "short last step of calibration", "less exact; fewer evaluations", "SCALE_STEP", 1e-8, is_silent=True, fits=BOTH
    ),
    _set(
        "imaginary rows of classes that a fold lacks",
        "bias; no class without probability",
        "MISSING_CLASS_WEIGHT",
        1e-6,
        fits=BOTH,
    ),
    _set("other scalings have to gain", "a rule; no change by chance", "LEAST_GAIN", -inf),
    _set("a small change of scaling improves clearly", "a gain missed; fewer second paths", "RISE_ERRORS", 0.0),
    _set("a small change of scaling improves enough", "a gain missed; fewer second paths", "SMALLEST_RISE", 0.0),
    _set("few sparse rows tried in another scaling", "a second path; the better penalty", "FEW_ROWS", 0),
    _set("no small change of a negligible penalty", "a gain missed; fewer fold solves", "LEAST_PENALTY", 0.0),
    _set("whitening only where a ridge harms", "a rule; a path less", "CLEAR_COST", 0.0),
    Mechanism(
        "trial of another penalty scaling",
        all_of(
            lambda: function("_prefers_alternative", lambda *_: False),
            lambda: function("ScalingChoices.tries_alternative", lambda *_: False),
        ),
        "a second path; the better penalty",
    ),
    _call(
        "folds ask whether to try another scaling",
        "a fold solve; sees what always helps not",
        "_prefers_alternative",
        lambda *_: False,
        numbers=("PERTURBATION",),
    ),
    _call(
        "first scaling by least squares",
        "an eigendecomposition; whitening of wide X",
        "ScalingChoices.initial",
        lambda self: self,
    ),
    # --- prototypes ------------------------------------------------------------------------------------
    _call(
        "principal axes",
        "an eigendecomposition; no large factorizations",
        "along_axes",
        lambda rows: rows,
        fits=POTTS,
        numbers=("MANY_COLUMNS",),
    ),
    _set("refinement", "a descent; a better posterior", "STRENGTHS", (), fits=POTTS),
    _set("choice of the shrinkage", "three searches; the best of three", "SEARCHED_SHRINKAGES", ("oas",), fits=POTTS),
    _call(
        "growth",
        "rounds; more prototypes where rows are wrong",
        "grown",
        lambda rows, state: None,
        "rows",
        "state",
        fits=POTTS,
    ),
    _set("choice of the sharpness", "posteriors; a better start of the refinement", "SHARPER", (), fits=POTTS),
    _call(
        "float32 in the search",
        "rounding; half the bytes",
        "LabelledRows.in_single_precision",
        lambda self: self,
        fits=POTTS,
    ),
    _set("end of the rounds", "a late gain missed; fewer rounds", "PATIENCE", 20, "potts.search", fits=POTTS),
    _set("few rows in the search", "noise; a faster choice", "SEARCH_ROWS", inf, fits=POTTS),
    _set("one held-out part of a large X", "noise; a third of the fits", "MANY_NUMBERS", inf, "search", fits=POTTS),
    _set("growth on a subset", "noise; all rows only once", "FIT_ROWS", inf, "potts.search", fits=POTTS),
    _set("few new prototypes in a round", "rounds; fewer prototypes", "MOST_NEW", inf, fits=POTTS),
    _set("limit of the number of prototypes", "a limit; an end", "MOST_PROTOTYPES", inf, fits=POTTS),
    _set("mild reheating", "less freedom; keeps what was found", "REHEATED", inf, fits=POTTS),
    _set("end of sweeps and steps", "less exact; fewer of them", "CONVERGED", 0.0, fits=POTTS),
    _set("long memory of the descent", "vectors; fewer steps", "MEMORY", 1, fits=POTTS),
    _set("smoothed labels", "a term; no class without probability", "SMOOTHING", 1e-3, fits=POTTS),
    _set("few steps for a penalty", "less exact; fewer steps", "MOST_STEPS", 200, "potts.refinement", fits=POTTS),
    _set("fast cooling", "may miss a split; fewer temperatures", "BETA_GROWTH", 1.1, fits=POTTS),
    _set("constant columns dropped", "a rule; no columns of rounding", "CONSTANT", 0.0, "potts.rows", fits=POTTS),
    _set("floor of variances", "a rule; no inverse of rounding", "SMALLEST_VARIANCE", {8: 0, 4: 0}, "rows", fits=POTTS),
]
