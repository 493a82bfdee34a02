"""AnnealedLogisticRegression for its users: raw features, dense and sparse, C, and the oracle LogisticRegression."""

import tracemalloc
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from small_problems import sparse_rows, text, wide

from annealed import AnnealedClassifier, AnnealedLogisticRegression, CGrid
from annealed.problems import Quadratic

IRIS = load_iris(return_X_y=True)
WINE = load_wine(return_X_y=True)
CANCER = load_breast_cancer(return_X_y=True)


def shuffled_exponents(n_columns):
    return 10.0 ** np.random.RandomState(0).choice([-8, 8], n_columns)


@pytest.mark.parametrize("load", [load_iris, load_wine, load_breast_cancer, load_digits])
def test_raw_features_are_fitted_without_warning(load):
    X, y = load(return_X_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = AnnealedLogisticRegression().fit(X, y)
    assert model.score(X, y) > 0.96
    assert model.path_.converged.all()
    assert model.path_.gradient_norm.max() <= model.tol


@pytest.mark.parametrize("data", [WINE, CANCER], ids=["wine", "cancer"])
def test_units_of_features_do_not_matter(data):
    X, y = data
    units = shuffled_exponents(X.shape[1])
    plain, scaled = AnnealedLogisticRegression().fit(X, y), AnnealedLogisticRegression().fit(X * units, y)
    assert scaled.path_.converged.all()
    np.testing.assert_allclose(scaled.predict_proba(X * units), plain.predict_proba(X), atol=1e-9)


@pytest.mark.parametrize("penalty_scaling", ["none", "standardize", "half-whiten", "whiten"])
def test_every_penalty_scaling_converges_on_badly_scaled_features(penalty_scaling):
    X, y = WINE
    model = AnnealedLogisticRegression(penalty_scaling=penalty_scaling).fit(X * shuffled_exponents(X.shape[1]), y)
    assert model.path_.converged.all()
    assert np.isfinite(model.coef_).all()


def test_auto_standardizes_features_in_different_units():
    """For sparse X this is the alternative, which validation chooses here; dense X starts with it."""
    X, y = WINE
    fit = lambda X, penalty_scaling: AnnealedLogisticRegression(penalty_scaling=penalty_scaling).fit(X, y).coef_  # noqa: E731
    np.testing.assert_array_equal(fit(X, "auto"), fit(X, "standardize"))
    sparse_X = sparse.csr_array(X)
    np.testing.assert_array_equal(fit(sparse_X, "auto"), fit(sparse_X, "standardize"))


def fold_scores(model, n_rows):
    """Scores by which scalings are compared: those at the best temperature, less the penalty of the posterior scale."""
    scores = model.path_.validation_score - 2 * np.log(model.path_.posterior_scale[:, None]) ** 2 / n_rows
    return scores[np.argmax(scores.mean(axis=1))]


def expected_scaling(alone, n_rows):
    """The best of the first scaling and those whose folds are better by more than a standard error."""
    scores = {penalty_scaling: fold_scores(model, n_rows) for penalty_scaling, model in alone.items()}
    first, *others = scores
    gains = {penalty_scaling: scores[penalty_scaling] - scores[first] for penalty_scaling in others}
    able = [
        penalty_scaling
        for penalty_scaling in others
        if gains[penalty_scaling].mean() > max(1e-4, gains[penalty_scaling].std(ddof=1) / np.sqrt(5))
    ]
    return max([first, *able], key=lambda penalty_scaling: scores[penalty_scaling].mean())


def correlated_noise():
    """Classes that differ along the directions of least noise, which a penalty on whitened features finds."""
    generator = np.random.default_rng(0)
    y = np.repeat([0, 1], 60)
    noise = generator.normal(size=(120, 30)) * np.geomspace(30, 0.1, 30)
    noise[:, -5:] += 0.15 * y[:, None]
    return noise @ np.linalg.qr(generator.normal(size=(30, 30)))[0], y


def test_directions_of_small_variance_are_found_although_scores_do_not_improve_for_long():
    """The penalty suppresses them down to temperatures decades below those at which nothing is learned."""
    X, y = correlated_noise()
    path = AnnealedLogisticRegression(penalty_scaling="standardize").fit(X, y).path_
    scores = path.validation_score.mean(axis=1)
    assert scores[path.temperatures > 1e-2 * path.temperatures[0]].max() < -0.69
    assert scores[path.best_index] > -0.6
    default = AnnealedLogisticRegression().fit(X, y).path_
    assert default.validation_score[default.best_index].mean() > -0.6


def hidden_signal(n_rows, n_columns, spread):
    """Three classes that differ along one direction, of standard deviation `spread`; that of the others is one."""
    generator = np.random.default_rng(0)
    y = generator.integers(3, size=n_rows)
    X = generator.normal(size=(n_rows, n_columns))
    X[:, -1] = spread * (X[:, -1] + 2.5 * (y - 1))
    return X @ np.linalg.qr(generator.normal(size=(n_columns, n_columns)))[0], y


def test_the_path_continues_while_a_score_test_finds_signal():
    X, y = hidden_signal(1000, 30, 1e-4)
    path = AnnealedLogisticRegression(penalty_scaling="standardize").fit(X, y).path_
    scores = path.validation_score.mean(axis=1)
    assert scores[path.temperatures > 1e-5].max() < -1.08
    assert scores[path.best_index] > -0.5


@pytest.mark.parametrize("n_columns", [5, 200], ids=["few", "many"])
def test_the_path_ends_soon_without_signal(n_columns):
    """Random labels, and directions that the penalty suppresses down to temperatures decades below."""
    X, y = hidden_signal(600, n_columns, 1e-4)
    path = (
        AnnealedLogisticRegression(penalty_scaling="standardize").fit(X, np.random.default_rng(1).permutation(y)).path_
    )
    assert path.temperatures[-1] > 1e-3 * path.temperatures[0]
    assert path.best_index < 6


def test_whitening_is_chosen_if_classes_differ_along_directions_of_little_noise():
    assert AnnealedLogisticRegression(penalty_scaling="cv").fit(*correlated_noise()).penalty_scaling_ == "whiten"


@pytest.mark.parametrize(
    ("make", "penalty_scalings"),
    [
        (lambda: IRIS, ("standardize", "half-whiten", "whiten")),
        (lambda: WINE, ("standardize", "half-whiten", "whiten")),
        (lambda: (WINE[0][::6], WINE[1][::6]), ("standardize", "half-whiten", "whiten")),
        (lambda: (wide().X, wide().y), ("standardize", "half-whiten", "whiten")),
        (correlated_noise, ("standardize", "half-whiten", "whiten")),
        (lambda: (text().X, text().y), ("none", "standardize")),
    ],
    ids=["iris", "wine", "few samples", "more features than samples", "correlated noise", "sparse"],
)
def test_validated_scaling_is_the_best_of_those_tried(make, penalty_scalings):
    """And its path is the same as with that scaling alone."""
    X, y = make()
    alone = {
        penalty_scaling: AnnealedLogisticRegression(penalty_scaling=penalty_scaling).fit(X, y)
        for penalty_scaling in penalty_scalings
    }
    best = expected_scaling(alone, len(y))
    model = AnnealedLogisticRegression(penalty_scaling="cv").fit(X, y)
    assert model.penalty_scaling_ == best
    assert model.path_.converged.all() and model.path_.gradient_norm.max() <= model.tol
    np.testing.assert_allclose(model.path_.temperatures, alone[best].path_.temperatures, rtol=1e-6)
    np.testing.assert_allclose(model.predict_proba(X), alone[best].predict_proba(X), atol=1e-5)


@pytest.mark.parametrize("chosen_by", [{"selection": "last"}, {"temperature": 0.1}], ids=str)
def test_validated_scaling_without_validation_is_the_automatic_one(chosen_by):
    X, y = WINE
    settings = dict(schedule=[1.0, 0.1], **chosen_by)
    model = AnnealedLogisticRegression(penalty_scaling="cv", **settings).fit(X, y)
    assert model.penalty_scaling_ == "standardize"
    np.testing.assert_array_equal(model.coef_, AnnealedLogisticRegression(**settings).fit(X, y).coef_)


@pytest.mark.parametrize("settings", [{"selection": "holdout"}, {"selection": "loo"}, {"scoring": "accuracy"}])
def test_every_selection_can_choose_the_scaling(settings):
    X, y = IRIS
    model = AnnealedLogisticRegression(penalty_scaling="cv", **settings).fit(X, y)
    assert model.penalty_scaling_ in ("standardize", "half-whiten", "whiten")
    automatic = AnnealedLogisticRegression(**settings).fit(X, y)
    assert model.path_.validation_score.mean(axis=1).max() >= automatic.path_.validation_score.mean(axis=1).max() - 1e-3


def test_weights_choose_the_same_scaling_as_repeated_samples():
    X, y = WINE
    weight = 1.0 + (np.arange(len(y)) % 2)
    fold_of = np.arange(len(y)) % 3
    splits = [(np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)) for fold in range(3)]
    rows = np.repeat(np.arange(len(y)), weight.astype(int))
    again = [(np.flatnonzero(np.isin(rows, train)), np.flatnonzero(np.isin(rows, test))) for train, test in splits]
    weighted = AnnealedLogisticRegression(penalty_scaling="cv", cv=splits).fit(X, y, weight)
    repeated = AnnealedLogisticRegression(penalty_scaling="cv", cv=again).fit(X[rows], y[rows])
    assert weighted.penalty_scaling_ == repeated.penalty_scaling_
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-4)


