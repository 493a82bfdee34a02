"""`as_published`: the settings are those of the printed algorithms, shown by running them beside slow oracles."""

import inspect

import numpy as np
import oracles
import pytest
from sklearn.base import clone
from small_problems import gaussian

from annealed import MELDA, AnnealedLDA, AnnealedLogisticRegression, ExponentialSchedule, PottsDA
from annealed.datasets import make_xor_means

PUBLISHED = [AnnealedLogisticRegression, AnnealedLDA, MELDA, PottsDA]
ADA = [AnnealedLogisticRegression, AnnealedLDA]


# --- every method -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", PUBLISHED)
def test_clone_has_the_same_settings(estimator):
    model = estimator.as_published(random_state=3)
    assert repr(clone(model)) == repr(model)
    assert model.random_state == 3


@pytest.mark.parametrize("estimator", PUBLISHED)
def test_settings_override_every_printed_one(estimator):
    changed = changed_settings(estimator)
    assert changed
    default = estimator()
    model = estimator.as_published(**{name: getattr(default, name) for name in changed})
    assert repr(model) == repr(default)


def changed_settings(estimator):
    """Names of the parameters that differ from the default."""
    published, default = estimator.as_published().get_params(deep=False), estimator().get_params(deep=False)
    return [name for name in published if repr(published[name]) != repr(default[name])]


@pytest.mark.parametrize("estimator", PUBLISHED)
def test_unknown_setting_raises_a_type_error_that_names_it(estimator):
    name = estimator.__name__
    expected = rf"settings of {name}.as_published must be parameters of {name}. Got 'temprature'. Choose among: .*, tol"
    with pytest.raises(TypeError, match=expected if estimator is not PottsDA else expected.removesuffix(", tol")):
        estimator.as_published(temprature=1.0)


@pytest.mark.parametrize("estimator", PUBLISHED)
def test_a_subclass_gives_the_subclass(estimator):
    class Own(estimator):
        pass

    assert type(Own.as_published()) is Own


@pytest.mark.parametrize("estimator", PUBLISHED)
def test_each_call_makes_new_objects(estimator):
    """A schedule or solver that one estimator changes is not that of the next."""
    for first, second in zip(objects_of(estimator), objects_of(estimator), strict=True):
        assert first is not second


def objects_of(estimator):
    return [value for value in estimator.as_published().get_params(deep=False).values() if hasattr(value, "get_params")]


@pytest.mark.parametrize("estimator", [AnnealedLDA, MELDA, PottsDA])
def test_parameters_of_the_published_algorithm_come_last(estimator):
    parameters = list(inspect.signature(estimator).parameters)
    described = inspect.getdoc(estimator).partition("Other Parameters\n")[2].partition("Attributes\n")[0]
    literal = [name for name in parameters if f"\n{name} : " in described]
    assert literal and parameters[-len(literal) :] == literal


# --- ADA: table 1 of the paper ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def parts():
    table = gaussian(n_samples=120)
    return table.X[:80], table.y[:80], table.X[80:], table.y[80:]


@pytest.mark.parametrize("estimator", ADA)
def test_temperature_falls_by_a_tenth_and_validation_accuracy_selects_it(estimator, parts):
    X, y, X_val, y_val = parts
    model = estimator.as_published().fit(X, y, X_val=X_val, y_val=y_val)
    temperatures = model.path_.temperatures
    np.testing.assert_allclose(temperatures[1:] / temperatures[:-1], 0.9)
    assert 1e-3 <= temperatures[-1] < 1e-3 / 0.9
    hot = oracles.distance_scores(X, oracles.class_means(X, y), oracles.pooled_covariance(X, y)) / temperatures[0]
    hot = hot if estimator is AnnealedLDA else scores_at(model, X, 0)
    assert oracles.mean_entropy(hot, 1.0) > 0.99 * np.log(3)  # the posterior is nearly uniform at first
    accuracies = [np.mean(scores_at(model, X_val, index).argmax(axis=1) == y_val) for index in range(len(temperatures))]
    assert model.temperature_ == temperatures[np.argmax(accuracies)]
    chosen = int(np.argmax(accuracies))
    expected = oracles.posterior(temperatures[chosen] * scores_at(model, X_val, chosen), temperatures[chosen])
    np.testing.assert_allclose(model.predict_proba(X_val), expected, atol=1e-12)


def scores_at(model, X, index):
    return X @ model.path_.coef[index].T + model.path_.intercept[index]


