"""PottsDA: the slides' examples, invariances, a given temperature, and data on which classifiers fail."""

import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import log_loss
from sklearn.preprocessing import StandardScaler
from small_problems import gaussian, rare_class, separable, two_classes, wide

from annealed import InverseTemperatureSchedule, PottsDA
from annealed.datasets import make_mixed_strips, make_spirals, make_xor_means
from annealed.problems import gibbs

QUICK = {"n_prototypes": 6, "shrinkage": "oas", "refine": False, "n_init": 2}


def error(model, make, seed):
    X, y = make(random_state=1000 + seed)
    return np.mean(model.predict(X) != y)


# --- the slides' examples --------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [make_mixed_strips, make_xor_means])
def test_four_prototypes_solve_the_strips(make):
    errors = [error(PottsDA(4, random_state=seed).fit(*make(random_state=seed)), make, seed) for seed in range(3)]
    assert max(errors) <= 0.002


def test_growth_finds_four_prototypes():
    X, y = make_xor_means(random_state=0)
    model = PottsDA(random_state=0).fit(X, y)
    assert error(model, make_xor_means, 0) <= 0.002
    assert len(model.prototypes_) >= 4 and set(model.path_.n_prototypes) >= {2, 4}


@pytest.mark.slow
def test_spirals_are_classified():
    errors = [
        error(PottsDA(random_state=seed).fit(*make_spirals(random_state=seed)), make_spirals, seed) for seed in (0, 1)
    ]
    assert np.mean(errors) <= 0.01


@pytest.mark.slow
def test_growth_continues_while_nothing_is_learnt():
    """On these spirals the three rounds after the second do not improve; then there are enough prototypes."""
    X, y = make_spirals(random_state=15)
    model = PottsDA(random_state=15).fit(X, y)
    assert model.path_.validation_loss[:5].min() > 0.6 and model.path_.validation_loss.min() < 0.1
    assert error(model, make_spirals, 15) < 0.02


def test_the_relaxation_of_the_slides_solves_the_strips_from_a_good_start():
    X, y = make_xor_means(random_state=0)
    model = PottsDA(4, relaxation="quadratic", shrinkage="oas", refine=False, n_init=3).fit(X, y)
    assert error(model, make_xor_means, 0) <= 0.01


def test_the_start_of_the_slides_runs():
    X, y = make_xor_means(200, random_state=0)
    schedule = InverseTemperatureSchedule(0.1, growth=1.3, stop=50.0)
    model = PottsDA(4, init="mean", shrinkage="oas", refine=False, schedule=schedule).fit(X, y)
    assert np.isfinite(model.predict_proba(X)).all()


# --- the fitted model -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    y = np.array(["a", "b", "c"])[y]
    return PottsDA(n_prototypes={"a": 1, "b": 2, "c": 3}).fit(X, y), X, y


def test_fitted_attributes(iris):
    model, X, _ = iris
    assert model.prototypes_.shape == (6, 4) and model.prototype_labels_.shape == (6, 3)
    np.testing.assert_allclose(model.prototype_labels_.sum(axis=1), 1)
    assert model.metric_.shape == (4, 4) and np.linalg.eigvalsh(model.metric_).min() > 0
    assert model.temperature_ > 0 and np.isfinite(model.free_energy_)
    assert model.get_feature_names_out().tolist() == [f"pottsda{number}" for number in range(6)]
    assert X.min() <= model.prototypes_.min() and model.prototypes_.max() <= X.max()


def test_memberships_follow_from_prototypes_metric_and_temperature(iris):
    model, X, _ = iris
    offset = X[:, None] - model.prototypes_
    squares = np.einsum("nkd,de,nke->nk", offset, model.metric_, offset)
    np.testing.assert_allclose(model.transform(X), gibbs.posterior(-squares / (2 * model.temperature_)), atol=1e-8)
    np.testing.assert_array_equal(model.apply(X), squares.argmin(axis=1))
    mixed = model.posterior_scale_ * np.log(model.transform(X) @ model.prototype_labels_)
    np.testing.assert_allclose(model.predict_proba(X), gibbs.posterior(mixed), atol=1e-8)


