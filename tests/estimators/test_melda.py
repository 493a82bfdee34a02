"""MELDA: its coordinates against their definitions, its posterior against log-linear and Gaussian references."""

from itertools import pairwise

import numpy as np
import oracles
import pytest
from scipy import linalg, sparse
from scipy.special import log_softmax
from scipy.stats import multivariate_normal
from sklearn.exceptions import NotFittedError
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from small_problems import Table, badly_scaled, gaussian, text, two_classes, uneven_weights

from annealed import MELDA, AnnealedLogisticRegression
from annealed.datasets import make_gaussian_classes

COORDINATES = pytest.mark.parametrize("coordinates", ["whitened", "paper", "orthonormal"])
ORDERED = pytest.mark.parametrize("coordinates", ["whitened", "orthonormal"])
QUICK = {"temperature": 0.05}  # the path down to one temperature, no folds


def classes(n_classes, n_features=6):
    drawn = make_gaussian_classes(40 * n_classes, n_features, n_classes, separation=2.0, condition=30, random_state=0)
    return Table(f"{n_classes}_classes", drawn.X, drawn.y, drawn.coef, drawn.intercept)


def far_away():
    plain = gaussian()
    return Table("far_away", plain.X + 1e3, plain.y)


FIVE = classes(5)


def fit(table, weight=None, **settings):
    return MELDA(**(QUICK | settings)).fit(table.X, table.y, weight)


def between_covariance(rows, labels, weight):
    """Covariance of the class means, each weighted by the weight of its class."""
    return oracles.moments(oracles.class_means(rows, labels, weight)[labels], weight)[1]


def projector(columns):
    return columns @ np.linalg.pinv(columns)


def gaussian_posterior(gaussian_model, rows):
    """Bayes' rule with scipy's densities, in logarithms."""
    log_prior, means, covariance = gaussian_model
    joint = [
        log_share + multivariate_normal(mean, covariance).logpdf(rows).reshape(len(rows))
        for log_share, mean in zip(log_prior, means, strict=True)
    ]
    return np.exp(log_softmax(np.column_stack(joint), axis=1))


# --- shapes -----------------------------------------------------------------------------------------


@COORDINATES
@pytest.mark.parametrize("n_classes", [2, 3, 4, 5])
def test_one_dimension_fewer_than_classes(n_classes, coordinates):
    table = classes(n_classes)
    model = fit(table, coordinates=coordinates)
    assert model.transform(table.X).shape == (len(table.y), n_classes - 1)
    assert model.scalings_.shape == (6, n_classes - 1)
    assert model.predict_proba(table.X).shape == (len(table.y), n_classes)


@ORDERED
def test_more_classes_than_features_give_as_many_dimensions_as_features(coordinates):
    table = classes(5, n_features=2)
    model = fit(table, coordinates=coordinates)
    assert model.transform(table.X).shape == (len(table.y), 2)
    assert model.score(table.X, table.y) > 1 / 5


@ORDERED
@pytest.mark.parametrize("n_components", [1, 2, 3, 4])
def test_fewer_components_are_the_leading_ones(n_components, coordinates):
    whole = fit(FIVE, coordinates=coordinates)
    model = fit(FIVE, n_components=n_components, coordinates=coordinates)
    np.testing.assert_allclose(model.transform(FIVE.X), whole.transform(FIVE.X)[:, :n_components], atol=1e-9)
    np.testing.assert_allclose(model.explained_information_, whole.explained_information_[:n_components])
    np.testing.assert_allclose(model.explained_information_ratio_, whole.explained_information_ratio_[:n_components])


