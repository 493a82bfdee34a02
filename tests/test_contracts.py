"""Guarantees of every combination of family, storage, solver and schedule, tested through the public classifier."""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import oracles
import pytest
from scipy import sparse
from scipy.special import softmax
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from small_problems import (
    Loudness,
    Radial,
    badly_scaled,
    dense,
    gaussian,
    rare_class,
    separable,
    standardized,
    text,
    two_classes,
    wide,
    wide_text,
)

from annealed import AnnealedClassifier, AnnealedLDA, AnnealedLogisticRegression, ExponentialSchedule
from annealed.problems import Distance, InnerProduct, Quadratic

FAMILIES = {
    "inner_product": InnerProduct(),
    "distance": Distance(),
    "literal_distance": Distance(anchor=0),
    "quadratic": Quadratic(),
    "radial": Radial(),
    "loudness": Loudness(),
}
DENSE_ONLY = {"quadratic", "radial"}
BACKENDS = {
    "float64": lambda X: X,
    "float32": lambda X: X.astype(np.float32),
    "csr_matrix": sparse.csr_matrix,
    "csr_array": sparse.csr_array,
}
SOLVERS = ["lbfgs", "newton", "scg"]
WITH_HESSIAN = {"inner_product", "quadratic"}
SCHEDULES = {
    "auto": "auto",
    "list": [20.0, 5.0, 2.0],
    "exponential": ExponentialSchedule(20.0, cooling_rate=0.4, stop=1.0),
}
PENALTY_SCALINGS = ["none", "standardize", "half-whiten", "whiten"]


@dataclass(frozen=True)
class Combination:
    family: str
    backend: str
    solver: str
    schedule: str

    def __repr__(self):
        return f"{self.family}-{self.backend}-{self.solver}-{self.schedule}"

    @property
    def is_possible(self):
        needs_dense = self.family in DENSE_ONLY
        has_solver = self.solver != "newton" or self.family in WITH_HESSIAN
        return has_solver and not (needs_dense and self.backend.startswith("csr"))

    @property
    def is_single_precision(self):
        return self.backend == "float32"


COMBINATIONS = [
    combination
    for family in FAMILIES
    for backend in BACKENDS
    for solver in SOLVERS
    for schedule in SCHEDULES
    if (combination := Combination(family, backend, solver, schedule)).is_possible
]


def table_of(combination, n_classes=3):
    table = gaussian(n_samples=60) if n_classes == 3 else two_classes(n_samples=60)
    return replace(table, X=BACKENDS[combination.backend](table.X))


def fitted(combination, n_classes=3):
    return _fitted(combination, n_classes)


@cache
def _fitted(combination, n_classes):
    table = table_of(combination, n_classes)
    bound = 15 if combination.family == "literal_distance" else 3000
    model = AnnealedClassifier(
        FAMILIES[combination.family],
        schedule=SCHEDULES[combination.schedule],
        solver=combination.solver,
        cv=2,
        tol=1e-3,
        max_iter=bound,
        random_state=0,
    )
    return model.fit(table.X, table.y)


@pytest.mark.filterwarnings("ignore:Not converged")
@pytest.mark.parametrize(
    ("combination", "n_classes"),
    [
        (combination, n_classes)
        for combination in COMBINATIONS
        for n_classes in (2, 3)
        if n_classes == 3 or combination.schedule == "list"
    ],
)
def test_posterior_is_the_softmax_of_the_decision_function(combination, n_classes):
    table = table_of(combination, n_classes)
    model = fitted(combination, n_classes)
    posterior = model.predict_proba(table.X)
    decision = model.decision_function(table.X)
    atol = 1e-5 if combination.is_single_precision else 1e-12
    assert posterior.shape == (len(table.y), n_classes)
    assert posterior.min() >= 0
    np.testing.assert_allclose(posterior.sum(axis=1), 1, atol=atol)
    logits = np.column_stack([np.zeros(len(table.y)), decision]) if n_classes == 2 else decision
    np.testing.assert_allclose(posterior, softmax(logits, axis=1), atol=atol)
    np.testing.assert_array_equal(model.predict(table.X), model.classes_[logits.argmax(axis=1)])
    np.testing.assert_allclose(np.exp(model.predict_log_proba(table.X)), posterior, atol=atol)