def test_the_two_decisions(iris):
    model, X, _ = iris
    np.testing.assert_array_equal(model.predict(X), model.classes_[model.predict_proba(X).argmax(axis=1)])
    nearest = clone(model).set_params(decision="nearest").fit(X, iris[2])
    labels = nearest.prototype_labels_.argmax(axis=1)[nearest.apply(X)]
    np.testing.assert_array_equal(nearest.predict(X), nearest.classes_[labels])


def test_the_path_shows_spins_harden_and_prototypes_grow():
    X, y = make_mixed_strips(400, random_state=1)
    path = PottsDA(shrinkage="oas").fit(X, y).path_
    ends = np.append(np.flatnonzero(np.diff(path.round)), len(path) - 1)
    assert (path.membership_saturation[ends] > 0.98).all() and (path.label_saturation[ends] > 0.98).all()
    assert (np.diff(path.n_prototypes[ends]) >= 0).all()
    assert len(path.validation_loss) >= path.round[-1] + 1
    assert len(path.to_frame()) == len(path) and "PrototypePath" in repr(path) and "held-out loss" in repr(path)


def test_a_class_has_at_most_as_many_prototypes_as_distinct_samples():
    X, y = np.repeat(np.array([[0.0, 0.0], [0.0, 1.0], [5.0, 0.0], [5.0, 1.0]]), 5, axis=0), np.repeat([0, 0, 1, 1], 5)
    model = PottsDA({0: 4, 1: 4}, shrinkage="oas", refine=False).fit(X, y)
    assert np.isfinite(model.prototypes_).all() and len(model.prototypes_) <= 4
    assert model.score(X, y) == 1


def test_duplicates_of_the_slides_start_are_removed_and_counted():
    X, y = separable().X, separable().y
    model = PottsDA(9, init="mean", shrinkage=0.5, refine=False, schedule=[5.0, 1.0, 0.01]).fit(X, y)
    removed = model.path_.n_dead[-1] + model.path_.n_duplicate[-1]
    assert removed == 9 - len(model.prototypes_)


# --- invariances ------------------------------------------------------------------------------------------


def test_affine_maps_change_nothing_without_shrinkage():
    """The temperature excepted, which depends on the folds: a map may assign samples to other folds."""
    table = gaussian(n_samples=200)
    generator = np.random.default_rng(0)
    turn, shift = generator.normal(size=(4, 4)), generator.normal(size=4)
    mapped = table.X @ turn + shift
    options = QUICK | {"shrinkage": 0.0}
    model, other = PottsDA(**options).fit(table.X, table.y), PottsDA(**options).fit(mapped, table.y)
    np.testing.assert_allclose(other.prototypes_, model.prototypes_ @ turn + shift, atol=1e-8)
    np.testing.assert_allclose(turn @ other.metric_ @ turn.T, model.metric_, rtol=1e-6, atol=1e-8)
    np.testing.assert_array_equal(model.apply(table.X), other.apply(mapped))


@pytest.mark.parametrize("options", [QUICK, {}], ids=["annealed", "default"])
def test_units_change_nothing(options):
    table = gaussian()
    model = PottsDA(**options).fit(table.X, table.y)
    scaled = table.X * 2.0 ** np.array([-20, 0, 7, 30])  # powers of two, so that rounding is the same
    other = PottsDA(**options).fit(scaled, table.y)
    np.testing.assert_allclose(model.predict_proba(table.X), other.predict_proba(scaled), atol=1e-5)


def test_permuting_the_classes_permutes_the_posterior():
    """With one prototype for each class nothing is drawn at random."""
    table = gaussian()
    names = np.array([2, 0, 1])
    options = QUICK | {"n_prototypes": 3, "n_init": 1}
    model, other = PottsDA(**options).fit(table.X, table.y), PottsDA(**options).fit(table.X, names[table.y])
    np.testing.assert_allclose(model.transform(table.X), other.transform(table.X)[:, names], atol=1e-8)
    np.testing.assert_allclose(model.prototypes_, other.prototypes_[names], atol=1e-8)


