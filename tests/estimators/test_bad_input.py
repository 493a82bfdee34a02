"""Errors about bad input are raised before any computation and say what is wrong, the value, and what to do."""

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from annealed import (
    MELDA,
    AnnealedClassifier,
    AnnealedLDA,
    AnnealedLogisticRegression,
    ExponentialSchedule,
    PooledGaussian,
    PottsDA,
)
from annealed.problems import InnerProduct, Quadratic

X, y = load_iris(return_X_y=True)
CLASSIFIERS = pytest.mark.parametrize(
    "estimator", [AnnealedLogisticRegression, AnnealedLDA, AnnealedClassifier, MELDA, PottsDA, PooledGaussian]
)
ESTIMATORS = pytest.mark.parametrize("estimator", [AnnealedLogisticRegression, AnnealedLDA, AnnealedClassifier])


@ESTIMATORS
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("store", [np.asarray, sparse.csr_array])
def test_nan_and_infinity_are_refused(estimator, value, store):
    bad = X.copy()
    bad[3, 1] = value
    with pytest.raises(ValueError, match="NaN|infinity"):
        estimator().fit(store(bad), y)


@CLASSIFIERS
@pytest.mark.parametrize(("names", "shown"), [([0], "0"), ([1.0], "1.0"), (["setosa"], "'setosa'"), ([True], "True")])
def test_a_single_class_is_refused_by_name(estimator, names, shown):
    with pytest.raises(ValueError) as caught:
        estimator().fit(X[:50], np.array(names)[y[:50]])
    assert str(caught.value) == (
        f"y must contain at least two classes. Got only one class: {shown}. Add samples of another class."
    )


@pytest.mark.parametrize("estimator", [AnnealedLogisticRegression, MELDA, PottsDA, PooledGaussian])
@pytest.mark.parametrize("other", [None, 1])
@pytest.mark.parametrize("replaced", [[0], [2], [0, 1, 2]])
def test_labels_that_are_neither_strings_nor_numbers_are_refused(estimator, other, replaced):
    labels = np.where(np.isin(y, replaced), other, np.array(["a", "b", "c"], dtype=object)[y])
    with pytest.raises(ValueError, match=f"Unknown label type: where y holds .* must be strings. Got {other}. Fill in"):
        estimator().fit(X, labels)


@CLASSIFIERS
@pytest.mark.parametrize("lost", [0.0, 1e-60], ids=["zero", "lost to rounding"])
def test_a_single_class_of_positive_weight_is_refused(estimator, lost):
    with pytest.raises(ValueError) as caught:
        estimator().fit(X, y, sample_weight=np.where(y == 1, 1.0, lost))
    assert str(caught.value) == (
        "y must contain at least two classes with positive weight. Got only one class: 1. "
        "Check sample_weight and class_weight."
    )


@ESTIMATORS
def test_classes_without_any_weight_are_refused(estimator):
    with pytest.raises(ValueError, match="at least two classes with positive weight. Got none. Check sample_weight"):
        estimator(class_weight={0: 0, 1: 0, 2: 1}).fit(X, y, sample_weight=np.where(y == 2, 0.0, 1.0))


