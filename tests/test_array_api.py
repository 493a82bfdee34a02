"""Rows of torch and array-api-strict are fitted where they are, and give what NumPy gives.

`python -m pytest -m gpu` runs the same on a GPU, with torch, scikit-learn and pytest alone.
"""

import numpy as np
import pytest
from problems import gaussian, rare_class, two_classes, wide
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_wine

import annealed.arrays
import annealed.estimators.on_device
import annealed.estimators.potts_da
import annealed.objectives.array_linear
import annealed.prototype_search
from annealed import MELDA, AnnealedClassifier, DistanceADA, InnerProductADA, PottsDA
from annealed.arrays import Place, combined, is_foreign, stacked, take_rows, to_host
from annealed.design import ArrayDesign, make_design
from annealed.objectives import Distance, InnerProduct, Quadratic, gibbs
from annealed.objectives.array_families import on_device
from annealed.objectives.array_gibbs import fused_kernel, loss_and_residual, scaled_losses, scaled_moments
from annealed.objectives.array_potts import ArrayLabelledRows
from annealed.objectives.device_rows import HalfRows, TurnedRows
from annealed.objectives.potts import LabelledRows, PottsState
from annealed.solvers import LBFGS, ArrayLBFGS

NAMESPACES = ["torch", "strict", pytest.param("cuda", marks=pytest.mark.gpu)]
TORCH = ["torch", pytest.param("cuda", marks=pytest.mark.gpu)]
ESTIMATORS = {
    "inner_product": InnerProductADA(cv=3),
    "no_intercept": InnerProductADA(cv=3, fit_intercept=False, metric="covariance"),
    "distance": DistanceADA(cv=3),
    "melda": MELDA(cv=3, metric="diagonal"),
    "melda_reduced": MELDA(1, cv=3, metric="diagonal"),
    "potts": PottsDA(n_prototypes=4),
}


def mover(name):
    """A function that takes NumPy arrays to a namespace, and away from the host where that can be."""
    if name == "strict":
        strict = pytest.importorskip("array_api_strict")
        return lambda array: strict.asarray(np.array(array), device=strict.Device("device1"))
    torch = pytest.importorskip("torch")
    if name == "cuda" and not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    device = "cuda" if name == "cuda" else "cpu"
    return lambda array: torch.asarray(np.array(array), device=device)


@pytest.fixture(params=NAMESPACES)
def move(request):
    return mover(request.param)


@pytest.fixture(params=TORCH)
def move_torch(request):
    return mover(request.param)


@pytest.fixture(autouse=True)
def dispatch():
    with config_context(array_api_dispatch=True):
        yield


def table(n_samples=150):
    made = gaussian(n_samples=n_samples)
    return np.asarray(made.X), np.asarray(made.y)


# --- the same as NumPy ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ESTIMATORS)
def test_fit_is_that_of_numpy(name, move):
    X, y = table()
    plain, moved = clone(ESTIMATORS[name]).fit(X, y), clone(ESTIMATORS[name]).fit(move(X), move(y))
    posterior = moved.predict_proba(move(X))
    assert type(posterior) is type(move(X)) and posterior.dtype == move(X).dtype
    assert Place.of(posterior).device == Place.of(move(X)).device
    np.testing.assert_allclose(to_host(posterior), plain.predict_proba(X), atol=2e-3)
    certain = np.sort(plain.predict_proba(X), axis=1)[:, -1] > 0.51
    np.testing.assert_array_equal(to_host(moved.predict(move(X)))[certain], plain.predict(X)[certain])
    np.testing.assert_array_equal(to_host(moved.classes_), plain.classes_)