@pytest.mark.parametrize("temperature", [3.0, 0.1, 1e-3])
def test_two_classes_equal_logistic_regression_with_twice_its_strength(temperature):
    X, y = CANCER
    standardized = StandardScaler().fit_transform(X)
    oracle = LogisticRegression(C=2 / (temperature * len(y)), tol=1e-12, max_iter=10_000, solver="newton-cg")
    oracle.fit(standardized, y)
    model = AnnealedLogisticRegression(temperature=temperature, tol=1e-8).fit(X, y)
    assert model.coef_.shape == (1, X.shape[1])
    np.testing.assert_allclose(model.coef_ * X.std(axis=0), oracle.coef_, atol=1e-5)
    np.testing.assert_allclose(model.predict_proba(X), oracle.predict_proba(standardized), atol=1e-6)


# --- C ----------------------------------------------------------------------------------------------


def logistic_regression(X, y, C, weight=None):
    oracle = LogisticRegression(C=C, tol=1e-14, max_iter=10_000, solver="newton-cholesky")
    return oracle.fit(X, y, weight)


def balanced(y, weight):
    """The weights of `class_weight="balanced"` as scikit-learn computes them, times those of the samples."""
    counts = np.bincount(y, weight)
    return weight * (weight.sum() / (len(counts) * counts))[y]