@ESTIMATORS
@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.where(np.arange(150) == 4, -2.0, 1), "must not be negative. Got -2.0 at sample 4"),
        (np.zeros(150), "must hold a positive weight"),
        (np.ones(149), r"shape \(150,\). Got shape \(149,\)"),
        (np.where(np.arange(150) == 4, np.nan, 1), "must be finite. Got nan at sample 4"),
    ],
)
def test_invalid_sample_weights_are_refused(estimator, weight, message):
    with pytest.raises(ValueError, match=message):
        estimator().fit(X, y, sample_weight=weight)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"temperature": -0.5}, "temperature must be a positive number. Got -0.5"),
        ({"temperature": 0}, "temperature must be a positive number. Got 0"),
        ({"temperature": "warm"}, 'temperature must be "auto" or a positive number. Got .warm.'),
        ({"selection": 0.1}, "selection must be one of .* Got 0.1. Give a temperature as temperature="),
        ({"scoring": None}, 'scoring must be the name of one scorer, such as "neg_log_loss".* Got None'),
        ({"selection": "best"}, "selection must be one of .* Got 'best'"),
        ({"schedule": [1.0, -0.1]}, "must be a positive number. Got -0.1"),
        ({"schedule": []}, "at least one temperature"),
        ({"schedule": "hot"}, "Got 'hot'"),
        ({"schedule": ExponentialSchedule(1.0, cooling_rate=1.5)}, "cooling_rate must be below 1"),
        ({"schedule": ExponentialSchedule(0.1, stop=1.0)}, "must not be colder than stop"),
        ({"cv": 1}, "at least 2 folds. Got 1"),
        ({"rule": "worst"}, "Got 'worst'"),
        ({"tol": 0}, "tol must be a positive number. Got 0"),
        ({"max_iter": -1}, "max_iter must be a positive whole number. Got -1"),
        (
            {"class_weight": {9: 1.0}},
            "class_weight must name every class of y, or only classes of y. Got unknown classes .*9",
        ),
        ({"class_weight": {0: 10**400}}, "class_weight of class 0 must be a finite number of at least 0"),
        ({"temperature": 10**400}, "temperature must be a positive number. Got 1000"),
        ({"rule": np.array(["best", "best"])}, "rule must be one of .* Got array"),
        ({"matmul_precision": np.ones(2)}, 'matmul_precision must be "tf32" or None'),
        ({"cv": [(0, 1)]}, r"cv must give lists of sample indices, or boolean masks. Got shape \(\)"),
        ({"cv": b"auto"}, "cv must be a number of folds, a splitter, or pairs of .* Got b'auto': cannot unpack"),
        ({"cv": [([0], [1], [2])]}, "or pairs of training and test rows. Got .* too many values to unpack"),
        ({"class_weight": "heavy"}, "Got 'heavy'"),
        ({"class_weight": {0: -1.0}}, "class_weight of class 0 must be a finite number of at least 0. Got -1.0"),
        ({"class_weight": {1: np.nan}}, "class_weight of class 1 must be .* Got nan"),
        ({"class_weight": np.ones(3)}, "class_weight must be a dict"),
        ({"max_iter": 10.5}, "max_iter must be a positive whole number. Got 10.5"),
        ({"calibrate": "x"}, "calibrate must be True or False. Got 'x'"),
        ({"rule": "one_standard_error", "selection": "holdout"}, "needs several folds"),
    ],
)
@ESTIMATORS
def test_invalid_parameters_are_refused(estimator, parameters, message):
    with pytest.raises(ValueError, match=message):
        estimator(**parameters).fit(X, y)


@pytest.mark.parametrize("seed", [2**40, -1, "0"])
@pytest.mark.parametrize("estimator", [AnnealedLogisticRegression, AnnealedLDA, MELDA, PottsDA])
def test_an_invalid_seed_is_refused(estimator, seed):
    with pytest.raises(ValueError, match=f"random_state must be .* Got {seed!r}"):
        estimator(random_state=seed).fit(X, y)


def test_a_penalty_that_overflows_is_refused():
    with pytest.raises(
        ValueError, match="temperature times l2_strength is out of range: C would be .* Give both nearer"
    ):
        AnnealedLogisticRegression(l2_strength=1e300, temperature=1e9).fit(X, y)


@pytest.mark.parametrize(("unit", "l2_strength"), [(1e140, 1e-200), (1, 1e-310), (1, 5e-324)])
def test_a_first_temperature_that_overflows_is_refused(unit, l2_strength):
    model = AnnealedLogisticRegression(penalty_scaling="none", l2_strength=l2_strength)
    with pytest.raises(ValueError, match="The first temperature must be a positive number. Got inf, found from X and"):
        model.fit(unit * X, y)


