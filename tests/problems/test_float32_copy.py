"""Float32 copies of the rows: when they are made, and how accurate they are."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from small_problems import (
    badly_scaled,
    fold_masks,
    gaussian,
    near_start,
    rare_class,
    solve,
    solve_final,
    solve_fits,
    stack_of,
    two_classes,
    wide,
)

from annealed import AnnealedClassifier, AnnealedLDA
from annealed.problems import Distance, HeldOut, InnerProduct, gibbs, held_out_logits
from annealed.problems.distance import LARGEST_FLOAT32_SCORE
from annealed.rows import SinglePrecisionRows, dense
from annealed.solvers import LBFGS

PENALTY_SCALINGS = ["none", "standardize", "half-whiten", "whiten"]
TEMPERATURES = [30.0, 1.0, 0.01]


@pytest.fixture
def copies(monkeypatch):
    """Designs that are copied in float32, however small."""
    copied = []

    class Recorded(SinglePrecisionRows):
        def __init__(self, design, coordinates):
            copied.append(design)
            super().__init__(design, coordinates)

    monkeypatch.setattr("annealed.problems.linear.FEWEST_COPIED_VALUES", 1)
    for family in ("penalized_linear", "distance"):
        monkeypatch.setattr(f"annealed.problems.{family}.SinglePrecisionRows", Recorded)
    return copied


def on_disk(folder, X):
    mapped = np.memmap(folder / "rows", dtype=X.dtype, mode="w+", shape=X.shape)
    mapped[:] = X
    return mapped


def with_float32_copy(table, family=InnerProduct, **settings):
    problem = family(**settings).prepare(stack_of(table, fold_masks(len(table.y))))
    problem.scores.make_float32_copy()
    return problem


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("penalty_scaling", PENALTY_SCALINGS)
@pytest.mark.parametrize("make", [gaussian, two_classes, rare_class], ids=lambda make: make.__name__)
def test_float32_rows_give_value_and_gradient_to_float32_precision(make, penalty_scaling, temperature, copies):
    problem = with_float32_copy(make(), penalty_scaling=penalty_scaling)
    assert problem.scores.has_quick_rows
    point = near_start(problem, temperature)
    quick, exact = (problem.objective(point, temperature, quick=is_float32) for is_float32 in (True, False))
    np.testing.assert_allclose(quick[0], exact[0], rtol=1e-5)
    for single, double in zip(quick[1:], exact[1:], strict=True):
        np.testing.assert_allclose(single, double, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("temperature", [30.0, 1.0])
@pytest.mark.parametrize("make", [gaussian, two_classes, badly_scaled, wide], ids=lambda make: make.__name__)
def test_float32_rows_of_distances_give_value_and_gradient_to_float32_precision(make, temperature, copies):
    problem = with_float32_copy(make(), Distance)
    assert problem.scores.has_quick_rows
    point, some = near_start(problem, temperature), np.array([2, 0])
    quick, exact = (problem.objective(point, temperature, quick=is_float32) for is_float32 in (True, False))
    part = problem.objective(point[some], temperature, some, quick=True)
    for single, double, of_some in zip(quick, exact, part, strict=True):
        assert not np.array_equal(single, double)
        np.testing.assert_allclose(single, double, rtol=1e-5, atol=2e-5)
        np.testing.assert_allclose(of_some, double[some], rtol=1e-5, atol=2e-5)


def test_large_scores_of_distances_are_computed_in_float64(copies):
    """In float32 their differences would keep few digits."""
    problem = with_float32_copy(gaussian(), Distance)
    cold = np.sum(problem.class_means[0] ** 2, axis=1).max() / (1.01 * LARGEST_FLOAT32_SCORE)
    point = near_start(problem, cold)
    quick, exact = (problem.objective(point, cold, quick=is_float32) for is_float32 in (True, False))
    for single, double in zip(quick, exact, strict=True):
        np.testing.assert_array_equal(single, double)


@pytest.mark.parametrize("settings", [{"anchor": 0.0}, {"covariance": "diagonal"}, {"covariance": "identity"}])
def test_distances_have_float32_rows_only_if_coordinates_share_a_frame(settings, copies):
    assert not with_float32_copy(gaussian(), Distance, **settings).scores.has_quick_rows


@pytest.mark.parametrize("make", [gaussian, two_classes, wide], ids=lambda make: make.__name__)
def test_float32_rows_give_the_same_fit_of_distances(make, request):
    table = make()
    exact = AnnealedLDA(cv=3).fit(table.X, table.y)
    copies = request.getfixturevalue("copies")
    quick = AnnealedLDA(cv=3).fit(table.X, table.y)
    assert len(copies) == 1
    assert quick.path_.converged.all()
    n_shared = min(len(quick.path_), len(exact.path_))  # rounding may decide where a path ends
    np.testing.assert_allclose(*(model.path_.temperatures[:n_shared] for model in (quick, exact)), rtol=1e-10)
    np.testing.assert_allclose(*(model.path_.free_energy[:n_shared] for model in (quick, exact)), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(*(model.path_.validation_score[:n_shared] for model in (quick, exact)), atol=2e-3)


@pytest.mark.parametrize("make", [gaussian, two_classes], ids=lambda make: make.__name__)
@pytest.mark.parametrize("family", [InnerProduct, Distance])
def test_products_of_float32_rows_stay_in_float32(family, make, copies, monkeypatch):
    """With one float64 factor, the rows would be converted to float64 in every pass."""
    problem, seen = with_float32_copy(make(), family), set()

    def recorded(product):
        def record(vectors, rows):
            seen.add((vectors.dtype, rows.dtype))
            return product(vectors, rows)

        return record

    for name in ("scores_of", "sums_of"):
        monkeypatch.setattr(dense, name, recorded(getattr(dense, name)))
    problem.objective(near_start(problem, 1.0), 1.0, quick=True)
    assert seen == {(np.dtype(np.float32), np.dtype(np.float32))}


def test_float32_rows_do_not_depend_on_units(copies):
    problems = [with_float32_copy(make(), penalty_scaling="standardize") for make in (gaussian, badly_scaled)]
    axes = [problem.scores.coordinates.basis * problem.features.scale[:, None] for problem in problems]
    signs = np.append(np.sign(np.sum(axes[0] * axes[1], axis=0)), 1)  # eigenvectors have arbitrary signs
    point = near_start(problems[0], 0.1)
    turned = (point.reshape(len(point), -1, len(signs)) * signs).reshape(point.shape)
    first, second = (
        problem.objective(at, 0.1, quick=True) for problem, at in zip(problems, (point, turned), strict=True)
    )
    np.testing.assert_allclose(second[0], first[0], rtol=1e-5)
    np.testing.assert_allclose(np.abs(second[1]), np.abs(first[1]), atol=1e-5)


def test_float32_rows_give_some_fits_the_values_of_the_whole_stack(copies):
    problem = with_float32_copy(gaussian())
    point, some = near_start(problem, 1.0), np.array([2, 0])
    whole = problem.objective(point, 1.0, quick=True)
    for part, of_all in zip(problem.objective(point[some], 1.0, some, quick=True), whole, strict=True):
        np.testing.assert_allclose(part, of_all[some], atol=1e-6)


def test_float32_rows_score_held_out_rows_to_float32_precision(copies):
    table = gaussian()
    problem = with_float32_copy(table)
    parameters = near_start(problem, 0.5)
    held_out = HeldOut(np.array([1, 1, 4]), np.array([0, 2, 1]))
    reported = problem.report(parameters, 0.5)
    logits = held_out_logits(problem, held_out, [parameters], [0.5])[0]
    for row, fit, picked in zip(held_out.rows, held_out.fits, logits, strict=True):
        expected = table.X[row] @ reported["coef"][fit].T + reported["intercept"][fit]
        np.testing.assert_allclose(picked - picked.mean(), expected - expected.mean(), atol=1e-5)


def test_few_rows_are_not_copied():
    assert not with_float32_copy(gaussian()).scores.has_quick_rows


def test_rows_in_a_basis_of_their_span_are_not_copied(copies):
    assert not with_float32_copy(wide()).scores.has_quick_rows


@pytest.mark.parametrize(
    "store",
    [on_disk, lambda folder, X: sparse.csr_matrix(X), lambda folder, X: sparse.csr_array(X)],
    ids=["on_disk", "csr_matrix", "csr_array"],
)
def test_memory_mapped_or_sparse_rows_are_not_copied(store, copies, tmp_path):
    table = gaussian()
    assert not with_float32_copy(replace(table, X=store(tmp_path, table.X))).scores.has_quick_rows
    assert copies == []


@pytest.mark.parametrize(("dtype", "most", "is_copied"), [("f4", 10**6, True), ("f4", 100, False), ("f8", 100, True)])
def test_float32_X_is_copied_unless_it_is_large(dtype, most, is_copied, copies, monkeypatch):
    monkeypatch.setattr("annealed.problems.linear.MOST_COPIED_BYTES", most)
    table = gaussian()
    assert with_float32_copy(replace(table, X=table.X.astype(dtype))).scores.has_quick_rows == is_copied


def test_a_classifier_does_not_copy_memory_mapped_rows(copies, tmp_path):
    table = gaussian()
    AnnealedClassifier(InnerProduct(), schedule=[1.0, 0.1], solver="lbfgs", cv=2).fit(
        on_disk(tmp_path, table.X), table.y
    )
    assert copies == []


@pytest.mark.parametrize("make", [gaussian, two_classes, badly_scaled], ids=lambda make: make.__name__)
def test_float32_rows_choose_the_same_temperature_and_the_same_fit(make, request):
    table = make()
    exact = AnnealedClassifier(InnerProduct(), solver="lbfgs", tol=1e-5).fit(table.X, table.y)
    copies = request.getfixturevalue("copies")
    quick = AnnealedClassifier(InnerProduct(), solver="lbfgs", tol=1e-5).fit(table.X, table.y)
    assert len(copies) == 1
    np.testing.assert_allclose(quick.temperature_, exact.temperature_, rtol=1e-12)
    first, second = (model.path_.coef[model.path_.best_index] * table.X.std(axis=0) for model in (quick, exact))
    np.testing.assert_allclose(first, second, atol=1e-3 * np.abs(second).max())
    np.testing.assert_allclose(quick.posterior_scale_, exact.posterior_scale_, rtol=1e-3)
    at_nodes = [model.path_.validation_score[model.path_.is_node] for model in (quick, exact)]
    n_nodes = min(len(scores) for scores in at_nodes)  # rounding may decide where a path ends
    assert n_nodes > 5
    np.testing.assert_allclose(*(scores[:n_nodes] for scores in at_nodes), atol=1e-3)


def test_a_tight_tolerance_uses_no_float32_rows(copies):
    table = gaussian()
    AnnealedClassifier(InnerProduct(), schedule=[1.0, 0.1], solver="lbfgs", cv=2, tol=1e-6).fit(table.X, table.y)
    assert copies == []


def evaluations_of_final_fit(problem, temperature, monkeypatch, noise=0.0):
    """Number of float32 and of float64 evaluations by L-BFGS; `noise` perturbs the float32 values."""
    evaluations, generator, objective = [], np.random.RandomState(0), problem.objective

    def recorded(parameters, temperature, fits=slice(None), quick=False):
        value, gradient, loss_gradient = objective(parameters, temperature, fits, quick)
        if np.arange(problem.n_fits)[fits][0] == 0:
            evaluations.append(quick)
        disturbance = quick * noise * generator.standard_normal(gradient.shape)
        return value, gradient + disturbance, loss_gradient + disturbance

    monkeypatch.setattr(problem, "objective", recorded)
    settings = {"tol": 1e-4, "max_iter": 1000, "certify": False}
    solution = solve_fits(LBFGS(), problem, problem.start(1.0), temperature, **settings)
    assert solution.converged[0]
    return sum(evaluations), len(evaluations) - sum(evaluations)


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_the_final_fit_is_solved_to_its_certificate_in_float32(temperature, copies, monkeypatch):
    n_single, n_double = evaluations_of_final_fit(with_float32_copy(gaussian()), temperature, monkeypatch)
    assert n_single > 2
    assert n_double == 0  # float64 evaluations come after the path


def test_a_path_is_certified_in_float64(copies):
    table = gaussian()
    path = AnnealedClassifier(InnerProduct(), solver="lbfgs", cv=2).fit(table.X, table.y).path_
    for temperature, coef, intercept, free_energy, entropy in zip(
        path.temperatures, path.coef, path.intercept, path.free_energy, path.entropy, strict=True
    ):
        logits = table.X @ coef.T + intercept
        loss = gibbs.negative_log_likelihood(logits, table.y).mean()
        penalty = 0.5 * temperature * np.sum((coef * table.X.std(axis=0)) ** 2)
        np.testing.assert_allclose(free_energy, temperature * (loss + penalty), rtol=1e-12)
        np.testing.assert_allclose(entropy, gibbs.entropy(logits).mean(), rtol=1e-9)


@pytest.mark.parametrize("certify", [False, True])
def test_only_what_was_verified_in_float64_is_certified(certify, copies):
    problem, settings = with_float32_copy(gaussian()), {"tol": 1e-4, "max_iter": 1000, "certify": certify}
    fits = solve_fits(LBFGS(), problem, problem.start(1.0), 0.01, **settings)
    finals = solve_final(LBFGS(), problem, np.repeat(problem.start(1.0)[:1], 2, axis=0), [1.0, 0.01], **settings)
    for solution in (fits.part(slice(1)), finals):
        assert solution.converged.all()
        assert (solution.is_certified == certify).all()


def test_fits_wrongly_solved_in_float32_are_solved_further(copies):
    problem, temperatures = with_float32_copy(gaussian()), [1.0, 0.01]
    solved = [solve(problem, temperature, tol=1e-4).parameters[0] for temperature in temperatures]
    starts = np.stack([solved[0], 1.1 * solved[1]])
    found = solve_final(LBFGS(), problem, starts, temperatures, tol=1e-4, max_iter=1000)
    assert found.is_certified.all()
    np.testing.assert_array_equal(found.n_iter > 0, [False, True])
    np.testing.assert_array_equal(found.parameters[0], starts[0])
    best, _, _ = problem.objective(solved[1][None], 0.01, [0])
    np.testing.assert_allclose(found.value[1], best[0], rtol=2e-6)


def test_steps_stop_at_rounding_errors(copies, monkeypatch):
    calm, disturbed = (
        evaluations_of_final_fit(with_float32_copy(gaussian()), 1e-4, monkeypatch, noise=noise) for noise in (0.0, 2e-6)
    )
    assert disturbed[0] <= 3 * calm[0]
    assert disturbed[1] > calm[1]  # the rest is solved in float64


def test_folds_that_stall_in_float32_continue_in_float64(copies, monkeypatch):
    problem, seen = with_float32_copy(gaussian()), []
    objective = problem.objective

    def disturbed(parameters, temperature, fits=slice(None), quick=False):
        """In float32 every step of a fold seems to increase the objective."""
        value, gradient, loss_gradient = objective(parameters, temperature, fits, quick)
        is_fold = bool(np.arange(problem.n_fits)[fits][0] > 0)
        rise = float(quick and is_fold and len(seen) > 0)
        if is_fold:
            seen.append(quick)
        return value + rise, gradient, loss_gradient

    monkeypatch.setattr(problem, "objective", disturbed)
    found = solve(problem, 0.01, tol=1e-4)
    assert seen[0]
    assert not seen[-1]
    assert found.converged.all()