@pytest.mark.filterwarnings("ignore:Not converged")
@pytest.mark.parametrize("combination", COMBINATIONS, ids=repr)
def test_temperatures_decrease_and_the_chosen_one_is_on_the_path(combination):
    path = fitted(combination).path_
    assert np.diff(path.temperatures).max() < 0
    assert fitted(combination).temperature_ in path.temperatures
    assert path.validation_score.shape == (len(path), 2)
    assert np.isfinite(path.free_energy).all() and np.isfinite(path.validation_score).all()


@pytest.mark.parametrize("combination", [each for each in COMBINATIONS if each.family != "literal_distance"], ids=repr)
def test_every_temperature_converges(combination):
    assert fitted(combination).path_.converged.all()


def comparable(family):
    """Combinations that minimize the same function.

    For some families it depends on the storage: sparse X changes the penalty scaling "auto", and reaches a user-defined
    family without being standardized.
    """
    depends_on_storage = family in {"inner_product", "loudness"}
    return [
        each
        for each in COMBINATIONS
        if (each.family, each.schedule) == (family, "list")
        and not (depends_on_storage and each.backend.startswith("csr"))
    ]


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "literal_distance"])
def test_every_backend_solver_and_precision_gives_the_same_posterior(family):
    table = gaussian(n_samples=60)
    reference = fitted(Combination(family, "float64", "lbfgs", "list"))
    for combination in comparable(family):
        X = table_of(combination).X
        for temperature in SCHEDULES["list"]:
            expected, model = reference.at(temperature), fitted(combination).at(temperature)
            assert abs(model.posterior_scale_ - expected.posterior_scale_) < 0.02
            np.testing.assert_allclose(model.predict_proba(X), expected.predict_proba(table.X), atol=0.01)


# --- the highest temperature ------------------------------------------------------------------------


class OnlyTheHottest(ExponentialSchedule):
    """The highest temperature, which is computed from the data, and no other."""

    def temperatures(self, hot):
        yield hot()


HAVE_PRIORS = ["inner_product", "distance", "quadratic"]