@pytest.mark.parametrize("anchor", [0, 1.0])
@pytest.mark.parametrize("settings", [{"temperature": 1e-300}, {"schedule": [1e-300]}])
def test_a_temperature_at_which_distances_overflow_is_refused(settings, anchor):
    with pytest.raises(ValueError, match="temperature must be so high .* Got 1e-300. Raise it."):
        AnnealedLDA(**settings, anchor=anchor).fit(X, y)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (AnnealedLogisticRegression(l2_strength=5e-324), "The first temperature must be a positive number. Got inf"),
        (AnnealedLDA(temperature=1.7e308), r"at temperature 1.7e\+308 has no finite free energy"),
        (AnnealedLogisticRegression(class_weight={0: 1e300}), "must add up to a finite number. Got inf"),
    ],
)
def test_paths_out_of_the_range_of_floats_are_refused(model, message):
    with warnings.catch_warnings(), pytest.raises(ValueError, match=message):
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y, sample_weight=np.full(len(y), 1e10))


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (AnnealedLDA(), "coef"),
        (AnnealedLogisticRegression(), "coef"),
        (MELDA(temperature=1e3), "scalings"),
        (MELDA(temperature=1e3, coordinates="orthonormal", n_components=1), "scalings"),
    ],
)
def test_a_model_that_its_precision_cannot_hold_is_refused(model, name):
    tiny = (1e-40 * X).astype(np.float32)
    with pytest.raises(ValueError, match=f"has no finite {name} in float32"):
        model.fit(tiny, y)
    with pytest.raises(NotFittedError):
        model.predict(tiny)


@pytest.mark.parametrize("scale", [1.0, 10.0], ids=["as solved", "calibrated"])
def test_a_model_at_another_temperature_must_fit_its_precision(scale):
    point = AnnealedLogisticRegression(schedule=[1.0, 0.1]).fit(X.astype(np.float32), y)._point
    arrays = {"coef": np.full((3, 4), 1e39 / scale), "intercept": np.zeros(3)}
    with pytest.raises(ValueError, match="at temperature 0.5 has no finite coef in float32"):
        point.moved(arrays, 0.5, scale).weights()


@pytest.mark.filterwarnings("ignore:Every class has a single sample")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "model", [AnnealedLDA(), AnnealedLDA(anchor=0), MELDA(), AnnealedLogisticRegression(penalty_scaling="whiten")]
)
def test_a_few_enormous_weights_count_alone(model, dtype):
    """At both ends of the path, too."""
    weight, heavy = np.ones(len(y)), [0, 60, 120]
    weight[heavy] = 1e300
    rows = X.astype(dtype)
    weighted, alone = clone(model).fit(rows, y, sample_weight=weight), clone(model).fit(rows[heavy], y[heavy])
    ends = [weighted, weighted.at(weighted.path_.temperatures[0]), weighted.at(weighted.path_.temperatures[-1])]
    for each in ends:
        assert np.isfinite(each.predict_log_proba(rows)).all()
        if hasattr(each, "transform"):
            assert np.isfinite(each.transform(rows)).all()
    np.testing.assert_allclose(weighted.predict_proba(rows), alone.predict_proba(rows), atol=1e-6)


