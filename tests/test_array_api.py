"""Arrays of torch and array-api-strict are fitted on their device and give the results of NumPy.

`python -m pytest -m gpu` runs the same tests on a GPU. It needs torch, scikit-learn and pytest only.
"""

import re

import numpy as np
import pytest
from devices import mover, table
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_wine
from small_problems import gaussian, rare_class, shared_noise, two_classes, wide

import annealed.arrays
import annealed.estimators.samples
import annealed.problems.device_passes
import annealed.problems.linear
from annealed import (
    MELDA,
    AnnealedClassifier,
    AnnealedKernelClassifier,
    AnnealedLDA,
    AnnealedLogisticRegression,
    PooledGaussian,
    PottsDA,
    SecondOrderFeatures,
)
from annealed.arrays import Place, to_host
from annealed.problems import InnerProduct, Quadratic, gibbs
from annealed.problems.device_passes import DevicePasses
from annealed.rows import ArrayDesign, make_design

pytestmark = pytest.mark.usefixtures("dispatch")
ESTIMATORS = {
    "inner_product": AnnealedLogisticRegression(cv=3),
    "no_intercept": AnnealedLogisticRegression(cv=3, fit_intercept=False, penalty_scaling="whiten"),
    "distance": AnnealedLDA(cv=3),
    "kernel": AnnealedKernelClassifier(cv=3),
    "melda": MELDA(cv=3, penalty_scaling="standardize"),
    "melda_reduced": MELDA(1, cv=3, penalty_scaling="standardize"),
    "potts": PottsDA(n_prototypes=4),
}


# --- results equal those of NumPy -------------------------------------------------------------------


@pytest.mark.parametrize("name", ESTIMATORS)
def test_posteriors_and_predictions_equal_those_of_numpy(name, move):
    X, y = table()
    plain, moved = clone(ESTIMATORS[name]).fit(X, y), clone(ESTIMATORS[name]).fit(move(X), move(y))
    posterior = moved.predict_proba(move(X))
    assert type(posterior) is type(move(X)) and posterior.dtype == move(X).dtype
    assert Place.of(posterior).device == Place.of(move(X)).device
    np.testing.assert_allclose(to_host(posterior), plain.predict_proba(X), atol=2e-3)
    is_certain = np.sort(plain.predict_proba(X), axis=1)[:, -1] > 0.51
    np.testing.assert_array_equal(to_host(moved.predict(move(X)))[is_certain], plain.predict(X)[is_certain])
    np.testing.assert_array_equal(to_host(moved.classes_), plain.classes_)