@pytest.mark.parametrize("class_weight", [None, "balanced"])
@pytest.mark.parametrize("is_weighted", [False, True], ids=["equal", "weighted"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_replaces_logistic_regression_cv(n_classes, is_weighted, class_weight):
    """The whole path of `LogisticRegressionCV(Cs=Cs, cv=splits)`: the coefficients of every C, whatever the weights."""
    X, y = WINE[0][WINE[1] < n_classes][:-20], WINE[1][WINE[1] < n_classes][:-20]
    X = (X - X.mean(axis=0)) / (3 * X.std(axis=0))
    weight = 0.1 * np.random.default_rng(0).uniform(0.1, 3.0, len(y)) if is_weighted else np.ones(len(y))
    splits = list(StratifiedKFold(4, shuffle=True, random_state=0).split(X, y))
    Cs = np.logspace(-3, 2, 6)
    model = AnnealedLogisticRegression(
        schedule=CGrid(Cs), cv=splits, penalty_scaling="none", calibrate=False, class_weight=class_weight, tol=1e-10
    ).fit(X, y, weight if is_weighted else None)
    np.testing.assert_allclose(model.path_.C, Cs, rtol=1e-12)
    assert model.path_.validation_score.shape == (6, 4)
    for index, C in enumerate(Cs):
        oracle = logistic_regression(X, y, C, balanced(y, weight) if class_weight else weight)
        coef = model.path_.coef[index]
        coef = coef[1:] - coef[:1] if n_classes == 2 else coef
        np.testing.assert_allclose(coef, oracle.coef_, atol=1e-6)
        at_C = model.at(C=C)
        assert at_C.C_ == pytest.approx(C)
        np.testing.assert_allclose(at_C.coef_, oracle.coef_, atol=1e-6)
        np.testing.assert_allclose(at_C.predict_proba(X), oracle.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("data", [CANCER, WINE], ids=["two classes", "three classes"])
@pytest.mark.parametrize("l2_strength", [1.0, 0.3])
def test_C_is_scikit_learns_on_the_scaled_features(data, l2_strength):
    X, y = data
    model = AnnealedLogisticRegression(
        l2_strength=l2_strength, penalty_scaling="standardize", calibrate=False, tol=1e-8
    )
    model.fit(X, y)
    oracle = logistic_regression(StandardScaler().fit_transform(X), y, model.C_)
    np.testing.assert_allclose(model.coef_ * X.std(axis=0), oracle.coef_, atol=1e-4)
    n_classes = len(model.classes_)
    assert model.C_ == pytest.approx((2 if n_classes == 2 else 1) / (l2_strength * model.temperature_ * len(y)))
    assert model.path_.C[model.path_.best_index] == model.C_


def test_C_of_sparse_samples_of_which_many_have_no_weight():
    """Samples without weight are left out before the fit; the others have the same sum of weights."""
    X, y = sparse.csr_array(WINE[0] / WINE[0].std(axis=0)), WINE[1]
    weight = (np.arange(len(y)) % 3 == 0) * 0.2
    model = AnnealedLogisticRegression(schedule=CGrid([0.1, 1.0]), penalty_scaling="none", calibrate=False, tol=1e-9)
    model.fit(X, y, weight)
    seen = weight > 0
    oracle = logistic_regression(X[seen], y[seen], 1.0, weight[seen])
    np.testing.assert_allclose(model.at(C=1.0).coef_, oracle.coef_, atol=1e-5)


def test_C_of_a_given_temperature_that_ends_a_grid():
    model = AnnealedLogisticRegression(schedule=CGrid(5), temperature=0.01).fit(*IRIS)
    assert model.C_ == pytest.approx(1 / (0.01 * 150))
    np.testing.assert_allclose(model.path_.C, [1e-4, 1e-2, model.C_])


def test_a_quadratic_classifier_has_C_too():
    model = AnnealedClassifier(Quadratic(), schedule=CGrid([0.01, 0.1])).fit(*IRIS)
    assert model.C_ in model.path_.C
    np.testing.assert_allclose(model.path_.C, [0.01, 0.1])


def test_a_new_fit_counts_its_own_samples():
    model = AnnealedLogisticRegression(temperature=0.1)
    of_all = model.fit(*IRIS).C_
    of_half = model.fit(IRIS[0][::2], IRIS[1][::2]).C_
    assert of_half == pytest.approx(2 * of_all)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "Exactly one of `temperature` and `C` must be given. Got neither."),
        ({"temperature": 1.0, "C": 2.0}, "Exactly one of .* Got temperature=1.0 and C=2.0."),
        ({"C": -1.0}, "C must be a positive number. Got -1.0."),
        ({"C": 5.0}, "C must lie on the path, between 0.1 and 1. Got 5.0. Refit with a schedule that reaches it."),
    ],
)
def test_at_explains_what_is_wrong_with_a_C(given, message):
    model = AnnealedLogisticRegression(schedule=CGrid([0.1, 1.0])).fit(*IRIS)
    with pytest.raises(ValueError, match=message):
        model.at(**given)