@pytest.mark.parametrize("estimator", ADA)
def test_without_a_validation_set_a_fifth_of_the_samples_is_held_out(estimator, parts):
    X, y, _, _ = parts
    schedule = ExponentialSchedule(10.0, cooling_rate=0.5, stop=1.0)
    path = estimator.as_published(schedule=schedule).fit(X, y).path_
    correct = path.validation_score[:, 0] * len(X) / 5
    np.testing.assert_allclose(correct, correct.round(), atol=1e-9)


def test_inner_product_classifier_minimizes_equation_17(parts):
    """Over all entries of lambda in raw features, without an intercept."""
    X, y, X_val, y_val = parts
    model = AnnealedLogisticRegression.as_published(l2_strength=0.3, tol=1e-8)
    path = model.fit(X, y, X_val=X_val, y_val=y_val).path_
    for index in range(0, len(path.temperatures), 20):
        temperature = path.temperatures[index]
        optimum = oracles.multinomial_optimum(X, y, 0.3 * temperature * np.eye(X.shape[1]), fit_intercept=False)
        lambda_ = temperature * path.coef[index]
        np.testing.assert_allclose(lambda_, temperature * optimum.coef, rtol=1e-4, atol=1e-6 * np.abs(lambda_).max())
        np.testing.assert_array_equal(path.intercept[index], 0.0)
        reached = oracles.penalized_free_energy(X, y, lambda_, np.zeros(3), temperature, 0.3, np.eye(X.shape[1]))
        np.testing.assert_allclose(path.free_energy[index], reached, rtol=1e-7)


@pytest.mark.parametrize("init", ["means", "zero"])
def test_distance_classifier_takes_fifteen_steps_of_the_printed_optimizer(init, parts):
    """Scaled conjugate gradient in the means themselves, on (9) with the gradient (12), from the means before."""
    X, y, X_val, y_val = parts
    path = AnnealedLDA.as_published(init=init).fit(X, y, X_val=X_val, y_val=y_val).path_
    precision = np.linalg.inv(oracles.pooled_covariance(X, y))
    assert path.n_iter.max() == 15
    before = oracles.class_means(X, y) if init == "means" else np.zeros((3, X.shape[1]))
    for index, temperature in enumerate(path.temperatures):
        if index % 30 == 0:
            means = minimized(X, y, before, precision, temperature, path.n_iter[index])
            np.testing.assert_allclose(path.means[index], means, atol=1e-4 * np.abs(means).max())
        before = path.means[index]


def minimized(X, y, means, precision, temperature, n_iterations):
    """The paper's inner loop: scaled conjugate gradient on Q of (9), with the distances (10) and the gradient (12)."""

    def value_and_gradient(flat):
        offsets = X[:, None] - flat.reshape(means.shape)
        scores = -np.einsum("ijd,de,ije->ij", offsets, precision, offsets)
        residual = oracles.posterior(scores, temperature) - np.eye(len(means))[y]
        gradient = 2 / len(X) * np.einsum("ij,ijd->jd", residual, offsets @ precision)
        return oracles.free_energy(scores, y, temperature), gradient.ravel()

    if not n_iterations:
        return means
    visited = oracles.scaled_conjugate_gradient(value_and_gradient, means.ravel(), n_iterations)
    return visited[-1][0].reshape(means.shape)


def test_steps_in_whitened_coordinates_give_other_means(parts):
    """Why `as_published` needs its solver: where a few steps end depends on the coordinates."""
    X, y, _, _ = parts
    settings = {"schedule": [20.0], "selection": "last"}
    published, whitened = (
        AnnealedLDA.as_published(**settings, **options).fit(X, y).means_ for options in ({}, {"solver": "scg"})
    )
    assert np.abs(published - whitened).max() > 0.01


def test_distance_classifier_has_no_priors(parts):
    """Eq. (10): the class of the nearest mean, however rare."""
    X, y, X_val, _ = parts
    rare = np.flatnonzero((y != 0) | (np.arange(len(y)) % 4 == 0))
    model = AnnealedLDA.as_published().fit(X[rare], y[rare])
    distances = -oracles.distance_scores(X_val, model.means_, oracles.pooled_covariance(X[rare], y[rare]))
    np.testing.assert_array_equal(model.predict(X_val), distances.argmin(axis=1))


def test_distance_classifier_steps_in_features_that_outnumber_the_samples():
    """The covariance of the features is then singular: distances are measured in the span of the samples."""
    n_samples, n_features = 40, 60
    generator = np.random.default_rng(0)
    y = np.arange(n_samples) % 3
    X = generator.normal(size=(n_samples, n_features)) * generator.uniform(0.5, 2, n_features)
    X += 2 * np.eye(3, n_features)[y]
    spread = X.std(axis=0)
    axes = np.linalg.svd((X - X.mean(axis=0)) / spread, full_matrices=False)[2][: n_samples - 1]
    onto_span = axes.T @ axes
    settings = {"covariance": "total", "shrinkage": 1.0, "schedule": [60.0], "selection": "last", "tol": 1e-12}
    model = AnnealedLDA.as_published(inner_iterations=6, **settings).fit(X, y)
    expected = minimized(X, y, oracles.class_means(X, y), onto_span / np.outer(spread, spread), 60.0, 6)
    center = X.mean(axis=0)
    expected = center + (expected - center) / spread @ onto_span * spread
    np.testing.assert_allclose(model.means_, expected, atol=1e-4)