@pytest.mark.parametrize("penalty_scaling", ["standardize", "half-whiten", "whiten"])
@pytest.mark.parametrize("spread", [30, 300])
def test_weights_over_hundreds_of_orders_of_magnitude_give_probabilities(penalty_scaling, spread):
    weight = np.exp(np.random.default_rng(0).normal(scale=spread, size=len(y)))
    weight[[0, 60, 120]] = weight.max()  # so that no class has lost its weight
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # too few samples are left for the folds
        model = AnnealedLogisticRegression(penalty_scaling=penalty_scaling).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)
    assert model.predict(X[[0, 60, 120]]).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "logits", [[np.nan, 0, 0], [0, np.inf, 0], [-np.inf] * 3, [0, np.nan, -np.inf]], ids=["nan", "inf", "-inf", "both"]
)
def test_logits_that_are_not_finite_are_refused(logits):
    """In one sample of many. A class of prior 0 may have -inf, and finite logits may be as large as floats are."""
    model = AnnealedLogisticRegression().fit(X, y)
    made = np.zeros((len(X), 3))
    made[7], made[8] = logits, [-np.inf, 1e308, 0]
    model._logits = lambda rows, method: made
    for predict in (model.predict, model.predict_proba, model.predict_log_proba, model.decision_function):
        with pytest.raises(ValueError, match=f"{predict.__name__} of AnnealedLogisticRegression has no finite logits"):
            predict(X)
    made[7] = made[9] = [1e308, 0, 0]
    assert model.predict(X)[7:10].tolist() == [0, 1, 0]
    assert np.isfinite(model.predict_proba(X)).all()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (AnnealedLogisticRegression(l2_strength=0), "l2_strength must be a positive number. Got 0"),
        (AnnealedLogisticRegression(penalty_scaling="cosine"), "penalty_scaling must be one of .* Got 'cosine'"),
        (AnnealedLogisticRegression(penalty_scaling=np.ones(2)), "penalty_scaling must be one of .* Got array"),
        (AnnealedLogisticRegression(fit_intercept=np.ones(2)), "fit_intercept must be True or False. Got array"),
        (AnnealedLDA(solver=np.ones(2)), "solver must be one of .* Got array"),
        (AnnealedLDA(shrinkage=np.ones(2)), "shrinkage .* Got array"),
        (AnnealedLDA(covariance=["auto"]), "covariance must be one of .* Got \\['auto'\\]"),
        (MELDA(coordinates=np.ones(2)), "coordinates must be one of .* Got array"),
        (PottsDA(decision=np.ones(2)), "decision must be one of .* Got array"),
        (AnnealedLDA(covariance="full"), "covariance must be one of .* Got 'full'"),
        (AnnealedLDA(shrinkage=1.5), "shrinkage .* Got 1.5"),
        (AnnealedLDA(anchor=-1), "anchor must be a number that is not negative. Got -1"),
        (AnnealedLDA(init="corners"), "init must be one of .* Got 'corners'"),
        (AnnealedLDA(inner_iterations=0), "inner_iterations must be a positive whole number. Got 0"),
        (AnnealedLDA(solver="adam"), "solver must be one of .* Got 'adam'"),
        (AnnealedLDA(solver="newton"), "needs a family with a Hessian"),
    ],
)
def test_invalid_parameters_of_a_family_are_refused(model, message):
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)


def test_an_objective_of_the_wrong_type_is_refused():
    model = AnnealedClassifier("linear")
    with pytest.raises(TypeError, match="objective must be an Objective"):
        model.fit(X, y)
    assert "linear" in model._repr_html_()


def test_quadratic_scores_refuse_sparse_x():
    with pytest.raises(TypeError, match="dense data is required"):
        AnnealedClassifier(Quadratic()).fit(sparse.csr_array(X), y)


@ESTIMATORS
def test_prediction_needs_a_fit_and_the_same_features(estimator):
    with pytest.raises(NotFittedError):
        estimator().predict(X)
    with pytest.raises(NotFittedError):
        estimator().at(0.1)
    model = estimator(schedule=[1.0, 0.1]).fit(X, y)
    with pytest.raises(ValueError, match="3 features"):
        model.predict(X[:, :3])


def test_a_temperature_outside_the_path_is_refused():
    model = AnnealedLogisticRegression(schedule=[1.0, 0.1]).fit(X, y)
    with pytest.raises(ValueError, match="between 0.1 and 1. Got 5.0"):
        model.at(5.0)
    with pytest.raises(ValueError, match="must be a positive number. Got -1"):
        model.at(-1)