# --- posterior --------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [CANCER, WINE], ids=["two classes", "three classes"])
@pytest.mark.parametrize("calibrate", [True, False])
def test_softmax_of_the_decision_function_is_the_posterior(data, calibrate):
    X, y = data
    model = AnnealedLogisticRegression(calibrate=calibrate).fit(X, y)
    scores = model.decision_function(X)
    if scores.ndim == 1:
        scores = np.column_stack([np.zeros(len(X)), scores])
    softmax = np.exp(scores - scores.max(axis=1, keepdims=True))
    softmax /= softmax.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict_proba(X), softmax, atol=1e-12)
    np.testing.assert_allclose(model.predict_log_proba(X), np.log(softmax), atol=1e-9)
    linear = X @ model.coef_.T + model.intercept_
    np.testing.assert_allclose(linear.squeeze(), model.decision_function(X), atol=1e-8)


def test_without_calibration_there_is_no_scale_and_path_coefficients_never_have_it():
    X, y = WINE
    paper = AnnealedLogisticRegression(calibrate=False).fit(X, y)
    assert paper.posterior_scale_ == 1.0
    model = AnnealedLogisticRegression().fit(X, y)
    assert model.posterior_scale_ != 1.0
    chosen = model.path_.coef[model.path_.best_index]
    np.testing.assert_allclose(model.coef_, model.posterior_scale_ * chosen)


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csr_array, sparse.csc_array, sparse.coo_matrix])
def test_sparse_equals_dense(kind):
    X, y = IRIS
    dense = AnnealedLogisticRegression(penalty_scaling="standardize").fit(X, y)
    model = AnnealedLogisticRegression(penalty_scaling="standardize").fit(kind(X), y)
    np.testing.assert_allclose(model.predict_proba(kind(X)), dense.predict_proba(X), atol=1e-9)