def test_the_order_of_samples_changes_nothing():
    table = gaussian()
    order = np.random.default_rng(0).permutation(len(table.y))
    model, other = PottsDA(**QUICK).fit(table.X, table.y), PottsDA(**QUICK).fit(table.X[order], table.y[order])
    np.testing.assert_array_equal(model.predict_proba(table.X), other.predict_proba(table.X))


@pytest.mark.parametrize("options", [QUICK, {}], ids=["annealed", "default"])
def test_weight_two_is_the_sample_twice(options):
    table = gaussian(n_samples=80)
    weight = np.random.default_rng(0).integers(0, 4, size=len(table.y))
    twice = PottsDA(**options).fit(table.X.repeat(weight, axis=0), table.y.repeat(weight))
    weighted = PottsDA(**options).fit(table.X, table.y, sample_weight=weight)
    np.testing.assert_array_equal(twice.predict_proba(table.X), weighted.predict_proba(table.X))


@pytest.mark.parametrize("lightest", [1e-40, 1e-300])
def test_samples_of_negligible_weight_are_dropped(lightest):
    X, y = make_xor_means(120, random_state=1)
    weight = np.where(np.arange(120) % 5, 1.0, 0.0)
    without = PottsDA(**QUICK).fit(X, y, sample_weight=weight)
    light = PottsDA(**QUICK).fit(X, y, sample_weight=np.maximum(weight, lightest))
    np.testing.assert_array_equal(light.predict_proba(X), without.predict_proba(X))


def test_one_sample_may_outweigh_all_others():
    X, y = make_xor_means(120, random_state=1)
    weight = np.where(np.arange(120) == 7, 1e12, 1.0)
    assert np.isfinite(PottsDA(**QUICK).fit(X, y, sample_weight=weight).predict_proba(X)).all()


def test_temperatures_beyond_all_use_are_left_out():
    X, y = make_xor_means(120, random_state=1)
    options = QUICK | {"saturation": 1.0}
    cold = PottsDA(**options, schedule=[1.7e308, 1.0, 0.1, 1e-60]).fit(X, y)
    np.testing.assert_array_equal(cold.path_.temperatures, [1.0, 0.1])
    mild = PottsDA(**options, schedule=[1.0, 0.1]).fit(X, y)
    np.testing.assert_array_equal(cold.predict_proba(X), mild.predict_proba(X))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("options", [{"temperature": 1e-30}, {"schedule": [1.0, 1e-30]}], ids=str)
def test_scores_at_low_temperatures_do_not_overflow(options, dtype):
    """A sample of little weight is far away in the metric of the others. Every warning is an error here."""
    X, y = make_xor_means(60, random_state=1)
    weight = np.where(np.arange(60) % 10 < 2, 1e-12, 1.0)
    X[weight < 1] *= 1e6
    model = PottsDA(**QUICK | options).fit(X.astype(dtype), y, sample_weight=weight)
    assert np.isfinite(model.predict_proba(X.astype(dtype))).all()
    assert np.isfinite(model.path_.free_energy).all()


def test_small_weights_are_scaled_up():
    table = gaussian()
    plain = PottsDA(**QUICK).fit(table.X, table.y)
    tiny = PottsDA(**QUICK).fit(table.X, table.y, sample_weight=np.full(len(table.y), 2.0**-10))
    np.testing.assert_allclose(plain.predict_proba(table.X), tiny.predict_proba(table.X))


def test_fits_of_one_random_state_are_equal():
    X, y = make_mixed_strips(200, random_state=0)
    one, two = (PottsDA(random_state=3).fit(X, y) for _ in range(2))
    np.testing.assert_array_equal(one.prototypes_, two.prototypes_)
    np.testing.assert_array_equal(one.predict_proba(X), two.predict_proba(X))
    drawn = PottsDA(random_state=np.random.RandomState(3), **QUICK).fit(X, y)
    again = PottsDA(random_state=np.random.RandomState(3), **QUICK).fit(X, y)
    np.testing.assert_array_equal(drawn.prototypes_, again.prototypes_)