def test_an_invalid_validation_set_is_refused():
    model = AnnealedLogisticRegression(selection="holdout")
    with pytest.raises(ValueError, match=r"y_val must contain only labels of y. Got \[7\]. Known labels: \[0, 1"):
        model.fit(X, y, X_val=X[:5], y_val=np.array([0, 0, 7, 0, 1]))
    with pytest.raises(ValueError, match="given together"):
        model.fit(X, y, X_val=X[:5])
    with pytest.raises(ValueError, match="3 features"):
        model.fit(X, y, X_val=X[:5, :3], y_val=y[:5])
    with pytest.raises(ValueError, match='Set selection="holdout"'):
        AnnealedLogisticRegression().fit(X, y, X_val=X[:5], y_val=y[:5])


def test_an_unknown_argument_of_fit_is_refused():
    with pytest.raises(TypeError, match="enable_metadata_routing"):
        AnnealedLogisticRegression().fit(X, y, colour="red")


@pytest.mark.parametrize("estimator", [AnnealedLogisticRegression, AnnealedLDA])
def test_a_class_of_one_sample_is_in_the_training_part_of_every_fold_without_a_warning(estimator):
    labels = np.array(["a", "b", "c"], dtype=object)[y]
    labels[0] = "rare"
    model = estimator().fit(X, labels)
    assert "rare" in model.classes_
    assert model.path_.validation_score.shape[1] == 5
    assert np.isfinite(model.path_.validation_score).all()
    assert np.isfinite(model.predict_proba(X)).all()


def test_a_class_with_fewer_samples_than_folds_causes_no_warning():
    labels = y.copy()
    labels[[0, 60]] = 3
    model = AnnealedLogisticRegression().fit(X, labels)
    assert model.path_.validation_score.shape[1] == 5


def test_fewer_samples_than_folds_in_every_class_reduce_the_folds_with_a_warning():
    rows = [0, 1, 60, 61, 120, 121]
    with pytest.warns(UserWarning, match="largest class has 2 samples, fewer than the 5 folds: 2 folds"):
        model = AnnealedLogisticRegression().fit(X[rows], y[rows])
    assert model.path_.validation_score.shape[1] == 2
    with pytest.warns(UserWarning) as caught:
        AnnealedLogisticRegression().fit(X[[0, 60, 120]], y[[0, 60, 120]])
    assert any("nothing can be held out" in str(warning.message) for warning in caught)


def test_the_warning_of_no_convergence_names_the_temperature_and_the_remedy():
    model = AnnealedClassifier(InnerProduct(), schedule=[1.0, 1e-6], solver="lbfgs", selection="last", max_iter=2)
    with pytest.warns(ConvergenceWarning, match=r"first at .*Raise max_iter \(now 2\)"):
        model.fit(X, y)


@pytest.mark.parametrize("settings", [{"tol": 1e300}, {"max_iter": 2**70}])
@pytest.mark.parametrize("estimator", [AnnealedLogisticRegression, AnnealedLDA, MELDA])
def test_numbers_beyond_all_use_mean_no_limit(estimator, settings):
    assert np.isfinite(estimator(schedule=[1.0, 0.1], **settings).fit(X, y).predict_proba(X)).all()


@pytest.mark.parametrize("settings", [{"max_iter": 1}, {"max_iter": 2}])
def test_temperatures_that_do_not_converge_have_certificates(settings):
    with pytest.warns(ConvergenceWarning):
        path = AnnealedLogisticRegression(**settings).fit(X, y).path_
    assert not path.converged.all()
    assert np.isfinite(path.certificate).all()


@pytest.mark.parametrize("max_iter", [1, 3])
def test_free_energies_stay_bounded_if_solves_stop_early(max_iter):
    """Interpolating polynomials through points far from their minima would diverge."""
    with pytest.warns(ConvergenceWarning):
        path = AnnealedClassifier(InnerProduct(), solver="lbfgs", max_iter=max_iter).fit(X, y).path_
    assert (path.free_energy / path.temperatures).max() < 5 * np.log(3)  # at the hot end it is log(3)
    assert len(path) < 80


@pytest.mark.parametrize("unit", [1e100, 1e140])
def test_unscaled_features_may_be_so_large_that_their_squares_barely_fit_a_float(unit):
    assert AnnealedLogisticRegression(penalty_scaling="none").fit(unit * X, y).score(unit * X, y) > 0.95


