"""Choice of the solver: by name, as given, or by the shape of the data."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.utils import Bunch
from small_problems import fold_masks, gaussian, stack_of

from annealed import AnnealedClassifier, AnnealedLogisticRegression
from annealed.problems import Distance, InnerProduct
from annealed.solvers import SOLVERS, Newton, ScaledConjugateGradient, Subspace, make_solver, plan
from benchmarks.generators import make


def prepared(family, table, n_folds=2):
    return family.prepare(stack_of(table, fold_masks(len(table.y), n_folds)), 0)


@pytest.mark.parametrize("name", ["lbfgs", "newton", "scg"])
def test_solver_by_name(name):
    problem = prepared(InnerProduct(), gaussian())
    assert type(make_solver(name, problem)) is SOLVERS[name]


def test_solver_itself_is_kept():
    solver = ScaledConjugateGradient()
    assert make_solver(solver, prepared(Distance(), gaussian())) is solver


def test_unknown_solver_is_refused():
    with pytest.raises(ValueError, match="solver must be one of .*'lbfgs'.* Got 'adam'."):
        make_solver("adam", prepared(InnerProduct(), gaussian()))


def test_steps_in_the_papers_coordinates_need_soft_means():
    with pytest.raises(ValueError, match='coordinates="paper" needs the distance family.*Set coordinates="problem"'):
        ScaledConjugateGradient(coordinates="paper").adapt(prepared(InnerProduct(), gaussian()), 1e-4)


def test_unknown_coordinates_of_scaled_conjugate_gradient_are_refused():
    with pytest.raises(ValueError, match=r"coordinates must be one of \('problem', 'paper'\). Got 'raw'."):
        ScaledConjugateGradient(coordinates="raw").adapt(prepared(Distance(), gaussian()), 1e-4)


@pytest.mark.parametrize("solver", ["newton", Newton()], ids=str)
def test_newton_without_a_hessian_is_refused(solver):
    with pytest.raises(ValueError, match="newton.*Hessian.*lbfgs"):
        make_solver(solver, prepared(Distance(), gaussian()))


@pytest.mark.parametrize("solver", ["subspace", Subspace()], ids=str)
def test_subspace_without_row_combinations_is_refused(solver):
    with pytest.raises(ValueError, match="subspace.*inner-product.*lbfgs"):
        make_solver(solver, prepared(InnerProduct(), gaussian()))


@pytest.mark.parametrize(
    ("n_rows", "n_columns", "n_classes", "is_sparse", "penalty_scaling", "expected"),
    [
        (60, 5, 2, False, "auto", "newton"),
        (3000, 30, 2, False, "auto", "newton"),
        (5000, 30, 2, False, "auto", "newton"),
        (20_000, 60, 2, False, "auto", "lbfgs"),
        (110, 1200, 2, True, "auto", "subspace"),
        (250, 1200, 2, True, "auto", "subspace"),
        (250, 1200, 2, True, "whiten", "newton"),
        (250, 1200, 2, True, "cv", "subspace"),
        (250, 400, 2, True, "auto", "lbfgs"),
        (620, 1200, 3, True, "auto", "subspace"),
        (90, 1200, 3, False, "auto", "newton"),
        (110, 1200, 3, False, "auto", "subspace"),
        (260, 1200, 3, False, "half-whiten", "lbfgs"),
        (260, 1200, 3, False, "cv", "lbfgs"),
        (260, 400, 3, False, "auto", "lbfgs"),
    ],
)
def test_auto_chooses_the_solver_by_the_shape_of_the_data(
    n_rows, n_columns, n_classes, is_sparse, penalty_scaling, expected
):
    X = np.random.default_rng(0).normal(size=(n_rows, n_columns))
    table = Bunch(X=sparse.csr_array(X) if is_sparse else X, y=np.arange(n_rows) % n_classes, n_classes=n_classes)
    problem = prepared(InnerProduct(penalty_scaling=penalty_scaling), table, n_folds=5)
    assert type(make_solver("auto", problem)) is SOLVERS[expected]
    is_wide = n_rows < n_columns
    assert (problem.features.span is not None) == (is_wide and expected != "subspace")


@pytest.mark.parametrize("solver", ["subspace", Subspace()], ids=str)
@pytest.mark.parametrize("value", [0.0, 1.0, 3.3])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_subspace_with_equal_samples_is_refused(kind, value, solver):
    table = Bunch(X=kind(np.full((1100, 1200), value)), y=np.arange(1100) % 2, n_classes=2)
    problem = prepared(InnerProduct(), table)
    with pytest.raises(ValueError, match='solver="subspace" needs samples that differ.*"auto"'):
        make_solver(solver, problem)
    assert not isinstance(make_solver("auto", problem), Subspace)


@pytest.mark.parametrize("penalty_scaling", ["standardize", "none"])
def test_subspace_accepts_samples_that_differ_in_one_feature_only(penalty_scaling):
    X = np.full((1100, 1200), 3.3)
    X[:, 0] = 1e18
    X[:, 5] += 1e-6 * np.arange(1100)
    problem = prepared(InnerProduct(penalty_scaling=penalty_scaling), Bunch(X=X, y=np.arange(1100) % 2, n_classes=2))
    assert isinstance(make_solver("subspace", problem), Subspace)


def test_newtons_method_follows_where_l_bfgs_takes_longer_than_some_hessians():
    """At low temperatures the Hessian of the final fit is a poor preconditioner for the folds."""
    table, schedule = make("gaussian", 1, 8000), np.geomspace(10, 1e-7, 20)
    settings = dict(penalty_scaling="standardize", schedule=schedule, cv=3)
    path = AnnealedLogisticRegression(**settings).fit(table.X, table.y).path_
    assert path.plan.startswith("L-BFGS, then Newton's method, in")
    assert path.converged.all() and path.n_iter.max() <= 30
    given = AnnealedClassifier(InnerProduct(penalty_scaling="standardize"), solver="lbfgs", schedule=schedule, cv=3)
    alone = given.fit(table.X, table.y).path_
    assert alone.plan.startswith("L-BFGS in") and alone.n_iter.sum() > 3 * path.n_iter.sum()
    np.testing.assert_allclose(path.validation_score, alone.validation_score, rtol=1e-2)


def test_newtons_method_does_not_follow_where_its_hessians_need_much_memory(monkeypatch):
    monkeypatch.setattr(plan, "STORED_BYTES", 1)
    table = make("gaussian", 1, 8000)
    model = AnnealedLogisticRegression(penalty_scaling="standardize", schedule=np.geomspace(10, 1e-7, 20), cv=3)
    assert model.fit(table.X, table.y).path_.plan.startswith("L-BFGS in")


def test_l_bfgs_goes_on_where_newtons_method_takes_many_iterations_too(monkeypatch):
    monkeypatch.setattr(plan, "MOST_NEWTON_ITERATIONS", 0)
    table = make("gaussian", 1, 8000)
    model = AnnealedLogisticRegression(penalty_scaling="standardize", schedule=np.geomspace(10, 1e-7, 20), cv=3)
    path = model.fit(table.X, table.y).path_
    assert path.plan.startswith("L-BFGS in") and path.converged.all() and path.n_iter.max() > 50