@pytest.mark.parametrize("name", ["inner_product", "distance"])
def test_fitted_arrays_and_the_path_are_of_the_library_of_x(name, move):
    X, y = table()
    plain, moved = clone(ESTIMATORS[name]).fit(X, y), clone(ESTIMATORS[name]).fit(move(X), y)
    assert type(moved.coef_) is type(moved.path_.coef) is type(move(X))
    np.testing.assert_allclose(moved.temperature_, plain.temperature_, rtol=1e-6)
    np.testing.assert_allclose(moved.posterior_scale_, plain.posterior_scale_, rtol=2e-3)
    decision = moved.decision_function(move(X))
    np.testing.assert_allclose(to_host(decision), plain.decision_function(X), atol=2e-2)
    middle = float(np.sqrt(moved.path_.temperatures[2] * moved.path_.temperatures[3]))
    np.testing.assert_allclose(
        to_host(moved.at(middle).predict_proba(move(X))), plain.at(middle).predict_proba(X), atol=2e-3
    )
    shared = np.isin(moved.path_.temperatures.round(9), plain.path_.temperatures.round(9))
    assert shared.sum() >= 8
    for name in ("free_energy", "entropy", "train_score"):
        expected = np.interp(-moved.path_.temperatures[shared], -plain.path_.temperatures, getattr(plain.path_, name))
        np.testing.assert_allclose(getattr(moved.path_, name)[shared], expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("name", ["inner_product", "distance"])
@pytest.mark.parametrize("make", [two_classes, rare_class, wide])
def test_two_classes_rare_classes_and_many_features_are_fitted(name, make, move):
    made = make()
    X, y = np.asarray(made.X), np.asarray(made.y)
    model = clone(ESTIMATORS[name]).set_params(temperature=1.0)
    plain, moved = clone(model).fit(X, y), clone(model).fit(move(X), y)
    np.testing.assert_allclose(to_host(moved.coef_), plain.coef_, atol=2e-2 * np.abs(plain.coef_).max())
    np.testing.assert_allclose(to_host(moved.predict_proba(move(X))), plain.predict_proba(X), atol=5e-3)


def test_float32_stays_float32(move):
    X, y = table()
    plain = AnnealedLogisticRegression(cv=3).fit(X, y)
    moved = AnnealedLogisticRegression(cv=3).fit(move(X.astype(np.float32)), y)
    assert moved.coef_.dtype == move(X.astype(np.float32)).dtype
    np.testing.assert_allclose(
        to_host(moved.predict_proba(move(X.astype(np.float32)))), plain.predict_proba(X), atol=5e-3
    )
    assert moved.path_.converged.all()
    assert moved.path_.certificate[moved.path_.best_index] <= 1e-4


@pytest.mark.parametrize("name", ["inner_product", "distance", "melda", "melda_reduced"])
def test_samples_of_another_precision_are_predicted(name, move):
    X, y = table()
    narrow = X.astype(np.float32)
    for fitted, new in ((X, narrow), (narrow, X)):
        model = clone(ESTIMATORS[name]).fit(move(fitted), y)
        probabilities = model.predict_proba(move(new))
        assert probabilities.dtype == move(new).dtype
        np.testing.assert_allclose(to_host(probabilities), to_host(model.predict_proba(move(fitted))), atol=1e-5)


def test_features_far_from_zero_in_different_units_lose_no_accuracy(move):
    X, y = table()
    X = X * np.array([1e-3, 1.0, 1e3, 1.0]) + np.array([5.0, -1e4, 0, 3.0])
    plain, moved = (
        AnnealedLogisticRegression(temperature=0.5).fit(X, y),
        AnnealedLogisticRegression(temperature=0.5).fit(move(X), y),
    )
    np.testing.assert_allclose(to_host(moved.predict_proba(move(X))), plain.predict_proba(X), atol=1e-3)


def test_labels_weights_and_validation_sets_may_be_arrays_of_the_library(move):
    X, y = table()
    names = np.array(["left", "middle", "right"])[y]
    model = AnnealedLogisticRegression(cv=3).fit(move(X), names)
    predicted = model.predict(move(X[:20]))
    assert isinstance(predicted, np.ndarray) and set(predicted) <= set(names)
    numbers = AnnealedLogisticRegression(cv=3).fit(move(X), y).predict(move(X[:20]))
    assert type(numbers) is type(move(X))

    fixed = AnnealedLogisticRegression(temperature=0.3)
    twice = np.where(np.arange(len(y)) % 3 == 0, 2.0, 1.0)
    repeated = np.repeat(np.arange(len(y)), twice.astype(int))
    weighted = clone(fixed).fit(move(X), move(y), sample_weight=move(twice))
    np.testing.assert_allclose(to_host(weighted.coef_), clone(fixed).fit(X[repeated], y[repeated]).coef_, atol=5e-3)
    balanced = clone(fixed).set_params(class_weight="balanced")
    np.testing.assert_allclose(
        to_host(clone(balanced).fit(move(X), y).coef_), clone(balanced).fit(X, y).coef_, atol=5e-3
    )

    with_holdout = AnnealedLogisticRegression(selection="holdout")
    plain = clone(with_holdout).fit(X[:100], y[:100], X_val=X[100:], y_val=y[100:])
    moved = clone(with_holdout).fit(move(X[:100]), move(y[:100]), X_val=move(X[100:]), y_val=move(y[100:]))
    assert moved.path_.validation_score.shape[1] == 1
    np.testing.assert_allclose(moved.path_.validation_score.max(), plain.path_.validation_score.max(), atol=2e-3)
    plain, moved = clone(with_holdout).fit(X, y), clone(with_holdout).fit(move(X), move(y))
    np.testing.assert_allclose(moved.path_.validation_score.max(), plain.path_.validation_score.max(), atol=2e-3)


def test_discriminant_directions_use_the_class_weights(move):
    X, y = table()
    model = MELDA(1, temperature=0.3, class_weight={0: 1.0, 1: 20.0, 2: 0.05})
    plain, moved = (clone(model).fit(given, y) for given in (X, move(X)))
    np.testing.assert_allclose(to_host(moved.explained_information_), plain.explained_information_, rtol=1e-3)
    np.testing.assert_allclose(moved.gaussian_model().prior, plain.gaussian_model().prior, rtol=1e-2)


def test_scoring_by_another_metric_chooses_on_the_device(move_torch):
    X, y = table()
    plain = AnnealedLogisticRegression(cv=3, scoring="accuracy").fit(X, y)
    moved = AnnealedLogisticRegression(cv=3, scoring="accuracy").fit(move_torch(X), move_torch(y))
    assert moved.path_.score_name == "accuracy"
    np.testing.assert_allclose(moved.path_.validation_score.max(), plain.path_.validation_score.max(), atol=0.02)


def test_the_penalty_scaling_is_chosen_on_the_device(move):
    X, y = load_wine(return_X_y=True)
    plain, moved = (AnnealedLogisticRegression(penalty_scaling="cv").fit(given, y) for given in (X, move(X)))
    assert moved.penalty_scaling_ == plain.penalty_scaling_


@pytest.mark.parametrize("penalty_scaling", ["auto", "half-whiten", "whiten"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_scores_with_more_features_than_samples_equal_those_of_numpy(move, dtype, penalty_scaling):
    """Each fold is whitened by its training samples: whitening by all samples would make them orthogonal, so that
    nothing could be predicted about the held-out ones.
    """
    X, y = shared_noise()
    plain, moved = (
        AnnealedLogisticRegression(penalty_scaling=penalty_scaling).fit(given, y)
        for given in (X, move(X.astype(dtype)))
    )
    expected = "whiten" if penalty_scaling == "auto" else penalty_scaling
    assert moved.penalty_scaling_ == plain.penalty_scaling_ == expected
    best = [model.path_.validation_score.mean(axis=1).max() for model in (plain, moved)]
    np.testing.assert_allclose(best[1], best[0], rtol=3e-2)


def test_products_of_few_samples_in_many_features_are_not_rounded(move_torch):
    X, y = shared_noise()
    X = move_torch(X.astype(np.float32))
    rounded, plain = (AnnealedLogisticRegression(matmul_precision=name).fit(X, y) for name in ("tf32", None))
    np.testing.assert_array_equal(to_host(rounded.coef_), to_host(plain.coef_))


def test_transforms_of_melda_and_their_inverse_equal_those_of_numpy(move):
    X, y = load_wine(return_X_y=True)
    for coordinates in ("whitened", "orthonormal", "paper"):
        plain, moved = (MELDA(coordinates=coordinates, penalty_scaling="auto").fit(given, y) for given in (X, move(X)))
        reduced = moved.transform(move(X))
        assert type(moved.scalings_) is type(reduced) is type(move(X))
        np.testing.assert_allclose(to_host(reduced), plain.transform(X), atol=1e-2 * np.abs(plain.transform(X)).max())
        back = moved.inverse_transform(reduced)
        np.testing.assert_allclose(to_host(back), plain.inverse_transform(plain.transform(X)), atol=1e-2 * X.max())
        np.testing.assert_allclose(moved.gaussian_model().prior, plain.gaussian_model().prior, atol=1e-2)


# --- host and device --------------------------------------------------------------------------------


def test_only_the_labels_are_copied_to_the_host(move, monkeypatch):
    X, y = table(3000)
    sizes = []

    def recorded(array):
        sizes.append(int(np.prod(array.shape)))
        return to_host(array)

    for module in (annealed.arrays, annealed.estimators.samples, annealed.problems.linear):
        monkeypatch.setattr(module, "to_host", recorded)
    for model in (AnnealedLogisticRegression(cv=3), AnnealedLDA(cv=3), AnnealedLogisticRegression(selection="holdout")):
        sizes.clear()
        model.fit(move(X), move(y)).predict(move(X))
        assert sorted(sizes)[-1] == len(y)  # the labels, once, to make the folds
        assert sorted(sizes)[-2] < len(y)  # inner products of L-BFGS


def test_without_array_api_dispatch_tensors_are_converted_to_numpy():
    move = mover("torch")
    X, y = table()
    with config_context(array_api_dispatch=False):
        assert isinstance(AnnealedLogisticRegression(cv=3).fit(move(X), y).coef_, np.ndarray)


@pytest.mark.parametrize("estimator", [PooledGaussian, SecondOrderFeatures])
def test_estimators_without_device_support_refuse_arrays_of_other_libraries(estimator, move):
    X, y = table()
    with pytest.raises(TypeError, match=f"X of {estimator.__name__} must be a NumPy or SciPy array. Got .* Convert X"):
        estimator().fit(move(X), y)
    fitted = estimator().fit(X, y)
    with pytest.raises(TypeError, match="must be a NumPy or SciPy array"):
        (fitted.transform if hasattr(fitted, "transform") else fitted.predict)(move(X))


def test_another_library_is_refused_at_prediction(move):
    X, y = table()
    with pytest.raises(ValueError, match="same namespace .* got X of NumPy"):
        AnnealedLogisticRegression(cv=3).fit(move(X), y).predict(X)
    with pytest.raises(ValueError, match="same namespace .* fitted with NumPy and got X of"):
        AnnealedLogisticRegression(cv=3).fit(X, y).predict(move(X))


@pytest.mark.parametrize("estimator", [AnnealedLogisticRegression, PottsDA])
@pytest.mark.parametrize("device", ["meaningless", 1.5, 2**70, ["cpu"]])
def test_an_unknown_device_is_refused_by_name(estimator, device):
    pytest.importorskip("torch")
    table = gaussian()
    with pytest.raises(ValueError, match=re.escape(f"device={device!r} cannot be used by torch here")):
        estimator(device=device).fit(table.X, table.y)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_path_continues_until_the_difference_of_two_features_is_learned(n_classes, move):
    """The classes are separated by this difference only, which is a thousandth of each feature."""
    generator = np.random.RandomState(0)
    informative, common = generator.randn(600), generator.randn(600)
    y = np.digitize(informative + 0.3 * generator.randn(600), [0.0] if n_classes == 2 else [-0.4, 0.4])
    X = np.column_stack([common, common + 0.001 * informative])
    model = AnnealedLogisticRegression(cv=3).fit(move(X), move(y))
    assert np.mean(to_host(model.predict(move(X))) == y) > 0.75


def test_the_path_of_uninformative_features_ends_early(move):
    generator = np.random.RandomState(0)
    X, y = generator.randn(600, 2), generator.randint(0, 2, 600)
    path = AnnealedLogisticRegression(cv=3).fit(move(X), move(y)).path_
    assert path.temperatures[-1] > 1e-4 * path.temperatures[0]


@pytest.mark.parametrize("name", ["inner_product", "distance", "melda", "potts"])
def test_with_a_named_device_results_are_numpy_arrays(name, move_torch):
    X, y = table()
    device = str(move_torch(X).device)
    plain, sent = clone(ESTIMATORS[name]).fit(X, y), clone(ESTIMATORS[name]).set_params(device=device).fit(X, y)
    assert isinstance(sent.predict_proba(X), np.ndarray)
    np.testing.assert_allclose(sent.predict_proba(X), plain.predict_proba(X), atol=2e-3)
    if name == "inner_product":
        assert isinstance(sent.coef_, np.ndarray) and isinstance(sent.path_.coef, np.ndarray)
        scored = AnnealedLogisticRegression(cv=3, device=device, scoring="accuracy").fit(X, y)
        assert scored.path_.score_name == "accuracy"


def test_samples_that_stay_on_the_host_are_streamed_to_the_device(move_torch):
    X, y = table()
    place = Place.of(move_torch(X))
    weight = np.full((len(y), 1), 1 / len(y))
    design = ArrayDesign(X, place.whole(y), place.row(weight), np.array([float(len(y))]), 3, place)
    assert design.is_streamed
    streamed = InnerProduct().prepare(design)
    plain = InnerProduct().prepare(make_design(X, y, weight, np.array([float(len(y))]), 3))
    found, expected = (problem.objective(problem.start(1.0), 1.0)[0] for problem in (streamed, plain))
    np.testing.assert_allclose(to_host(found), expected, rtol=1e-12)


@pytest.mark.gpu
def test_samples_that_exceed_the_memory_of_a_gpu_are_streamed():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    generator = np.random.RandomState(0)
    y = generator.randint(4, size=40_000)
    X = generator.standard_normal((len(y), 1024)).astype(np.float32)
    X[:, :4] += np.eye(4, dtype=np.float32)[y]
    model = AnnealedLogisticRegression(temperature=0.3, device="cuda")
    known = clone(model).fit(X, y).coef_
    n_times, allowed = 18, 12 * X.nbytes  # 2.9 GB of samples, 2 GB of memory
    X, y = np.tile(X, (n_times, 1)), np.tile(y, n_times)
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(allowed / torch.cuda.mem_get_info()[1])
    try:
        torch.cuda.reset_peak_memory_stats()
        coef = clone(model).fit(X, y).coef_
        assert torch.cuda.max_memory_allocated() <= allowed < 0.7 * X.nbytes
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    np.testing.assert_allclose(coef, known, atol=2e-3 * np.abs(known).max())


def test_scores_do_not_depend_on_whether_held_out_logits_are_kept(move, monkeypatch):
    X, y = table()
    kept = AnnealedLogisticRegression(cv=3).fit(move(X), y)
    monkeypatch.setattr(annealed.arrays.Place, "free_bytes", lambda self: 0)
    recomputed = AnnealedLogisticRegression(cv=3).fit(move(X), y)
    np.testing.assert_allclose(recomputed.path_.validation_score, kept.path_.validation_score, rtol=1e-12)


def test_folds_evaluated_together_score_as_folds_evaluated_one_by_one(move, monkeypatch):
    X, y = table()
    weight = np.linspace(0.5, 2, len(y))
    together = AnnealedLogisticRegression(cv=3).fit(move(X), y, sample_weight=move(weight))
    monkeypatch.setattr(annealed.problems.device_passes, "FEW_COLUMNS", 0)
    one_by_one = AnnealedLogisticRegression(cv=3).fit(move(X), y, sample_weight=move(weight))
    np.testing.assert_allclose(together.path_.validation_score, one_by_one.path_.validation_score, rtol=1e-10)
    np.testing.assert_allclose(together.path_.posterior_scale, one_by_one.path_.posterior_scale, rtol=1e-10)


def test_a_sample_repeated_in_a_training_part_counts_repeatedly(move):
    X, y = table()
    drawn = np.random.RandomState(0).randint(0, len(y), len(y))
    cv = [(drawn, np.setdiff1d(np.arange(len(y)), drawn))]
    model = AnnealedLogisticRegression(schedule=[3.0, 1.0, 0.1], cv=cv, tol=1e-8)
    plain, moved = (clone(model).fit(given, y).path_.validation_score for given in (X, move(X)))
    np.testing.assert_allclose(moved, plain, rtol=1e-5)


# --- precision --------------------------------------------------------------------------------------


def test_the_chosen_model_is_certified_in_full_precision(move_torch):
    X, y = table(2000)
    X = X.astype(np.float32)
    rounded = AnnealedLogisticRegression(cv=3, matmul_precision="tf32").fit(move_torch(X), y)
    path, best = rounded.path_, rounded.path_.best_index
    assert path.certificate[best] <= 1e-4 and path.gradient_norm[best] <= 1e-4
    assert path.converged[best]
    expected = (
        AnnealedLogisticRegression(temperature=rounded.temperature_, tol=1e-6)
        .fit(X.astype(np.float64), y)
        .path_.coef[-1]
    )
    np.testing.assert_allclose(to_host(path.coef[best]), expected, atol=2e-3 * np.abs(expected).max())
    assert f"certified within {path.certificate[best]:.1e}" in repr(path)
    assert "certificate" in path.to_frame()


def test_at_most_three_passes_are_in_full_precision(move_torch, monkeypatch):
    """The final solve evaluates full products once before it and once after it; its steps use corrected fine ones."""
    X, y = table(20_000)
    is_full = []
    original = DevicePasses.sums

    def sums(passes, coef, intercept, fits, quick=False, is_split=False):
        is_full.append(not quick)
        return original(passes, coef, intercept, fits, quick, is_split)

    monkeypatch.setattr(DevicePasses, "sums", sums)
    path = (
        AnnealedLogisticRegression(selection="holdout", matmul_precision="tf32")
        .fit(move_torch(X.astype(np.float32)), y)
        .path_
    )
    assert sum(is_full) <= 3 and path.certificate[path.best_index] <= 1e-4


def test_matmul_precision_is_refused_where_it_does_not_apply(move_torch):
    X, y = table()
    with pytest.raises(ValueError, match="matmul_precision must be None for samples on the host"):
        AnnealedLogisticRegression(matmul_precision="tf32").fit(X.astype(np.float32), y)
    with pytest.raises(ValueError, match="must be None unless X is a float32 torch array"):
        AnnealedLogisticRegression(matmul_precision="tf32").fit(move_torch(X), y)
    with pytest.raises(ValueError, match='must be "tf32" or None'):
        AnnealedLogisticRegression(matmul_precision="half").fit(move_torch(X.astype(np.float32)), y)


def test_products_are_in_full_precision_unless_a_lower_one_is_requested(move_torch):
    place = Place.of(move_torch(np.ones(2, dtype=np.float32)))
    before = place.xp.get_float32_matmul_precision()
    place.xp.set_float32_matmul_precision("high")
    try:
        with place.products_in(None):
            assert place.xp.get_float32_matmul_precision() == "highest"
        with place.products_in("tf32"):
            assert place.xp.get_float32_matmul_precision() == "high"
        assert place.xp.get_float32_matmul_precision() == "high"
    finally:
        place.xp.set_float32_matmul_precision(before)


# --- errors -----------------------------------------------------------------------------------------


def test_what_is_impossible_on_a_device_is_refused(move):
    X, y = table()
    with pytest.raises(ValueError, match="inner-product or the distance family"):
        AnnealedClassifier(Quadratic()).fit(move(X), y)
    with pytest.raises(ValueError, match='needs solver="auto" or "lbfgs"'):
        AnnealedClassifier(InnerProduct(), solver="newton").fit(move(X), y)
    with pytest.raises(ValueError, match="needs rows of NumPy"):
        AnnealedLogisticRegression(selection="loo").fit(move(X), y)
    with pytest.raises(ValueError, match="same number of samples"):
        AnnealedLogisticRegression().fit(move(X), y[:-1])
    with pytest.raises(ValueError, match="must not be negative"):
        AnnealedLogisticRegression().fit(move(X), y, sample_weight=move(-np.ones(len(y))))
    with pytest.raises(ValueError, match="one entry for each sample"):
        AnnealedLogisticRegression().fit(move(X), y, sample_weight=move(np.ones(3)))


def test_the_entropy_of_the_chosen_temperature_is_that_of_its_final_coefficients():
    pytest.importorskip("torch")
    X, y = load_wine(return_X_y=True)
    path = AnnealedLogisticRegression(device="cpu").fit(X, y).path_
    logits = X @ path.coef[path.best_index].T + path.intercept[path.best_index]
    entropy = gibbs.entropy(logits).mean()
    assert path.entropy[path.best_index] == pytest.approx(entropy, rel=1e-6)