@pytest.mark.parametrize(
    ("family", "make"),
    [
        (family, make)
        for family in [*HAVE_PRIORS, "radial"]
        for make in [gaussian, badly_scaled, two_classes, rare_class, separable, wide, text, wide_text]
        if not (family in DENSE_ONLY and make in (text, wide_text))
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_posteriors_at_the_automatic_highest_temperature_are_near_the_prior_or_uniform(family, make):
    table = make()
    hot = AnnealedClassifier(FAMILIES[family], schedule=OnlyTheHottest(), selection="last").fit(table.X, table.y)
    shares = np.bincount(table.y) / len(table.y)
    expected = shares if family in HAVE_PRIORS else np.full(table.n_classes, 1 / table.n_classes)
    spread = np.sqrt(np.mean((hot.predict_proba(table.X) - expected) ** 2, axis=0))
    assert spread.max() < 0.15


@pytest.mark.parametrize("anchor", [10.0, 1.0, 0.1])
def test_posteriors_of_annealed_lda_at_the_highest_temperature_are_near_the_prior_for_any_anchor(anchor):
    table = gaussian()
    hot = AnnealedLDA(anchor=anchor, schedule=OnlyTheHottest(), selection="last").fit(table.X, table.y)
    shares = np.bincount(table.y) / len(table.y)
    assert np.sqrt(np.mean((hot.predict_proba(table.X) - shares) ** 2, axis=0)).max() < 0.15


# --- the gradient at every temperature --------------------------------------------------------------


TABLES_AND_SCALINGS = [
    (make, penalty_scaling)
    for make in (gaussian, two_classes, rare_class, separable)
    for penalty_scaling in PENALTY_SCALINGS
]


@pytest.mark.parametrize(
    ("make", "penalty_scaling"),
    [*TABLES_AND_SCALINGS, (badly_scaled, "standardize"), (badly_scaled, "whiten")],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_gradient_of_equation_18_vanishes_at_every_temperature(make, penalty_scaling):
    """Computed by loops from the recorded parameters; its norm is taken in the units of the penalty."""
    table = make()
    tol = 1e-5
    path = (
        AnnealedLogisticRegression(l2_strength=0.3, penalty_scaling=penalty_scaling, cv=3, tol=tol)
        .fit(table.X, table.y)
        .path_
    )
    norms = gradient_norms(table, path, 0.3, penalty_scaling)
    n_parameters = table.n_classes * (table.X.shape[1] + 1)
    assert norms.max() <= tol * np.sqrt(n_parameters)
    assert len(norms) > 5


@pytest.mark.parametrize("solver", SOLVERS)
def test_gradient_of_equation_18_vanishes_for_every_solver(solver):
    table = gaussian()
    objective = InnerProduct(l2_strength=0.3, penalty_scaling="standardize")
    model = AnnealedClassifier(
        objective, schedule=[3.0, 1.0, 0.3, 0.1, 0.01], solver=solver, cv=3, tol=1e-5, max_iter=5000
    )
    norms = gradient_norms(table, model.fit(table.X, table.y).path_, 0.3, "standardize")
    assert norms.max() <= 1e-5 * np.sqrt(15)


@pytest.mark.parametrize("make", [text, wide_text, wide], ids=lambda make: make.__name__)
def test_gradient_of_equation_18_vanishes_for_sparse_x_and_for_many_features(make):
    table = make()
    path = AnnealedLogisticRegression(penalty_scaling="none", cv=3, tol=1e-5).fit(table.X, table.y).path_
    X = dense(table.X)
    norms = gradient_norms(replace(table, X=X), path, 1.0, "none")
    assert norms.max() <= 1e-5 * np.sqrt(table.n_classes * (X.shape[1] + 1))


def gradient_norms(table, path, l2_strength, penalty_scaling):
    matrix = oracles.penalty_matrix(table.X, penalty_scaling)
    center = table.X.mean(axis=0)
    norms = []
    for index, temperature in enumerate(path.temperatures):
        lambda_, intercept = temperature * path.coef[index], temperature * path.intercept[index]
        gradient = oracles.penalized_gradient(table.X, table.y, lambda_, intercept, temperature, l2_strength, matrix)
        norms.append(oracles.gradient_norm(*gradient, center, matrix))
    return np.array(norms)


def test_gradient_of_equation_18_vanishes_with_sample_weights():
    table = gaussian()
    weight = np.random.default_rng(0).uniform(0.1, 3, size=len(table.y))
    model = AnnealedLogisticRegression(schedule=[1.0, 0.1], selection="last", tol=1e-6)
    path = model.fit(table.X, table.y, sample_weight=weight).path_
    share = weight / weight.sum()
    matrix = oracles.penalty_matrix(table.X, "standardize", share)
    for index, temperature in enumerate(path.temperatures):
        lambda_, intercept = temperature * path.coef[index], temperature * path.intercept[index]
        gradient = oracles.penalized_gradient(table.X, table.y, lambda_, intercept, temperature, 1.0, matrix, share)
        assert oracles.gradient_norm(*gradient, share @ table.X, matrix) <= 1e-6 * np.sqrt(15)


def test_gradient_of_equation_12_with_an_anchor_vanishes():
    """It is 2/N sum_i (p_ij - y_ij) S^-1 (x_i - mean_j) + anchor prior_j S^-1 (mean_j - class mean_j)."""
    table = gaussian()
    path = AnnealedLDA(anchor=0.8, shrinkage=0.0, cv=3, tol=1e-6).fit(table.X, table.y).path_
    covariance = oracles.pooled_covariance(table.X, table.y)
    prior = np.bincount(table.y) / len(table.y)
    root = np.linalg.cholesky(covariance)
    for means, temperature in zip(path.means, path.temperatures, strict=True):
        scores = oracles.distance_scores(table.X, means, covariance)
        p = oracles.posterior(scores + temperature * np.log(prior), temperature)
        residual = (p - np.eye(3)[table.y]) / len(table.y)
        gradient = 2 * (residual.T @ table.X - residual.sum(axis=0)[:, None] * means)
        gradient += 0.8 * prior[:, None] * (means - oracles.class_means(table.X, table.y))
        assert np.abs(np.linalg.solve(root, gradient.T)).max() <= 2e-6 * np.sqrt(4)


# --- logistic regression ----------------------------------------------------------------------------


def logistic_regression(table, C):
    """The minimum found by scikit-learn, as exact as rounding permits."""
    return LogisticRegression(C=C, solver="newton-cholesky", tol=1e-12, max_iter=1000).fit(table.X, table.y)


def objective_of(table, coef, intercept, strength):
    return oracles.penalized_free_energy(table.X, table.y, coef, intercept, 1.0, strength, np.eye(table.X.shape[1]))


@pytest.mark.parametrize("make", [gaussian, rare_class, separable], ids=lambda make: make.__name__)
@pytest.mark.parametrize("penalty_scaling", PENALTY_SCALINGS)
def test_every_temperature_is_a_logistic_regression(make, penalty_scaling):
    """With C = 1 / (l2_strength T N) and the features in the units of the penalty."""
    table = standardized(make())
    root = np.linalg.cholesky(oracles.penalty_matrix(table.X, penalty_scaling))
    scaled = replace(table, X=np.linalg.solve(root, table.X.T).T)
    ladder = np.geomspace(30, 1e-4, 12)
    model = AnnealedLogisticRegression(
        l2_strength=0.4, schedule=ladder, penalty_scaling=penalty_scaling, selection="last", tol=1e-8
    )
    path = model.fit(table.X, table.y).path_
    for index, temperature in enumerate(ladder):
        peer = logistic_regression(scaled, 1 / (0.4 * temperature * len(table.y)))
        expected = peer.coef_ - peer.coef_.mean(axis=0)
        intercept = peer.intercept_ - peer.intercept_.mean()
        coef = path.coef[index] @ root
        np.testing.assert_allclose(coef, expected, atol=1e-5 * max(1, np.abs(expected).max()))
        np.testing.assert_allclose(path.intercept[index], intercept, atol=1e-5 * max(1, np.abs(intercept).max()))
        reached, reference = (
            objective_of(scaled, *point, 0.4 * temperature)
            for point in [(coef, path.intercept[index]), (expected, intercept)]
        )
        assert abs(reached - reference) <= 1e-8 * reference
        np.testing.assert_allclose(path.free_energy[index], temperature * reference, rtol=1e-8)


def test_every_temperature_is_a_logistic_regression_for_two_classes():
    """With C = 2 / (l2_strength T N), because both rows of lambda are penalized, and scikit-learn's single coefficient
    vector is their difference.
    """
    table = standardized(two_classes())
    ladder = np.geomspace(30, 1e-4, 12)
    model = AnnealedLogisticRegression(l2_strength=0.4, schedule=ladder, selection="last", tol=1e-8).fit(
        table.X, table.y
    )
    for temperature in ladder:
        peer = logistic_regression(table, 2 / (0.4 * temperature * len(table.y)))
        ours = model.at(temperature)
        np.testing.assert_allclose(ours.coef_, peer.coef_, atol=1e-5)
        np.testing.assert_allclose(ours.intercept_, peer.intercept_, atol=1e-5)
        reached, reference = (
            objective_of(table, *two_rows(fitted.coef_, fitted.intercept_), 0.4 * temperature)
            for fitted in (ours, peer)
        )
        assert abs(reached - reference) <= 1e-8 * reference


def two_rows(coef, intercept):
    return np.stack([-coef[0], coef[0]]) / 2, np.array([-intercept[0], intercept[0]]) / 2


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csr_array])
def test_every_temperature_is_a_logistic_regression_for_sparse_x(kind):
    table = text(kind)
    with_dense_x = replace(table, X=table.X.toarray())
    ladder = np.geomspace(10, 1e-3, 8)
    path = AnnealedLogisticRegression(schedule=ladder, selection="last", tol=1e-8).fit(table.X, table.y).path_
    for index, temperature in enumerate(ladder):
        peer = logistic_regression(with_dense_x, 1 / (temperature * len(table.y)))
        np.testing.assert_allclose(path.coef[index], peer.coef_ - peer.coef_.mean(axis=0), atol=1e-5)


# --- what results depend on -------------------------------------------------------------------------


@pytest.mark.parametrize("strength", [1e-3, 0.1, 50.0])
def test_results_depend_on_strength_times_temperature_only(strength):
    table = gaussian()
    ladder = np.array([3.0, 0.5, 0.05, 0.01])
    settings = {"cv": 3, "tol": 1e-8}
    plain = AnnealedLogisticRegression(schedule=ladder, **settings).fit(table.X, table.y)
    scaled = AnnealedLogisticRegression(l2_strength=strength, schedule=ladder / strength, **settings).fit(
        table.X, table.y
    )
    np.testing.assert_allclose(scaled.path_.coef, plain.path_.coef, atol=1e-5)
    np.testing.assert_allclose(scaled.path_.validation_score, plain.path_.validation_score, atol=1e-6)
    assert scaled.path_.best_index == plain.path_.best_index


def test_temperatures_of_the_automatic_schedule_are_inverse_to_the_strength():
    table = gaussian()
    plain, weak = (
        AnnealedLogisticRegression(l2_strength=strength, cv=3).fit(table.X, table.y) for strength in (1.0, 0.01)
    )
    np.testing.assert_allclose(0.01 * weak.path_.temperatures, plain.path_.temperatures, rtol=1e-9)
    np.testing.assert_allclose(weak.predict_proba(table.X), plain.predict_proba(table.X), atol=1e-3)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("make", [gaussian, badly_scaled, separable], ids=lambda make: make.__name__)
def test_a_path_of_warm_starts_equals_cold_starts(make, solver):
    table = make()
    ladder = np.geomspace(10, 0.01, 8)
    settings = {"solver": solver, "selection": "last", "tol": 1e-7, "max_iter": 20000}
    warm = AnnealedClassifier(InnerProduct(), schedule=ladder, **settings).fit(table.X, table.y)
    for temperature in ladder:
        cold = AnnealedClassifier(InnerProduct(), schedule=[temperature], **settings).fit(table.X, table.y)
        difference = warm.at(temperature).decision_function(table.X) - cold.decision_function(table.X)
        assert np.abs(difference).max() < 1e-4


@pytest.mark.parametrize("make", [gaussian, two_classes, separable], ids=lambda make: make.__name__)
@pytest.mark.parametrize(
    ("estimator", "steep"),
    [
        (AnnealedLogisticRegression, [1000.0, 1.0, 1e-3, 1e-6]),
        (AnnealedLogisticRegression, [1e-6]),
        (AnnealedLDA, [1000.0, 1.0, 1e-2]),
    ],
)
def test_steep_and_gentle_schedules_end_at_the_same_posterior(estimator, steep, make):
    table = make()
    gentle = np.geomspace(steep[0], steep[-1], 31) if len(steep) > 1 else np.geomspace(1000, steep[0], 31)
    models = [estimator(schedule=schedule, selection="last", tol=1e-6) for schedule in (steep, gentle)]
    first, second = (model.fit(table.X, table.y).predict_proba(table.X) for model in models)
    np.testing.assert_allclose(first, second, atol=0.01)


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "literal_distance"])
def test_duplicated_samples_count_as_weights(family):
    """With folds that keep the copies of a sample together."""
    table = gaussian()
    counts = 1 + (np.arange(len(table.y)) % 3 == 0)
    rows = np.repeat(np.arange(len(table.y)), counts)
    weighted, doubled = (
        AnnealedClassifier(FAMILIES[family], schedule=[20.0, 5.0], cv=halves(numbers), tol=1e-8, max_iter=3000)
        for numbers in (np.arange(len(table.y)), rows)
    )
    weighted.fit(table.X, table.y, sample_weight=counts)
    doubled.fit(table.X[rows], table.y[rows])
    np.testing.assert_allclose(weighted.path_.validation_score, doubled.path_.validation_score, atol=1e-5)
    np.testing.assert_allclose(weighted.predict_proba(table.X), doubled.predict_proba(table.X), atol=1e-5)