def test_transform_is_the_affine_map_of_its_attributes():
    model = fit(FIVE)
    np.testing.assert_allclose(model.transform(FIVE.X), FIVE.X @ model.scalings_ - model.offset_, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_is_preserved(dtype):
    X = FIVE.X.astype(dtype)
    model = MELDA(2, **QUICK).fit(X, FIVE.y)
    reference = fit(FIVE, n_components=2)
    assert model.transform(X).dtype == dtype
    np.testing.assert_allclose(np.abs(model.transform(X)), np.abs(reference.transform(FIVE.X)), atol=1e-2)
    np.testing.assert_allclose(model.predict_proba(X), reference.predict_proba(FIVE.X), atol=1e-3)


@ORDERED
@pytest.mark.parametrize("table", [two_classes(), gaussian(), FIVE], ids=repr)
def test_signs_depend_neither_on_storage_nor_on_the_order_of_samples(table, coordinates):
    rows = fit(table, coordinates=coordinates).transform(table.X)
    by_columns = MELDA(coordinates=coordinates, **QUICK).fit(np.asfortranarray(table.X), table.y)
    backwards = MELDA(coordinates=coordinates, **QUICK).fit(table.X[::-1], table.y[::-1])
    np.testing.assert_allclose(by_columns.transform(table.X), rows, atol=1e-6)
    np.testing.assert_allclose(backwards.transform(table.X), rows, atol=1e-6)


# --- coordinates ------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight", [None, uneven_weights(len(FIVE.y), 1).ravel()], ids=["plain", "weighted"])
def test_whitened_samples_have_unit_covariance_within_and_descending_variance_between_classes(weight):
    rows = fit(FIVE, weight).transform(FIVE.X)
    weight = np.ones(len(rows)) if weight is None else weight
    between = between_covariance(rows, FIVE.y, weight)
    np.testing.assert_allclose(np.average(rows, axis=0, weights=weight), 0, atol=1e-10)
    np.testing.assert_allclose(oracles.pooled_covariance(rows, FIVE.y, weight), np.eye(4), atol=1e-9)
    np.testing.assert_allclose(between, np.diag(np.diag(between)), atol=1e-9)
    assert np.all(np.diff(np.diag(between)) < 0)


def test_information_descends_and_is_that_of_the_transformed_samples():
    model = fit(FIVE)
    rows = model.transform(FIVE.X)
    between = np.diag(between_covariance(rows, FIVE.y, np.ones(len(rows))))
    within = np.diag(oracles.pooled_covariance(rows, FIVE.y))
    np.testing.assert_allclose(model.explained_information_, np.log1p(between / within) / 2, rtol=1e-8)
    assert all(earlier > later > 0 for earlier, later in pairwise(model.explained_information_))
    np.testing.assert_allclose(model.explained_information_ratio_.sum(), 1)


@ORDERED
@pytest.mark.parametrize("n_leading", [1, 2, 3, 4])
def test_information_of_leading_directions_adds_up_in_both_orders(n_leading, coordinates):
    model = fit(FIVE, coordinates=coordinates)
    rows = model.transform(FIVE.X)[:, :n_leading]
    total, within = oracles.moments(rows)[1], oracles.pooled_covariance(rows, FIVE.y)
    joint = (np.linalg.slogdet(total)[1] - np.linalg.slogdet(within)[1]) / 2
    np.testing.assert_allclose(model.explained_information_[:n_leading].sum(), joint, rtol=1e-8)


@pytest.mark.parametrize("reference", [None, "b", "e"])
def test_paper_coordinates_are_differences_from_the_reference_class(reference):
    names = np.array(list("abcde"))
    model = MELDA(coordinates="paper", reference_class=reference, **QUICK).fit(FIVE.X, names[FIVE.y])
    weights = AnnealedLogisticRegression(temperature=QUICK["temperature"]).fit(FIVE.X, names[FIVE.y]).coef_
    place = 0 if reference is None else list(names).index(reference)
    expected = np.array([row - weights[place] for k, row in enumerate(weights) if k != place])
    np.testing.assert_allclose(model.scalings_.T, expected, atol=1e-9)
    np.testing.assert_allclose(model.transform(FIVE.X), FIVE.X @ expected.T, atol=1e-8)


def test_paper_coordinate_of_two_classes_is_the_difference_of_their_weights():
    table = two_classes()
    difference = AnnealedLogisticRegression(temperature=QUICK["temperature"]).fit(table.X, table.y).coef_
    np.testing.assert_allclose(fit(table, coordinates="paper").scalings_.T, difference, atol=1e-9)
    np.testing.assert_allclose(fit(table, coordinates="paper", reference_class=1).scalings_.T, -difference, atol=1e-9)


@pytest.mark.parametrize("n_components", [2, 4])
def test_orthonormal_directions_are_orthonormal_and_span_the_leading_subspaces(n_components):
    turned = fit(FIVE, n_components=n_components, coordinates="orthonormal").scalings_
    whitened = fit(FIVE, n_components=n_components).scalings_
    np.testing.assert_allclose(turned.T @ turned, np.eye(n_components), atol=1e-12)
    for n_leading in range(1, n_components + 1):
        leading = projector(turned[:, :n_leading]), projector(whitened[:, :n_leading])
        np.testing.assert_allclose(*leading, atol=1e-9)


def test_paper_coordinates_span_the_same_subspace():
    paper, whitened = fit(FIVE, coordinates="paper"), fit(FIVE)
    np.testing.assert_allclose(projector(paper.scalings_), projector(whitened.scalings_), atol=1e-9)


@COORDINATES
def test_inverse_transform_is_the_sample_of_smallest_norm_with_that_projection(coordinates):
    model = fit(FIVE, coordinates=coordinates)
    wanted = np.random.default_rng(0).normal(size=(7, 4))
    rows = model.inverse_transform(wanted)
    np.testing.assert_allclose(model.transform(rows), wanted, atol=1e-9)
    shortest = np.linalg.lstsq(model.scalings_.T, (wanted + model.offset_).T, rcond=None)[0].T
    np.testing.assert_allclose(rows, shortest, atol=1e-9)


@ORDERED
@pytest.mark.parametrize("step", [1e8, 1e25])
def test_inverse_transform_with_features_in_very_different_units(coordinates, step):
    X = FIVE.X * step ** np.arange(-3.0, 3)
    model = fit(Table("unlike", X, FIVE.y), coordinates=coordinates)
    reduced = model.transform(X)
    np.testing.assert_allclose(
        model.transform(model.inverse_transform(reduced)), reduced, atol=1e-9 * np.abs(reduced).max()
    )


# --- the posterior ----------------------------------------------------------------------------------


@COORDINATES
@pytest.mark.parametrize("table", [two_classes(), gaussian()], ids=repr)
def test_posterior_is_that_of_annealed_logistic_regression(table, coordinates):
    model = MELDA(coordinates=coordinates).fit(table.X, table.y)
    reference = AnnealedLogisticRegression().fit(table.X, table.y)
    np.testing.assert_allclose(model.predict_proba(table.X), reference.predict_proba(table.X), atol=1e-12)
    np.testing.assert_allclose(model.predict_log_proba(table.X), reference.predict_log_proba(table.X), atol=1e-9)
    np.testing.assert_allclose(model.decision_function(table.X), reference.decision_function(table.X), atol=1e-9)
    np.testing.assert_array_equal(model.predict(table.X), reference.predict(table.X))
    assert model.classifier_.temperature_ == reference.temperature_


@pytest.mark.parametrize("n_components", [None, 2])
def test_posterior_does_not_depend_on_ordered_coordinates(n_components):
    whitened = fit(FIVE, n_components=n_components)
    turned = fit(FIVE, n_components=n_components, coordinates="orthonormal")
    np.testing.assert_allclose(turned.predict_proba(FIVE.X), whitened.predict_proba(FIVE.X), atol=1e-6)


@COORDINATES
@pytest.mark.parametrize("table", [two_classes(), FIVE, classes(5, n_features=2), far_away()], ids=repr)
def test_gaussian_model_has_the_same_posterior(table, coordinates):
    model = fit(table, coordinates=coordinates)
    found = model.gaussian_model()
    np.testing.assert_allclose(found.prior.sum(), 1)
    posterior = gaussian_posterior(found, model.transform(table.X))
    np.testing.assert_allclose(posterior, model.predict_proba(table.X), atol=1e-8)


@COORDINATES
@pytest.mark.parametrize("weight", [None, uneven_weights(len(FIVE.y), 1).ravel()], ids=["plain", "weighted"])
def test_priors_of_the_gaussian_model_are_the_class_frequencies_if_that_is_possible(coordinates, weight):
    counts = np.bincount(FIVE.y, weight)
    found = fit(FIVE, weight, coordinates=coordinates).gaussian_model()
    np.testing.assert_allclose(found.prior, counts / counts.sum(), rtol=1e-6)


@ORDERED
def test_gaussian_model_does_not_underflow_where_means_are_far_apart(coordinates):
    """Forty narrow classes on a line: no shift makes all priors equal to the class frequencies."""
    X = 10.0 * np.repeat(np.arange(40.0), 4)[:, None] + np.tile(np.linspace(-1, 1, 4), 40)[:, None]
    y = np.repeat(np.arange(40), 4)
    model = MELDA(coordinates=coordinates, temperature=1e-9).fit(X, y)
    found = model.gaussian_model()
    assert found.log_prior.min() < -750  # exp underflows
    assert np.isfinite(found.log_prior).all() and np.isfinite(found.means).all()
    posterior = gaussian_posterior(found, model.transform(X))
    np.testing.assert_allclose(posterior, model.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("coordinates", ["whitened", "paper"])  # in orthonormal ones the means are 1e8 apart
def test_gaussian_model_has_the_same_posterior_in_different_units(coordinates):
    table = badly_scaled()
    model = fit(table, coordinates=coordinates)
    posterior = gaussian_posterior(model.gaussian_model(), model.transform(table.X))
    np.testing.assert_allclose(posterior, model.predict_proba(table.X), atol=1e-6)


@ORDERED
def test_gaussian_model_of_few_directions_has_their_posterior(coordinates):
    model = fit(FIVE, n_components=2, coordinates=coordinates)
    posterior = gaussian_posterior(model.gaussian_model(), model.transform(FIVE.X))
    np.testing.assert_allclose(posterior, model.predict_proba(FIVE.X), atol=1e-8)


@ORDERED
@pytest.mark.parametrize("n_components", [1, 2, None])
def test_prediction_depends_on_the_kept_directions_only(n_components, coordinates):
    model = fit(FIVE, n_components=n_components, coordinates=coordinates)
    unseen = linalg.null_space(model.scalings_.T)
    assert unseen.shape == (6, 6 - model.scalings_.shape[1])
    moved = FIVE.X + np.random.default_rng(1).normal(size=(len(FIVE.y), unseen.shape[1])) @ unseen.T
    np.testing.assert_allclose(model.predict_proba(moved), model.predict_proba(FIVE.X), atol=1e-9)
    np.testing.assert_array_equal(model.predict(moved), model.predict(FIVE.X))
    rebuilt = model.inverse_transform(model.transform(FIVE.X))
    np.testing.assert_allclose(model.predict_proba(rebuilt), model.predict_proba(FIVE.X), atol=1e-9)


@COORDINATES
@pytest.mark.parametrize("n_components", [1, 2, None])
@pytest.mark.parametrize("store", [np.asarray, sparse.csr_array, np.float32], ids=["dense", "sparse", "float32"])
@pytest.mark.parametrize("table", [two_classes(), FIVE, far_away()], ids=repr)
def test_coefficients_are_those_of_the_decision_function(table, n_components, coordinates, store):
    n_classes = table.y.max() + 1
    if coordinates == "paper" or n_classes == 2:
        n_components = None
    X = store(table.X)
    model = MELDA(n_components, coordinates=coordinates, temperature=0.1).fit(X, table.y)
    n_rows = 1 if n_classes == 2 else n_classes
    assert model.coef_.shape == (n_rows, X.shape[1]) and model.intercept_.shape == (n_rows,)
    assert model.coef_.dtype == model.intercept_.dtype == X.dtype
    found, expected = model.decision_function(X), X @ model.coef_.T + model.intercept_
    atol = (1e-3 if X.dtype == np.float32 else 1e-9) * np.abs(X @ model.coef_.T).max()
    np.testing.assert_allclose(expected.reshape(found.shape), found, atol=atol)


def test_prediction_from_few_directions_differs():
    whole, one = fit(FIVE), fit(FIVE, n_components=1)
    assert np.abs(whole.predict_proba(FIVE.X) - one.predict_proba(FIVE.X)).max() > 0.1
    assert 1 / 5 < one.score(FIVE.X, FIVE.y) < whole.score(FIVE.X, FIVE.y)


@pytest.mark.parametrize("table", [gaussian(), two_classes()], ids=repr)
def test_published_model_is_that_of_generalized_iterative_scaling(table):
    scaled = oracles.generalized_iterative_scaling(table.X, table.y, 20_000)
    optimum = oracles.multinomial_optimum(table.X, table.y, 0.0)
    np.testing.assert_allclose(scaled.value, optimum.value, atol=1e-6)
    expected = oracles.posterior(table.X @ scaled.coef.T + scaled.intercept, 1.0)
    model = MELDA(coordinates="paper", temperature=1e-6).fit(table.X, table.y)
    np.testing.assert_allclose(model.predict_proba(table.X), expected, atol=1e-3)


def test_penalty_is_strength_times_temperature():
    once = fit(FIVE, temperature=0.2, l2_strength=1.0, tol=1e-8)
    other = fit(FIVE, temperature=0.1, l2_strength=2.0, tol=1e-8)
    assert once.classifier_.temperature_ == 0.2
    np.testing.assert_allclose(other.predict_proba(FIVE.X), once.predict_proba(FIVE.X), atol=1e-6)
    np.testing.assert_allclose(other.transform(FIVE.X), once.transform(FIVE.X), atol=1e-4)


def test_nearest_neighbour_in_the_reduction_beats_chance_on_new_samples():
    table = classes(3, n_features=20)
    model = make_pipeline(MELDA(), KNeighborsClassifier(1)).fit(table.X[::2], table.y[::2])
    assert model.score(table.X[1::2], table.y[1::2]) > 0.5


@ORDERED
@pytest.mark.parametrize("table", [FIVE, classes(5, n_features=2)], ids=["as columns", "fewer columns"])
def test_samples_far_from_the_origin_gain_no_direction_by_rounding(coordinates, table):
    far_rows = table.X + 1e11
    plain = fit(table, coordinates=coordinates)
    far = fit(Table("far", far_rows, table.y), coordinates=coordinates)
    np.testing.assert_allclose(far.explained_information_, plain.explained_information_, atol=1e-3)
    np.testing.assert_allclose(far.predict_proba(far_rows), plain.predict_proba(table.X), atol=1e-3)


# --- storage, weights, names ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csr_array, sparse.csc_array])
@pytest.mark.parametrize("n_components", [None, 1])
def test_sparse_equals_dense(kind, n_components):
    table = text(kind)
    words = table.X.toarray()
    dense = MELDA(n_components, penalty_scaling="standardize", **QUICK).fit(words, table.y)
    model = MELDA(n_components, penalty_scaling="standardize", **QUICK).fit(table.X, table.y)
    assert isinstance(model.transform(table.X), np.ndarray)
    np.testing.assert_allclose(model.transform(table.X), dense.transform(words), atol=1e-8)
    np.testing.assert_allclose(model.predict_proba(table.X), dense.predict_proba(words), atol=1e-8)
    np.testing.assert_allclose(model.predict_proba(words), dense.predict_proba(words), atol=1e-8)


@ORDERED
@pytest.mark.parametrize("n_components", [None, 2])
def test_weight_two_is_the_sample_twice(n_components, coordinates):
    settings = dict(n_components=n_components, coordinates=coordinates, tol=1e-8)
    weight = 1.0 + (np.arange(len(FIVE.y)) % 3 == 0)
    weighted = fit(FIVE, weight, **settings)
    repeated = np.repeat(np.arange(len(FIVE.y)), weight.astype(int))
    twice = fit(Table("twice", FIVE.X[repeated], FIVE.y[repeated]), **settings)
    np.testing.assert_allclose(weighted.predict_proba(FIVE.X), twice.predict_proba(FIVE.X), atol=1e-6)
    np.testing.assert_allclose(weighted.transform(FIVE.X), twice.transform(FIVE.X), atol=1e-5)
    np.testing.assert_allclose(weighted.explained_information_, twice.explained_information_, atol=1e-6)
    plain = fit(FIVE, **settings)
    assert np.abs(plain.predict_proba(FIVE.X) - twice.predict_proba(FIVE.X)).max() > 1e-3


@pytest.mark.parametrize("n_components", [1, None])
def test_class_weights_multiply_the_weights_of_their_samples(n_components):
    factors = np.array([1.0, 20.0, 0.05, 3.0, 0.5])
    by_class = fit(FIVE, n_components=n_components, class_weight=dict(enumerate(factors)))
    by_row = fit(FIVE, factors[FIVE.y], n_components=n_components)
    np.testing.assert_allclose(by_class.scalings_, by_row.scalings_, rtol=1e-10)
    np.testing.assert_allclose(by_class.explained_information_, by_row.explained_information_, rtol=1e-10)
    np.testing.assert_allclose(by_class.predict_proba(FIVE.X), by_row.predict_proba(FIVE.X), rtol=1e-10)
    np.testing.assert_allclose(by_class.gaussian_model().prior, by_row.gaussian_model().prior, rtol=1e-10)


def test_names_of_the_directions():
    model = fit(FIVE, n_components=2)
    assert list(model.get_feature_names_out()) == ["melda0", "melda1"]


def test_output_as_a_data_frame():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(FIVE.X, columns=list("abcdef"), index=np.arange(len(FIVE.y)) + 10)
    model = MELDA(2, **QUICK).set_output(transform="pandas").fit(frame, FIVE.y)
    reduced = model.transform(frame)
    assert list(model.feature_names_in_) == list("abcdef")
    assert list(reduced.columns) == ["melda0", "melda1"]
    assert list(reduced.index) == list(frame.index)
    np.testing.assert_allclose(reduced.to_numpy(), FIVE.X @ model.scalings_ - model.offset_, atol=1e-12)


# --- bad input --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"coordinates": "round"}, "coordinates must be one of .* Got 'round'"),
        ({"n_components": 0}, r"from 1 to min\(n_classes - 1, n_features\) = 4. Got 0"),
        ({"n_components": 5}, r"from 1 to min\(n_classes - 1, n_features\) = 4. Got 5"),
        ({"n_components": 1.5}, "n_components must be an integer .* Got 1.5"),
        (
            {"n_components": 2, "coordinates": "paper"},
            r"n_components must be None or 4 with coordinates=.paper., .* Got 2. Set coordinates=",
        ),
        ({"coordinates": "paper", "reference_class": 7}, "reference_class must be a class of y. Got 7, known: .*0, 1"),
        ({"reference_class": [0, 1, 2, 3, 4]}, r"reference_class must be a class of y. Got \[0, 1, 2, 3, 4\]"),
        ({"penalty_scaling": "round"}, "penalty_scaling must be one of .* Got 'round'"),
        ({"l2_strength": -1}, "l2_strength must be a positive number. Got -1"),
        ({"temperature": -1}, "temperature must be a positive number. Got -1"),
        ({"temperature": "last"}, 'temperature must be "auto" or a positive number. Got .last.'),
        ({"selection": "best"}, "selection must be one of .* Got 'best'"),
    ],
)
def test_bad_parameters(parameters, message):
    with pytest.raises(ValueError, match=message):
        fit(FIVE, **parameters)


def test_more_components_than_features_are_refused():
    with pytest.raises(ValueError, match=r"min\(n_classes - 1, n_features\) = 2. Got 3"):
        fit(classes(5, n_features=2), n_components=3)


@pytest.mark.parametrize("method", ["transform", "inverse_transform", "predict", "gaussian_model"])
def test_before_fit(method):
    arguments = [] if method == "gaussian_model" else [FIVE.X]
    with pytest.raises(NotFittedError):
        getattr(MELDA(), method)(*arguments)


@pytest.mark.parametrize("width", [1, 3])
def test_inverse_transform_of_the_wrong_width(width):
    with pytest.raises(ValueError, match="4"):
        fit(FIVE).inverse_transform(np.zeros((2, width)))