@pytest.mark.parametrize("temperature", [1e-20, 1e-30])
def test_an_almost_vanishing_penalty_gives_finite_posteriors(temperature):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = AnnealedLogisticRegression(schedule=[1.0, temperature], selection="last").fit(X, y)
    assert np.isfinite(model.predict_proba(X)).all()


@pytest.mark.parametrize("estimator", [AnnealedLogisticRegression, AnnealedLDA, MELDA, PooledGaussian])
def test_a_sparse_column_whose_squares_overflow_is_refused(estimator):
    extreme = sparse.csr_array(X)
    extreme.data[2] = 1.7e308
    with pytest.raises(ValueError, match="Column 2 of X holds numbers so large"):
        estimator().fit(extreme, y)


@pytest.mark.parametrize("estimator", [AnnealedLogisticRegression, AnnealedLDA, AnnealedClassifier, MELDA, PottsDA])
@pytest.mark.parametrize(("factor", "what"), [(1e200, "large"), (1e-200, "small")])
def test_columns_whose_squares_overflow_or_underflow_are_refused(estimator, factor, what):
    extreme = X.copy()
    extreme[:, 2] *= factor
    with pytest.raises(ValueError, match=f"Column 2 of X holds numbers so {what}"):
        estimator().fit(extreme, y)


@pytest.mark.parametrize("value", ["a", None, np.inf, np.nan, -1.0])
def test_an_invalid_l2_strength_is_refused(value):
    with pytest.raises(ValueError, match="l2_strength must be a positive number"):
        AnnealedLogisticRegression(l2_strength=value).fit(X, y)


@pytest.mark.parametrize("settings", [{"anchor": "a"}, {"anchor": np.inf}, {"inner_iterations": 2.5}])
def test_invalid_settings_of_annealed_lda_are_refused(settings):
    with pytest.raises(ValueError, match="must be a"):
        AnnealedLDA(**settings).fit(X, y)


@pytest.mark.parametrize("unit", [1.0, 1e-150])
@pytest.mark.parametrize(
    "model", [AnnealedLogisticRegression(), AnnealedLDA(), MELDA(), MELDA(n_components=1), PooledGaussian()]
)
@pytest.mark.parametrize("make_rows", [np.asarray, sparse.csr_array])
def test_samples_whose_logits_overflow_are_classified_by_their_direction(model, make_rows, unit):
    X, y = load_iris(return_X_y=True)
    model = clone(model).fit(unit * X, y)
    directions = np.random.default_rng(0).normal(size=(50, 4))
    far = model.predict_proba(make_rows(directions * 3e307))
    near = model.predict_proba(make_rows(directions * 1e200))
    np.testing.assert_allclose(far, near, atol=1e-12)
    assert np.isfinite(model.decision_function(make_rows(directions * 3e307))).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"n_components": 5}, "from 1 to min.* = 2. Got 5"), ({"reference_class": "x"}, "a class of y. Got 'x'")],
)
def test_invalid_parameters_of_melda_are_refused_before_any_fit(settings, message, monkeypatch):
    monkeypatch.setattr(AnnealedClassifier, "fit", lambda *_, **__: pytest.fail("a path was computed"))
    with pytest.raises(ValueError, match=message):
        MELDA(**settings).fit(X, y)


def test_messages_abbreviate_long_lists():
    for call in (
        lambda: AnnealedLogisticRegression().fit(X, y, sample_weight=["a"] * len(y)),
        lambda: AnnealedLogisticRegression(schedule=["a"] * 1000).fit(X, y),
    ):
        with pytest.raises(ValueError, match=r"(sample_weight|schedule) must hold .* Got \['a', 'a'") as caught:
            call()
        assert len(str(caught.value)) < 200


def test_of_several_errors_a_single_class_is_reported_first():
    with pytest.raises(ValueError, match="at least two classes"):
        MELDA(n_components=2).fit(X, np.zeros(len(y)))