@pytest.mark.parametrize("name", ["inner_product", "distance"])
def test_fitted_arrays_and_path_follow_x(name, move):
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
        ours = np.interp(-moved.path_.temperatures[shared], -plain.path_.temperatures, getattr(plain.path_, name))
        np.testing.assert_allclose(getattr(moved.path_, name)[shared], ours, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("name", ["inner_product", "distance"])
@pytest.mark.parametrize("made", [two_classes, rare_class, wide])
def test_two_rare_and_wide_classes(name, made, move):
    rows = made()
    X, y = np.asarray(rows.X), np.asarray(rows.y)
    model = clone(ESTIMATORS[name]).set_params(selection=1.0)
    plain, moved = clone(model).fit(X, y), clone(model).fit(move(X), y)
    np.testing.assert_allclose(to_host(moved.coef_), plain.coef_, atol=2e-2 * np.abs(plain.coef_).max())
    np.testing.assert_allclose(to_host(moved.predict_proba(move(X))), plain.predict_proba(X), atol=5e-3)


def test_single_precision_stays_single(move):
    X, y = table()
    plain = InnerProductADA(cv=3).fit(X, y)
    moved = InnerProductADA(cv=3).fit(move(X.astype(np.float32)), y)
    assert moved.coef_.dtype == move(X.astype(np.float32)).dtype
    np.testing.assert_allclose(
        to_host(moved.predict_proba(move(X.astype(np.float32)))), plain.predict_proba(X), atol=5e-3
    )
    assert moved.path_.converged.all()
    assert moved.path_.certificate[moved.path_.best_index] <= 1e-4


def test_far_centre_and_units_cost_no_digits(move):
    X, y = table()
    X = X * np.array([1e-3, 1.0, 1e3, 1.0]) + np.array([5.0, -1e4, 0, 3.0])
    plain, moved = InnerProductADA(selection=0.5).fit(X, y), InnerProductADA(selection=0.5).fit(move(X), y)
    np.testing.assert_allclose(to_host(moved.predict_proba(move(X))), plain.predict_proba(X), atol=1e-3)


def test_labels_weights_and_validation_sets(move):
    X, y = table()
    names = np.array(["left", "middle", "right"])[y]
    model = InnerProductADA(cv=3).fit(move(X), names)
    said = model.predict(move(X[:20]))
    assert isinstance(said, np.ndarray) and set(said) <= set(names)
    numbers = InnerProductADA(cv=3).fit(move(X), y).predict(move(X[:20]))
    assert type(numbers) is type(move(X))

    fixed = InnerProductADA(selection=0.3)
    twice = np.where(np.arange(len(y)) % 3 == 0, 2.0, 1.0)
    repeated = np.repeat(np.arange(len(y)), twice.astype(int))
    weighted = clone(fixed).fit(move(X), move(y), sample_weight=move(twice))
    np.testing.assert_allclose(to_host(weighted.coef_), clone(fixed).fit(X[repeated], y[repeated]).coef_, atol=5e-3)
    balanced = clone(fixed).set_params(class_weight="balanced")
    np.testing.assert_allclose(
        to_host(clone(balanced).fit(move(X), y).coef_), clone(balanced).fit(X, y).coef_, atol=5e-3
    )

    held = InnerProductADA(selection="holdout")
    plain = clone(held).fit(X[:100], y[:100], X_val=X[100:], y_val=y[100:])
    moved = clone(held).fit(move(X[:100]), move(y[:100]), X_val=move(X[100:]), y_val=move(y[100:]))
    assert moved.path_.validation_score.shape[1] == 1
    np.testing.assert_allclose(moved.path_.validation_score.max(), plain.path_.validation_score.max(), atol=2e-3)
    own = clone(held).fit(move(X), move(y))
    best = clone(held).fit(X, y).path_.validation_score.max()
    np.testing.assert_allclose(own.path_.validation_score.max(), best, atol=2e-3)


def test_a_scorer_of_ones_own(move_torch):
    X, y = table()
    plain = InnerProductADA(cv=3, scoring="accuracy").fit(X, y)
    moved = InnerProductADA(cv=3, scoring="accuracy").fit(move_torch(X), move_torch(y))
    assert moved.path_.score_name == "accuracy"
    np.testing.assert_allclose(moved.path_.validation_score.max(), plain.path_.validation_score.max(), atol=0.02)


def test_metric_is_validated_on_the_device(move):
    X, y = load_wine(return_X_y=True)
    plain, moved = (InnerProductADA(metric="validated").fit(own, y) for own in (X, move(X)))
    assert moved.metric_ == plain.metric_


def test_melda_transforms_back(move):
    X, y = load_wine(return_X_y=True)
    for coordinates in ("whitened", "orthonormal", "paper"):
        plain, moved = (MELDA(coordinates=coordinates, metric="auto").fit(own, y) for own in (X, move(X)))
        reduced = moved.transform(move(X))
        assert type(moved.scalings_) is type(reduced) is type(move(X))
        np.testing.assert_allclose(to_host(reduced), plain.transform(X), atol=1e-2 * np.abs(plain.transform(X)).max())
        back = moved.inverse_transform(reduced)
        np.testing.assert_allclose(to_host(back), plain.inverse_transform(plain.transform(X)), atol=1e-2 * X.max())
        np.testing.assert_allclose(moved.gaussian_model().prior, plain.gaussian_model().prior, atol=1e-2)


# --- where things stay ------------------------------------------------------------------------------


def test_nothing_as_long_as_the_rows_comes_to_the_host(move, monkeypatch):
    X, y = table(3000)
    sizes = []

    def watched(array):
        sizes.append(int(np.prod(array.shape)))
        return to_host(array)

    for module in (annealed.arrays, annealed.estimators.on_device, annealed.objectives.array_linear):
        monkeypatch.setattr(module, "to_host", watched)
    for model in (InnerProductADA(cv=3), DistanceADA(cv=3), InnerProductADA(selection="holdout")):
        sizes.clear()
        model.fit(move(X), move(y)).predict(move(X))
        assert sorted(sizes)[-1] == len(y)  # the labels, once, to deal the folds
        assert sorted(sizes)[-2] < 1000


def test_torch_tensors_are_numpy_without_dispatch():
    move = mover("torch")
    X, y = table()
    with config_context(array_api_dispatch=False):
        assert isinstance(InnerProductADA(cv=3).fit(move(X), y).coef_, np.ndarray)


def test_another_library_is_refused_at_prediction(move):
    X, y = table()
    with pytest.raises(ValueError, match="same namespace .* got X of NumPy"):
        InnerProductADA(cv=3).fit(move(X), y).predict(X)
    with pytest.raises(ValueError, match="same namespace .* fitted with NumPy and got X of"):
        InnerProductADA(cv=3).fit(X, y).predict(move(X))


def test_a_device_that_torch_does_not_have_is_named():
    pytest.importorskip("torch")
    table = gaussian()
    with pytest.raises(ValueError, match="device='meaningless' cannot be used by torch here"):
        InnerProductADA(device="meaningless").fit(table.X, table.y)


@pytest.mark.parametrize("name", ["inner_product", "distance", "melda", "potts"])
def test_a_named_device_gives_numpy_back(name, move_torch):
    X, y = table()
    device = str(move_torch(X).device)
    plain, sent = clone(ESTIMATORS[name]).fit(X, y), clone(ESTIMATORS[name]).set_params(device=device).fit(X, y)
    assert isinstance(sent.predict_proba(X), np.ndarray)
    np.testing.assert_allclose(sent.predict_proba(X), plain.predict_proba(X), atol=2e-3)
    if name == "inner_product":
        assert isinstance(sent.coef_, np.ndarray) and isinstance(sent.path_.coef, np.ndarray)
        scored = InnerProductADA(cv=3, device=device, scoring="accuracy").fit(X, y)
        assert scored.path_.score_name == "accuracy"


def test_rows_without_room_are_streamed(move_torch):
    X, y = table()
    place = Place.of(move_torch(X))
    weight = np.full((len(y), 1), 1 / len(y))
    design = ArrayDesign(X, place.whole(y), place.row(weight), np.array([float(len(y))]), 3, place)
    assert design.is_streamed
    streamed = on_device(InnerProduct().prepare(design))
    plain = InnerProduct().prepare(make_design(X, y, weight, np.array([float(len(y))]), 3))
    found = streamed.objective(streamed.start(1.0), 1.0, slice(0, 1))
    value, *_ = plain.objective(plain.start(1.0), 1.0)
    np.testing.assert_allclose(to_host(found.value), value, rtol=1e-12)


@pytest.mark.gpu
def test_rows_beyond_the_memory_of_a_gpu_are_streamed():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    generator = np.random.RandomState(0)
    y = generator.randint(4, size=40_000)
    X = generator.standard_normal((len(y), 1024)).astype(np.float32)
    X[:, :4] += np.eye(4, dtype=np.float32)[y]
    model = InnerProductADA(selection=0.3, device="cuda")
    known = clone(model).fit(X, y).coef_
    n_times, allowed = 18, 12 * X.nbytes  # 2.9 GB of rows, 2 GB for them
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


def test_held_out_logits_need_not_be_kept(move, monkeypatch):
    X, y = table()
    kept = InnerProductADA(cv=3).fit(move(X), y)
    monkeypatch.setattr(annealed.estimators.on_device, "KEPT_BYTES", 0)
    made_again = InnerProductADA(cv=3).fit(move(X), y)
    np.testing.assert_allclose(made_again.path_.validation_score, kept.path_.validation_score, rtol=1e-12)


def test_folds_are_judged_together_as_one_by_one(move, monkeypatch):
    X, y = table()
    weight = np.linspace(0.5, 2, len(y))
    together = InnerProductADA(cv=3).fit(move(X), y, sample_weight=move(weight))
    monkeypatch.setattr(annealed.objectives.array_linear, "FEW_COLUMNS", 0)
    one_by_one = InnerProductADA(cv=3).fit(move(X), y, sample_weight=move(weight))
    np.testing.assert_allclose(together.path_.validation_score, one_by_one.path_.validation_score, rtol=1e-10)
    np.testing.assert_allclose(together.path_.posterior_scale, one_by_one.path_.posterior_scale, rtol=1e-10)


# --- precision --------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_rounded_products_are_polished_and_certified(precision, move_torch):
    X, y = table(2000)
    X = X.astype(np.float32)
    rounded = InnerProductADA(cv=3, precision=precision).fit(move_torch(X), y)
    path, best = rounded.path_, rounded.path_.best_index
    assert path.certificate[best] <= 1e-4 and path.gradient_norm[best] <= 1e-4
    assert path.converged[best]
    known = InnerProductADA(selection=rounded.temperature_, tol=1e-6).fit(X.astype(np.float64), y).path_.coef[-1]
    np.testing.assert_allclose(to_host(path.coef[best]), known, atol=2e-3 * np.abs(known).max())
    assert f"certified within {path.certificate[best]:.1e}" in repr(path)
    assert "certificate" in path.to_frame()


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_refined_products_leave_little_to_full_ones(precision, move_torch, monkeypatch):
    """The polish looks at full products once before it and once after: fine ones, corrected, do the rest."""
    X, y = table(20_000)
    full = []
    original = annealed.objectives.array_linear.ArrayProblem.objective

    def objective(problem, parameters, temperature, fits, quick=False, learn=False, fine=False):
        full.append(not quick)
        return original(problem, parameters, temperature, fits, quick, learn, fine)

    monkeypatch.setattr(annealed.objectives.array_linear.ArrayProblem, "objective", objective)
    path = InnerProductADA(selection="holdout", precision=precision).fit(move_torch(X.astype(np.float32)), y).path_
    assert sum(full) <= 3 and path.certificate[path.best_index] <= 1e-4


def test_precision_is_refused_where_it_means_nothing(move_torch):
    X, y = table()
    with pytest.raises(ValueError, match="is for rows on a device"):
        InnerProductADA(precision="tf32").fit(X.astype(np.float32), y)
    with pytest.raises(ValueError, match="rounds products of float32"):
        InnerProductADA(precision="tf32").fit(move_torch(X), y)
    with pytest.raises(ValueError, match="precision must be one of"):
        InnerProductADA(precision="half").fit(move_torch(X.astype(np.float32)), y)
    with pytest.raises(ValueError, match="needs the inner-product family"):
        DistanceADA(precision="bf16").fit(move_torch(X.astype(np.float32)), y)


def test_products_are_in_full_precision_unless_asked(move_torch):
    place = Place.of(move_torch(np.ones(2, dtype=np.float32)))
    before = place.xp.get_float32_matmul_precision()
    place.xp.set_float32_matmul_precision("high")
    try:
        with place.products_in(None):
            assert place.xp.get_float32_matmul_precision() == "highest"
        for precision in ("tf32", "bf16"):
            with place.products_in(precision):
                assert place.xp.get_float32_matmul_precision() == "high"
        assert place.xp.get_float32_matmul_precision() == "high"
    finally:
        place.xp.set_float32_matmul_precision(before)


# --- what cannot be done on a device says so --------------------------------------------------------


def test_what_a_device_cannot_do(move):
    X, y = table()
    with pytest.raises(ValueError, match="inner-product or the distance family"):
        AnnealedClassifier(Quadratic()).fit(move(X), y)
    with pytest.raises(ValueError, match="are solved by"):
        AnnealedClassifier(InnerProduct(), solver="newton").fit(move(X), y)
    with pytest.raises(ValueError, match="needs rows of NumPy"):
        InnerProductADA(selection="loo").fit(move(X), y)
    with pytest.raises(ValueError, match="same number of rows"):
        InnerProductADA().fit(move(X), y[:-1])
    with pytest.raises(ValueError, match="must not be negative"):
        InnerProductADA().fit(move(X), y, sample_weight=move(-np.ones(len(y))))
    with pytest.raises(ValueError, match="one entry a row"):
        InnerProductADA().fit(move(X), y, sample_weight=move(np.ones(3)))


# --- the parts --------------------------------------------------------------------------------------


def problems(family, move, n_fits=3):
    """The same stack of fits in NumPy's terms and on a device."""
    X, y = table()
    weight = np.ones((len(y), n_fits))
    for fit in range(1, n_fits):
        weight[fit::n_fits, fit] = 0
    total = weight.sum(axis=0)
    weight = weight / total
    plain = family.prepare(make_design(X, y, weight, total, 3), np.random.RandomState(0))
    moved = family.prepare(make_design(move(X), move(y), move(weight), total, 3), np.random.RandomState(0))
    return plain, on_device(moved)


@pytest.mark.parametrize("family", [InnerProduct(), InnerProduct(fit_intercept=False), Distance()], ids=repr)
def test_objective_is_that_of_numpy(family, move):
    plain, moved = problems(family, move)
    theirs, ours = plain.coordinates, moved.host.coordinates  # axes have no sign of their own: go by the features
    of_features = np.random.RandomState(1).standard_normal((3, 3, 4))
    intercept = np.zeros((3, 3, plain.n_parameters // 3 - 4))
    parameters = np.concatenate([of_features @ theirs.inverse, intercept], 2)
    found = moved.objective(
        moved.place.wide(np.concatenate([of_features @ ours.inverse, intercept], axis=2)), 0.7, slice(0, 3)
    )
    value, gradient, loss_gradient = plain.objective(parameters.reshape(3, -1), 0.7)
    np.testing.assert_allclose(to_host(found.value), value, rtol=1e-10)
    for own, known in ((found.gradient, gradient), (found.loss_gradient, loss_gradient)):
        own, known = to_host(own), known.reshape(3, 3, -1)
        np.testing.assert_allclose(ours.to_points(own[..., :4]), theirs.to_points(known[..., :4]), atol=1e-10)
        np.testing.assert_allclose(own[..., 4:], known[..., 4:], atol=1e-10)
    np.testing.assert_allclose(moved.hot_temperature(), plain.hot_temperature(), rtol=1e-9)


@pytest.mark.parametrize("family", [InnerProduct(), Distance()], ids=repr)
def test_solver_finds_the_minimum_of_numpy(family, move):
    plain, moved = problems(family, move)
    for temperature in (3.0, 0.3, 0.03):
        options = {"tol": 1e-7, "max_iter": 2000}
        ours, theirs = ArrayLBFGS(), LBFGS()
        found = ours.minimize(moved, moved.start(temperature), temperature, memory=ours.new_memory(moved), **options)
        known = theirs.minimize(
            plain, plain.start(temperature), temperature, memory=theirs.new_memory(plain), **options
        )
        assert found.converged.all()
        np.testing.assert_allclose(found.value, known.value, rtol=1e-6)
        polished = ours.polish(moved, found.parameters, temperature, **options)
        assert polished.converged[0] and polished.value[0] <= known.value[0] * (1 + 1e-7)


def test_temperatures_are_looked_at_together(move):
    _, moved = problems(InnerProduct(), move, n_fits=1)
    solver = ArrayLBFGS()
    options = {"tol": 1e-6, "max_iter": 500, "memory": solver.new_memory(moved)}
    temperatures = np.array([1.0, 0.5, 0.25])
    alone = [solver.minimize(moved, moved.start(own), own, **options) for own in temperatures.tolist()]
    points = stacked([own.parameters[0, ...] for own in alone])
    together = solver.fill(moved, points, temperatures, **options)
    assert (together.n_iter == 0).all()
    np.testing.assert_allclose(together.value, [own.value[0] for own in alone], rtol=1e-12)


def test_certain_rows_keep_their_digits(move):
    logits = np.array([[[40.0, 0.0, 0.0]], [[0.0, 90.0, 0.0]], [[0.1, 0.2, 0.3]]], dtype=np.float32)
    known = [2 * np.exp(-40.0), 90.0, np.log(np.exp([0.1, 0.2, 0.3]).sum()) - 0.3]
    place, level = Place.of(move(logits)), move(np.zeros((1, 3), dtype=np.float32))
    for row, label in enumerate([0, 0, 2]):
        own = move(logits[row : row + 1])
        sums, residual = loss_and_residual(place, own, level, move(np.array([label])))
        np.testing.assert_allclose(to_host(sums)[0, 3], known[row], rtol=1e-5)
        np.testing.assert_allclose(to_host(residual)[0, 0].sum(), 0, atol=1e-6)
        if row == 0:
            np.testing.assert_allclose(to_host(residual)[0, 0, 0], -2 * np.exp(-40.0), rtol=1e-5)
        np.testing.assert_allclose(to_host(sums)[:, :3], to_host(residual)[0], rtol=1e-6)


@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", [(2500, 1, 3), (1300, 4, 10), (70, 2, 1500)])
def test_loss_and_residual_are_those_of_numpy(shape, dtype, is_weighted, move):
    """On a GPU this is the fused kernel: several lines to a program, and the last not full."""
    generator = np.random.RandomState(0)
    logits = (5 * generator.standard_normal(shape)).astype(dtype)
    level = generator.standard_normal(shape[1:]).astype(dtype)
    labels = generator.randint(shape[2], size=shape[0])
    weight = generator.uniform(0.0, 1.0, shape[:2]).astype(dtype) if is_weighted else np.ones(shape[:2])
    loss, residual = gibbs.loss_and_residual(logits.astype(np.float64) + level, labels)
    size = np.abs(residual)
    residual = residual * weight[:, :, None]
    place = Place.of(move(logits))
    given = move(weight.T.copy()).T if is_weighted else None
    sums, found = loss_and_residual(place, move(logits), move(level), move(labels), given, learn=True)
    known = [residual.sum(axis=0), (loss * weight).sum(axis=0)[:, None], (size - size**2).sum(axis=0)]
    precision = 1e-13 if dtype is np.float64 else 5e-6
    np.testing.assert_allclose(to_host(found), residual, atol=precision)
    np.testing.assert_allclose(
        to_host(sums), np.concatenate(known, axis=1), rtol=precision, atol=precision * size.sum()
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_residuals_are_the_rounded_ones(dtype, move_torch):
    torch = pytest.importorskip("torch")
    generator = np.random.RandomState(0)
    logits, labels = generator.standard_normal((300, 2, 40)).astype(np.float32), generator.randint(40, size=300)
    place, level = Place.of(move_torch(logits)), move_torch(np.zeros((2, 40), dtype=np.float32))
    gain = move_torch(np.array([4.0, 1024.0], dtype=np.float32))
    arguments = (level, move_torch(labels), None)
    sums, plain = loss_and_residual(place, move_torch(logits), *arguments)
    options = {"dtype": getattr(torch, dtype), "gain": gain}
    other, narrow = loss_and_residual(place, move_torch(logits), *arguments, **options)
    rounding = float(torch.finfo(narrow.dtype).eps)
    np.testing.assert_allclose(to_host(narrow.double()), to_host((plain * gain[:, None]).double()), rtol=rounding)
    np.testing.assert_allclose(to_host(other), to_host(sums), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", [(1300, 10), (70, 1500)])
def test_moments_at_a_scale_are_those_of_the_posterior(shape, dtype, move):
    generator = np.random.RandomState(0)
    deviation = (3 * generator.standard_normal(shape)).astype(dtype)
    scale = 0.7310585786300049
    wide = deviation.astype(np.float64)
    posterior = gibbs.posterior(scale * wide)
    mean = (posterior * wide).sum(axis=1)
    known = (np.log(np.exp(scale * wide).sum(axis=1)), mean, (posterior * wide**2).sum(axis=1) - mean**2)
    place = Place.of(move(deviation))
    found = to_host(scaled_moments(place, scale, move(deviation)))
    for ours, theirs in zip(found, known, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-11 if dtype is np.float64 else 1e-4)
    np.testing.assert_allclose(to_host(scaled_losses(place, scale, move(deviation))), known[0], rtol=1e-5)


@pytest.mark.gpu
def test_the_kernel_of_a_gpu_is_used():
    pytest.importorskip("triton")
    logits = mover("cuda")(np.zeros((4, 1, 3), dtype=np.float32))
    assert fused_kernel(logits) is not None
    assert fused_kernel(logits[:, :, ::2]) is None  # lines that do not lie one after the other


@pytest.mark.parametrize("rank", [4, 3])
def test_rounded_rows_with_split_coefficients(rank, move_torch):
    """Nothing but the rows is rounded: scores are those of the rounded rows, to single precision."""
    X, y = table()
    X = X.astype(np.float32)
    place = Place.of(move_torch(X))
    weight = place.row(np.full((len(y), 1), 1 / len(y)))
    design = ArrayDesign(move_torch(X), move_torch(y), weight, np.array([float(len(y))]), 3)
    generator = np.random.RandomState(1)
    basis, coef, level = (generator.standard_normal(shape) for shape in ((4, rank), (3, rank), (3,)))
    level *= 100
    turned = TurnedRows(design, place.row(basis))
    rounded = to_host(turned.design.X.float())[:, :rank].astype(np.float64)
    np.testing.assert_allclose(rounded, X @ basis, atol=0.01 * np.abs(rounded).max())
    plain, split = (
        np.concatenate([to_host(rows.logits(block, tables)) for block in turned.design.map_blocks(lambda own: own)])
        for rows in (turned, turned.split())
        for tables in [rows.tables(place.wide(coef), place.wide(level))]
    )
    known = rounded @ coef.T + level
    assert 1e-4 < np.abs(plain - known).max() < 0.1
    np.testing.assert_allclose(split, known, atol=1e-4)
    (pulled,) = turned.design.map_blocks(lambda block: turned.pulled(block, place.row(known).bfloat16()))
    np.testing.assert_allclose(to_host(pulled), known.T @ rounded, atol=5e-3 * np.abs(known.T @ rounded).max())
    center, coef = X.mean(axis=0), coef @ basis.T
    halved = HalfRows(design.centered(center)).split()
    tables = halved.tables(place.wide(coef), place.wide(level))
    (logits,) = halved.design.map_blocks(lambda block: halved.logits(block, tables))
    factor = to_host(halved._factor).astype(np.float64)
    rounded = (X * factor).astype(np.float16).astype(np.float64) / factor
    np.testing.assert_allclose(to_host(logits), (rounded - center) @ coef.T + level, atol=1e-4)


def test_rows_in_half_precision_are_rounded_as_in_tf32(move_torch):
    """Whatever the size of the columns, of the coefficients and of the weights."""
    X, y = table()
    X = (X * [1e-9, 1.0, 1e5, 0.0]).astype(np.float32)
    place = Place.of(move_torch(X))
    weight = np.full((len(y), 1), 1 / len(y))
    design = ArrayDesign(move_torch(X), move_torch(y), place.row(weight), np.array([float(len(y))]), 3)
    center = X.mean(axis=0)
    rows = HalfRows(design.centered(center))
    coef, level = np.random.RandomState(1).standard_normal((3, 4)) / [1e-9, 1.0, 1e5, 1.0], np.array([0.0, 50.0, -2.0])
    tables = rows.tables(place.wide(coef), place.wide(level))
    (logits,) = rows.design.map_blocks(lambda block: rows.logits(block, tables))
    sizes = np.abs(X) @ np.abs(coef).T
    np.testing.assert_array_less(np.abs(to_host(logits) - (X - center) @ coef.T - level), 1e-3 * sizes + 1e-5)
    residual = np.random.RandomState(0).uniform(-1, 1, (len(y), 3)) * 1e-6
    gain = rows.gain(np.array([1e-6]))
    narrow = place.row(residual * gain).to(rows.residual_dtype)
    (pulled,) = rows.design.map_blocks(lambda block: rows.pulled(block, narrow))
    found = to_host(rows.settled(place.wide(pulled) / gain[0], place.wide(residual.sum(axis=0))))
    sizes = np.abs(residual).T @ np.abs(X)
    np.testing.assert_array_less(np.abs(found - residual.T @ (X - center)), 1e-3 * sizes + 1e-300)


def test_sums_of_a_sweep_are_those_of_numpy(move):
    X, y = table()
    generator = np.random.RandomState(0)
    for weight in (np.ones(len(y)), generator.uniform(0.5, 2, len(y))):
        plain, moved = LabelledRows(X, y, weight, 3), ArrayLabelledRows(move(X), y, move(weight), 3)
        state = PottsState(
            generator.standard_normal((5, X.shape[1])), generator.dirichlet(np.ones(3), 5), np.eye(4), 0.0, np.eye(4)
        )
        for ours, theirs in zip(moved.sums(state, 1.3, 8.0), plain.sums(state, 1.3, 8.0), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-10)
        np.testing.assert_allclose(moved.second_moment, plain.second_moment, atol=1e-12)
        np.testing.assert_allclose(moved.class_weight, plain.class_weight, atol=1e-9)


def test_many_rows_are_swept_on_the_device(move, monkeypatch):
    X, y = table(1200)
    for module in (annealed.prototype_search, annealed.estimators.potts_da):
        monkeypatch.setattr(module, "FIT_ROWS", 500)
    monkeypatch.setattr(annealed.prototype_search, "SEARCH_ROWS", 300)
    model = PottsDA(n_prototypes=6).fit(move(X), move(y))
    plain = PottsDA(n_prototypes=6).fit(X, y)
    right = np.mean(to_host(model.predict(move(X))) == y)
    assert right >= plain.score(X, y) - 0.03
    assert type(model.transform(move(X))) is type(move(X))
    nearest = PottsDA(n_prototypes=6, decision="nearest").fit(move(X), y)
    assert np.mean(to_host(nearest.predict(move(X))) == y) >= right - 0.1
    with pytest.raises(ValueError, match="ledoit_wolf"):
        PottsDA(n_prototypes=6, shrinkage="ledoit_wolf").fit(move(X), y)


def test_arrays_are_combined_and_taken(move):
    values = np.arange(12.0).reshape(3, 2, 2)
    moved = [move(own) for own in values]
    np.testing.assert_allclose(to_host(combined([0.5, -1.0, 2.0], moved)), np.tensordot([0.5, -1, 2], values, axes=1))
    np.testing.assert_array_equal(to_host(take_rows(move(values), np.array([2, 0]))), values[[2, 0]])
    assert is_foreign(moved[0]) and not is_foreign(values)