def test_wide_sparse_equals_dense():
    generator = np.random.RandomState(0)
    X = sparse_rows(120, 1500, density=0.02)
    X.data[:] = 1 + generator.rand(X.nnz)
    y = generator.randint(3, size=120)
    temperatures = np.geomspace(0.05, 1e-4, 6)
    settings = dict(penalty_scaling="none", schedule=temperatures, tol=1e-7, calibrate=False)
    wide = AnnealedLogisticRegression(**settings).fit(X, y)
    dense = AnnealedLogisticRegression(**settings).fit(X.toarray(), y)
    assert wide.path_.converged.all()
    np.testing.assert_allclose(wide.path_.free_energy, dense.path_.free_energy, rtol=1e-8)
    np.testing.assert_allclose(wide.path_.coef, dense.path_.coef, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_is_kept(dtype):
    X, y = IRIS
    model = AnnealedLogisticRegression().fit(X.astype(dtype), y)
    for array in (
        model.coef_,
        model.intercept_,
        model.at(model.temperature_).coef_,
        model.predict_proba(X.astype(dtype)),
    ):
        assert array.dtype == dtype
    assert model.path_.coef.dtype == np.float64  # so that certificates hold for the recorded parameters
    reference = AnnealedLogisticRegression().fit(X, y).predict_proba(X)
    np.testing.assert_allclose(model.predict_proba(X.astype(dtype)), reference, atol=1e-3)


@pytest.mark.parametrize(
    "names", [["setosa", "versicolor", "virginica"], [True, False, False], [7, -1, 3], [1.0, 2.0, 3.0]]
)
def test_labels_of_any_type(names):
    X, y = IRIS
    labels = np.array(names)[y]
    model = AnnealedLogisticRegression().fit(X, labels)
    assert model.classes_.dtype == labels.dtype
    assert np.mean(model.predict(X) == labels) > 0.95


def test_without_intercept_the_posterior_at_the_origin_is_uniform():
    X, y = WINE
    model = AnnealedLogisticRegression(fit_intercept=False).fit(X, y)
    assert np.all(model.intercept_ == 0)
    np.testing.assert_allclose(model.predict_proba(np.zeros((1, X.shape[1]))), 1 / 3)


def test_more_features_than_samples():
    generator = np.random.RandomState(0)
    y = np.repeat([0, 1, 2], 10)
    X = generator.standard_normal((30, 400)) + 2 * np.eye(3)[y] @ generator.standard_normal((3, 400))
    model = AnnealedLogisticRegression().fit(X, y)
    assert model.coef_.shape == (3, 400)
    assert model.score(X, y) == 1.0


def test_degenerate_features_and_separable_classes_give_finite_coefficients():
    X, y = IRIS
    X = np.column_stack([X, X, np.ones(len(X)), np.zeros(len(X))])[y != 1]
    model = AnnealedLogisticRegression().fit(X, y[y != 1])
    assert np.isfinite(model.coef_).all()
    np.testing.assert_allclose(model.coef_[:, -2:], 0, atol=1e-12)
    np.testing.assert_allclose(model.coef_[:, :4], model.coef_[:, 4:8], rtol=1e-6)


def test_works_in_pipelines_and_with_calibrated_classifier_cv():
    X, y = WINE
    model = make_pipeline(StandardScaler(), AnnealedLogisticRegression())
    assert CalibratedClassifierCV(model, method="sigmoid", cv=3).fit(X, y).score(X, y) > 0.97


def test_memory_mapped_samples_are_not_copied_into_memory(tmp_path):
    generator = np.random.default_rng(0)
    X = np.lib.format.open_memmap(tmp_path / "rows.npy", mode="w+", dtype=np.float64, shape=(100_000, 60))
    X[:] = generator.standard_normal(X.shape)
    y = (X[:, 0] > generator.standard_normal(len(X))).astype(int)
    tracemalloc.start()
    AnnealedLogisticRegression(schedule=[1.0]).fit(X, y)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 0.7 * X.nbytes


@pytest.mark.parametrize("n_columns", [5, 1200])
@pytest.mark.parametrize(
    ("kind", "value"), [(np.asarray, 0.0), (np.asarray, 1.0), (np.asarray, 1e6 + 0.1), (sparse.csr_array, 0.0)]
)
def test_constant_features_give_the_prior(kind, value, n_columns):
    """Many samples with many features are solved in combinations of samples, of which there are none here."""
    X, y = kind(np.full((300, n_columns), value)), np.arange(300) % 3 // 2
    model = AnnealedLogisticRegression().fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X[:2]), [[2 / 3, 1 / 3]] * 2, atol=0.01)


@pytest.mark.parametrize("penalty_scaling", ["standardize", "half-whiten", "whiten", "cv"])
def test_zeros_give_the_prior_with_any_penalty_scaling(penalty_scaling):
    X, y = np.zeros((60, 3)), np.arange(60) % 3 // 2
    model = AnnealedLogisticRegression(penalty_scaling=penalty_scaling).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X[:1]), [[2 / 3, 1 / 3]], atol=0.02)