def test_predictions_survive_pickling(iris):
    model, X, _ = iris
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(X), model.predict_proba(X))


# --- data on which classifiers fail-----------------------------------------------------------------------


def test_float32_samples():
    table = gaussian()
    model = PottsDA().fit(table.X.astype(np.float32), table.y)
    assert {model.prototypes_.dtype, model.predict_proba(table.X.astype(np.float32)).dtype} == {np.dtype(np.float32)}
    assert abs(model.score(table.X, table.y) - PottsDA().fit(table.X, table.y).score(table.X, table.y)) < 0.05


def test_float32_samples_with_collinear_features(monkeypatch):
    """Predictions use the fitted float64 parameters."""
    X, y = load_wine(return_X_y=True)
    X = np.column_stack([X, X[:, :5], X[:, 0] + X[:, 1]]).astype(np.float32)
    kept, set_fitted = [], PottsDA._set_fitted
    monkeypatch.setattr(PottsDA, "_set_fitted", lambda model, *args: kept.append(args[0]) or set_fitted(model, *args))
    model = PottsDA(n_init=1, shrinkage=0.0).fit(X, y)
    logs = model.posterior_scale_ * kept[-1].posterior.dense().log_proba(model._columns.rows(X.astype(np.float64)))
    np.testing.assert_allclose(model.predict_proba(X), gibbs.posterior(logs), atol=1e-4)
    assert model.predict_proba(X).dtype == np.float32 == model.prototypes_.dtype


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_more", [0, 60])
def test_samples_near_the_largest_float_have_a_posterior(n_more, dtype):
    """The units are so small that such samples overflow when standardized. Every warning is an error here."""
    table = gaussian()
    more = np.random.default_rng(0).normal(size=(len(table.y), n_more))
    X = (1e-8 * np.hstack([table.X, more])).astype(dtype)
    model = PottsDA(**QUICK).fit(X, table.y)
    largest = np.finfo(dtype).max / 1000  # scikit-learn sums several of them
    along = np.hstack([np.vstack([np.eye(4), -np.eye(4), np.ones((1, 4))]), np.zeros((9, n_more))]).astype(dtype)
    posterior = model.predict_proba(largest * along)
    np.testing.assert_allclose(posterior.sum(axis=1), 1.0, rtol=1e-6)
    np.testing.assert_allclose(posterior[:8], model.predict_proba(along[:8]), atol=1e-6)


def test_constant_features_do_not_matter():
    table = gaussian()
    padded = np.insert(table.X, [0, 2], [7.0, 0.1], axis=1)
    model, other = PottsDA(**QUICK).fit(table.X, table.y), PottsDA(**QUICK).fit(padded, table.y)
    assert other.prototypes_.shape == (len(model.prototypes_), 6) and not other.metric_[0].any()
    assert np.mean(model.predict(table.X) == other.predict(padded)) > 0.9  # samples are sorted by their bytes
    padded[:, 0] += 1e6
    np.testing.assert_allclose(other.predict_proba(padded), other.predict_proba(padded - [1e6, 0, 0, 0, 0, 0]))


def test_a_feature_that_is_constant_within_a_fold():
    table = gaussian()
    rare = np.zeros((len(table.y), 1))
    rare[0] = 1.0
    model = PottsDA().fit(np.hstack([table.X, rare]), table.y)
    assert np.isfinite(model.predict_proba(np.hstack([table.X, 1 - rare]))).all()


def test_samples_that_are_all_equal():
    model = PottsDA().fit(np.ones((10, 3)), np.arange(10) % 2)
    np.testing.assert_allclose(model.predict_proba(np.ones((1, 3))), 0.5, atol=0.1)