def halves(numbers):
    """Two folds: the samples with even numbers and those with odd numbers."""
    is_even = numbers % 2 == 0
    return [(np.flatnonzero(is_even), np.flatnonzero(~is_even)), (np.flatnonzero(~is_even), np.flatnonzero(is_even))]


@pytest.mark.filterwarnings("ignore:Not converged")
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("selection", ["cv", "holdout"])
def test_equal_seeds_give_equal_bits(family, selection):
    table = gaussian(n_samples=60)
    model = AnnealedClassifier(
        FAMILIES[family], schedule=[20.0, 5.0, 2.0], selection=selection, random_state=3, max_iter=200
    )
    first, second = (clone(model).fit(table.X, table.y) for _ in range(2))
    assert first.path_ == second.path_
    np.testing.assert_array_equal(first.predict_proba(table.X), second.predict_proba(table.X))


def test_random_starts_depend_on_the_seed_only():
    table = gaussian()
    models = [
        AnnealedLDA(init="random", anchor=0, inner_iterations=1, schedule=[5.0], selection="last", random_state=seed)
        for seed in (0, 0, 1)
    ]
    first, again, other = (model.fit(table.X, table.y).path_ for model in models)
    assert first == again
    assert first != other


def test_the_true_posterior_is_approached_with_many_samples():
    """That of the Gaussian classes that the samples are drawn from, with units over sixteen orders of magnitude."""
    table = gaussian(n_samples=4000)
    units = np.logspace(-8, 8, 4)
    truth = softmax(table.X @ table.coef.T + table.intercept, axis=1)
    for estimator in (AnnealedLogisticRegression(), AnnealedLDA()):
        posterior = estimator.fit(table.X * units, table.y).predict_proba(table.X * units)
        assert np.sqrt(np.mean((posterior - truth) ** 2, axis=0)).max() < 0.03