# --- MELDA --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", [1e-4, 1.0, 1e4])
def test_melda_projects_by_maximum_likelihood_differences_to_the_first_class(unit):
    """Eq. (1), (3) and (7), in any unit of the features."""
    table = gaussian()
    X = unit * table.X
    optimum = oracles.multinomial_optimum(table.X, table.y, 0.0)
    model = MELDA.as_published(tol=1e-8).fit(X, table.y)
    expected = (optimum.coef[1:] - optimum.coef[0]) / unit
    np.testing.assert_allclose(model.scalings_.T, expected, atol=1e-5 * np.abs(expected).max())
    np.testing.assert_allclose(model.transform(X), X @ expected.T, atol=1e-4)
    posterior = oracles.posterior(table.X @ optimum.coef.T + optimum.intercept, 1.0)
    np.testing.assert_allclose(model.predict_proba(X), posterior, atol=1e-5)


# --- PottsDA ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def example_2():
    """Samples in standardized features, their labels, and the fitted model."""
    X, y = make_xor_means(200, random_state=0)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    return X, y, PottsDA.as_published().fit(X, y)


def test_potts_ends_at_the_printed_memberships_means_and_metric(example_2):
    """Their equations, with the sign of v corrected, and the printed free energy at their solution."""
    X, y, model = example_2
    temperature, n_samples = model.path_.temperatures[-1], len(X)
    offsets = X[:, None] - model.prototypes_
    distances = np.einsum("nkd,de,nke->nk", offsets, model.metric_, offsets)
    labels, targets = np.eye(2)[model.prototype_labels_.argmax(axis=1)], np.eye(2)[y]
    memberships = np.eye(4)[distances.argmin(axis=1)]
    for _ in range(500):  # damped, as the plain iteration cycles
        field = -distances / 2 + 8 * (targets - memberships @ labels) @ labels.T
        memberships += 0.05 * (oracles.posterior(field, temperature) - memberships)
    weight = memberships / memberships.sum(axis=0)
    np.testing.assert_allclose(weight.T @ X, model.prototypes_, atol=0.01)
    scatter = np.einsum("nk,nkd,nke->de", memberships, offsets, offsets) / n_samples
    np.testing.assert_allclose(np.linalg.inv(scatter), model.metric_, rtol=0.01, atol=0.01)
    np.testing.assert_array_equal((memberships.T @ targets).argmax(axis=1), labels.argmax(axis=1))
    log_det = np.linalg.slogdet(model.metric_)[1]
    entropy = oracles.mean_entropy(np.log(np.maximum(memberships, 1e-300)), 1.0) * n_samples
    energy = np.sum(memberships * distances) / 2 - n_samples / 2 * log_det
    energy += 8 / 2 * np.sum((targets - memberships @ labels) ** 2) - temperature * entropy
    np.testing.assert_allclose(model.free_energy_, energy, rtol=1e-3)


def test_potts_anneals_from_the_mean_until_memberships_and_labels_are_decided(example_2):
    path = example_2[2].path_
    np.testing.assert_allclose(path.temperatures[:-1] / path.temperatures[1:], 1.1)
    assert path.temperatures[0] == 100.0
    saturation = np.minimum(path.membership_saturation, path.label_saturation)
    np.testing.assert_allclose(path.membership_saturation[0], 1 / 4, atol=0.01)  # each near 1 / K
    np.testing.assert_allclose(path.label_saturation[0], 1 / 2, atol=0.01)  # each near 1 / M
    assert (saturation[:-1] <= 0.98).all() and saturation[-1] > 0.98


def test_potts_predicts_the_label_of_the_nearest_prototype(example_2):
    X, _, model = example_2
    distances = -oracles.distance_scores(X, model.prototypes_, np.linalg.inv(model.metric_))
    np.testing.assert_array_equal(model.predict(X), model.prototype_labels_.argmax(axis=1)[distances.argmin(axis=1)])


def test_potts_needs_the_perturbation_to_solve_example_2(example_2):
    X, y, model = example_2
    assert model.score(X, y) > 0.99
    assert PottsDA.as_published(perturbation=0.0).fit(X, y).score(X, y) < 0.6