def test_more_features_than_samples():
    table = wide()
    model = PottsDA().fit(table.X, table.y)
    assert model.score(table.X, table.y) > 0.9
    assert model.metric_.shape == (60, 60) and model.prototypes_.shape[1] == 60
    offset = table.X[:, None] - model.prototypes_
    squares = np.einsum("nkd,de,nke->nk", offset, model.metric_, offset)
    np.testing.assert_array_equal(model.apply(table.X), squares.argmin(axis=1))


@pytest.mark.parametrize("n_alone", [1, 3])
def test_a_class_of_few_samples(n_alone):
    table = rare_class()
    kept = np.concatenate([np.flatnonzero(table.y < 2), np.flatnonzero(table.y == 2)[:n_alone]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = PottsDA().fit(table.X[kept], table.y[kept])
    assert model.classes_.tolist() == [0, 1, 2] and (model.predict_proba(table.X) > 0).all()


@pytest.mark.parametrize("table", [gaussian(), two_classes()], ids=repr)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_decision_function_agrees_with_the_posterior_and_the_predictions(table, dtype):
    X = table.X.astype(dtype)
    model = PottsDA(**QUICK).fit(X, table.y)
    decision, posterior = model.decision_function(X), model.predict_proba(X)
    is_binary = len(model.classes_) == 2
    assert decision.shape == ((len(X),) if is_binary else posterior.shape)
    logits = np.column_stack([np.zeros(len(X)), decision]) if is_binary else decision
    np.testing.assert_allclose(gibbs.posterior(logits), posterior, atol=1e-5 if dtype == np.float32 else 1e-12)
    np.testing.assert_array_equal(model.predict(X), model.classes_[logits.argmax(axis=1)])


# --- a given temperature ------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [1000, 3.0, 1.0, 0.02])
@pytest.mark.parametrize("refine", [False, True])
def test_a_given_temperature_ends_the_annealing_and_is_that_of_the_posterior(temperature, refine):
    table = gaussian()
    model = PottsDA(n_prototypes=6, refine=refine, temperature=temperature).fit(table.X, table.y)
    assert model.temperature_ == temperature and model.posterior_scale_ == 1
    assert model.path_.temperatures[-1] == temperature and np.diff(model.path_.temperatures).max(initial=-1) < 0
    offset = table.X[:, None] - model.prototypes_
    squares = np.einsum("nkd,de,nke->nk", offset, model.metric_, offset)
    memberships = gibbs.posterior(-squares / (2 * temperature))
    np.testing.assert_allclose(model.transform(table.X), memberships, atol=1e-8)
    np.testing.assert_allclose(model.predict_proba(table.X), memberships @ model.prototype_labels_, atol=1e-8)


def test_at_temperature_one_a_large_coupling_is_mixture_discriminant_analysis_with_equal_weights():
    """The annealed prototypes and metric are a fixed point of the EM algorithm of that model."""
    X, y = load_wine(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    settings = {"temperature": 1, "label_coupling": 1e6, "shrinkage": 0.0, "refine": False, "max_sweeps": 5000}
    model = PottsDA({label: 2 for label in np.unique(y)}, n_init=1, **settings).fit(X, y)
    offset = X[:, None] - model.prototypes_
    squares = np.einsum("nkd,de,nke->nk", offset, model.metric_, offset)
    is_of_class = model.prototype_labels_.argmax(axis=1) == y[:, None]
    memberships = gibbs.posterior(np.where(is_of_class, -squares / 2, -np.inf))
    means = memberships.T @ X / memberships.sum(axis=0)[:, None]
    np.testing.assert_allclose(model.prototypes_, means, atol=1e-2)
    offset = X[:, None] - means
    scatter = np.einsum("nk,nkd,nke->de", memberships, offset, offset) / len(X)
    np.testing.assert_allclose(model.metric_ @ scatter, np.eye(X.shape[1]), atol=2e-2)


def test_one_prototype_a_class_is_lda_at_temperature_one_if_the_coupling_is_large():
    X, y = load_wine(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    settings = {"temperature": 1.0, "shrinkage": 0.0, "refine": False, "n_init": 1}
    lda = LinearDiscriminantAnalysis(store_covariance=True).fit(X, y)
    model = PottsDA(3, label_coupling=1e4, **settings).fit(X, y)
    np.testing.assert_allclose(model.prototypes_[model.prototype_labels_.argmax(axis=1).argsort()], lda.means_)
    np.testing.assert_allclose(model.metric_, np.linalg.inv(lda.covariance_), rtol=1e-8, atol=1e-8)
    weak = PottsDA(3, label_coupling=1.0, **settings).fit(X, y)
    assert np.abs(weak.metric_ - model.metric_).max() > 0.01


def test_growth_at_a_given_temperature():
    X, y = make_mixed_strips(random_state=0)
    model = PottsDA(temperature=0.5).fit(X, y)
    assert model.temperature_ == 0.5 and len(model.prototypes_) > 2
    assert model.score(X, y) > 0.95


def test_probabilities_are_calibrated():
    """With a known posterior, the log-loss is near its minimum."""
    table = gaussian(n_samples=1200)
    X, y = table.X[600:], table.y[600:]
    model = PottsDA().fit(table.X[:600], table.y[:600])
    least = log_loss(y, gibbs.posterior(X @ table.coef.T + table.intercept))
    assert log_loss(y, model.predict_proba(X)) < least + 0.06


# --- bad parameters -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_prototypes": 2}, "at least the number of classes, 3. Got 2"),
        ({"n_prototypes": 0}, "n_prototypes must be"),
        ({"n_prototypes": "many"}, "n_prototypes must be"),
        ({"n_prototypes": {0: 1, 1: 1}}, r"missing \[2\]"),
        ({"n_prototypes": {0: 1, 1: 1, 2: 1, "x": 1}}, r"unknown classes \['x'\]"),
        ({"n_prototypes": {0: 1, 1: 2.5, 2: 1}}, "n_prototypes of class 1 must be a positive int. Got 2.5"),
        ({"n_prototypes": {0: 1, 1: 1, 2: 0}}, "n_prototypes of class 2 must be a positive int. Got 0"),
        ({"init": "mean"}, "n_prototypes must be an int with init=.mean.. Got .auto."),
        (
            {"init": "mean", "n_prototypes": {0: 1, 1: 1, 2: 1}},
            "n_prototypes must be an int, the total, with init=.mean.. Got {0: 1",
        ),
        ({"random_state": "seven"}, "random_state must be None, a whole number .* Got 'seven'"),
        ({"init": "random"}, "init must be one of"),
        ({"relaxation": "cubic"}, "relaxation must be one of"),
        ({"decision": "coin"}, "decision must be one of"),
        ({"shrinkage": 1.5}, "shrinkage must be one of"),
        ({"shrinkage": "some"}, "shrinkage must be one of"),
        ({"temperature": 0}, "temperature must be a positive number. Got 0"),
        ({"temperature": "cold"}, 'temperature must be "auto" or a positive number. Got .cold.'),
        ({"temperature": 1e-60}, r"temperature must be from 1e-30 to 1e\+30. Got 1e-60"),
        ({"label_coupling": 0}, "label_coupling must be a positive number. Got 0"),
        ({"label_coupling": 1e307}, r"label_coupling must be at most 1e\+30. Got 1e\+307"),
        ({"schedule": [1e-40]}, r"schedule must have a temperature from 1e-30 to 1e\+30. Got \[1e-40\]"),
        ({"schedule": [1e40]}, r"schedule must have a temperature from 1e-30 to 1e\+30. Got \[1e\+40\]"),
        ({"saturation": 0}, "saturation must be above 0"),
        ({"perturbation": -1}, r"perturbation must be a number from 0 to 1e\+30. Got -1"),
        ({"perturbation": 1e300}, r"perturbation must be a number from 0 to 1e\+30. Got 1e\+300"),
        ({"n_init": 0}, "n_init must be a positive whole number. Got 0"),
        ({"schedule": []}, "at least one temperature"),
    ],
)
def test_bad_parameters_are_named(options, message):
    table = gaussian()
    with pytest.raises(ValueError, match=message):
        PottsDA(**options).fit(table.X, table.y)
