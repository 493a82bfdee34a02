"""The parts of a fit on a device compared with NumPy: objectives, solver, kernels, rounded rows, prototype sweeps."""

import numpy as np
import pytest
from devices import mover, table
from small_problems import solve, solve_final

import annealed.estimators.potts_settings
import annealed.potts.search
import annealed.solvers.lbfgs
from annealed import AnnealedLDA, PottsDA
from annealed.arrays import Place, combined, is_foreign, stacked, take_rows, to_host
from annealed.path.adaptive import evidence_held_back, excess
from annealed.potts.on_device import ArrayLabelledRows
from annealed.potts.rows import LabelledRows
from annealed.potts.state import PottsState
from annealed.problems import Distance, InnerProduct, gibbs
from annealed.problems.array_gibbs import fused_kernel, loss_and_residual, scaled_losses, scaled_moments
from annealed.problems.device_rows import HalfRows
from annealed.rows import ArrayDesign, make_design
from annealed.solvers import LBFGS

pytestmark = pytest.mark.usefixtures("dispatch")


def problems(family, move, n_fits=3):
    """The same stack of fits in NumPy and on a device."""
    X, y = table()
    weight = np.ones((len(y), n_fits))
    for fit in range(1, n_fits):
        weight[fit::n_fits, fit] = 0
    total = weight.sum(axis=0)
    weight = weight / total
    plain = family.prepare(make_design(X, y, weight, total, 3), np.random.RandomState(0))
    moved = family.prepare(make_design(move(X), move(y), move(weight), total, 3), np.random.RandomState(0))
    return plain, moved


@pytest.mark.parametrize("family", [InnerProduct(), InnerProduct(fit_intercept=False), Distance()], ids=repr)
def test_objective_equals_that_of_numpy(family, move):
    plain, moved = problems(family, move)
    # The signs of axes are arbitrary: compare coefficients of the features.
    plain_coordinates, moved_coordinates = plain.scores.host_coordinates, moved.scores.host_coordinates
    of_features = np.random.RandomState(1).standard_normal((3, 3, 4))
    intercept = np.zeros((3, 3, plain.start(1.0).shape[1] // 3 - 4))
    parameters = np.concatenate([of_features @ plain_coordinates.inverse, intercept], 2)
    moved_parameters = np.concatenate([of_features @ moved_coordinates.inverse, intercept], axis=2)
    moved_value, *moved_gradients = moved.objective(moved.place.wide(moved_parameters.reshape(3, -1)), 0.7)
    value, *gradients = plain.objective(parameters.reshape(3, -1), 0.7)
    np.testing.assert_allclose(to_host(moved_value), value, rtol=1e-10)
    for actual, expected in zip(moved_gradients, gradients, strict=True):
        actual, expected = to_host(actual).reshape(3, 3, -1), expected.reshape(3, 3, -1)
        np.testing.assert_allclose(
            moved_coordinates.to_points(actual[..., :4]), plain_coordinates.to_points(expected[..., :4]), atol=1e-10
        )
        np.testing.assert_allclose(actual[..., 4:], expected[..., 4:], atol=1e-10)
    np.testing.assert_allclose(moved.hot_temperature(), plain.hot_temperature(), rtol=1e-9)


@pytest.mark.parametrize("few_columns", [64, 0])
@pytest.mark.parametrize("family", [InnerProduct(), Distance()], ids=repr)
def test_solver_finds_the_same_minimum_as_numpy(family, few_columns, move, monkeypatch):
    """All fits together, as with few columns, and the folds after the final fit."""
    monkeypatch.setattr(annealed.solvers.lbfgs, "FEW_COLUMNS", few_columns)
    plain, moved = problems(family, move)
    for temperature in (3.0, 0.3, 0.03):
        reference = solve(plain, temperature, tol=1e-7)
        solution = solve(moved, temperature, LBFGS(), tol=1e-7)
        np.testing.assert_allclose(solution.value, reference.value, rtol=1e-6)
        if isinstance(family, InnerProduct):
            variance = to_host(moved.class_variance)  # as of the last evaluation
            expected = excess(plain, reference.parameters[:1], temperature, variance)
            held_back = evidence_held_back(moved, solution.parameters[0, ...], temperature)
            np.testing.assert_allclose(held_back, expected, rtol=1e-3, atol=1e-3)
        start = solution.parameters[:1, ...]
        certified = solve_final(LBFGS(), moved, start, [temperature], tol=1e-7, max_iter=2000)
        assert certified.is_certified[0] and certified.value[0] <= reference.value[0] * (1 + 1e-7)


def test_certifying_without_a_certificate_does_not_increase_the_value(move, monkeypatch):
    """Far too long directions lead uphill, although the gradient there is within a large tolerance."""
    _, moved = problems(Distance(), move, n_fits=1)
    start, precondition = moved.start(1.0), moved.precondition
    before = float(to_host(moved.objective(start, 1.0, [0])[0])[0])
    monkeypatch.setattr(moved, "precondition", lambda *given: 30 * precondition(*given))
    assert solve_final(LBFGS(), moved, start, [1.0], tol=10.0, max_iter=1).value[0] <= before


def test_a_point_is_solved_where_rounding_errors_make_the_gradient(move, monkeypatch):
    """In float32, 200,000 embeddings at T = 1e-9 took up to 65 iterations of ever shorter steps in vain."""
    _, moved = problems(InnerProduct(), move, n_fits=1)
    solution, objective = solve(moved, 0.1, LBFGS(), tol=1e-8), moved.objective
    error = moved.place.wide(np.full((1, moved.start(0.1).shape[1]), 3e-3))

    def with_error(*given):
        value, gradient, loss_gradient = objective(*given)
        return value, gradient + error, loss_gradient + error

    monkeypatch.setattr(moved, "objective", with_error)
    found = solve_final(LBFGS(), moved, solution.parameters, [0.1], tol=1e-4, max_iter=30, certify=False)
    assert found.converged[0] and found.n_iter[0] <= 2
    np.testing.assert_allclose(found.value, solution.value, rtol=1e-6)


def test_temperatures_are_evaluated_together(move):
    _, moved = problems(InnerProduct(), move, n_fits=1)
    temperatures = [1.0, 0.5, 0.25]
    alone = [solve(moved, temperature, LBFGS(), tol=1e-6) for temperature in temperatures]
    points = stacked([solution.parameters[0, ...] for solution in alone])
    together = solve_final(LBFGS(), moved, points, temperatures, tol=1e-6, max_iter=500, certify=False)
    assert (together.n_iter == 0).all() and not together.is_certified.any()
    np.testing.assert_allclose(together.value, [solution.value[0] for solution in alone], rtol=1e-12)


def test_losses_of_certain_samples_keep_their_digits(move):
    logits = np.array([[[40.0, 0.0, 0.0]], [[0.0, 90.0, 0.0]], [[0.1, 0.2, 0.3]]], dtype=np.float32)
    expected = [2 * np.exp(-40.0), 90.0, np.log(np.exp([0.1, 0.2, 0.3]).sum()) - 0.3]
    place, level = Place.of(move(logits)), move(np.zeros((1, 3), dtype=np.float32))
    for row, label in enumerate([0, 0, 2]):
        logits_of_row = move(logits[row : row + 1])
        sums, residual = loss_and_residual(place, logits_of_row, level, move(np.array([label])))
        np.testing.assert_allclose(to_host(sums)[0, 3], expected[row], rtol=1e-5)
        np.testing.assert_allclose(to_host(residual)[0, 0].sum(), 0, atol=1e-6)
        if row == 0:
            np.testing.assert_allclose(to_host(residual)[0, 0, 0], -2 * np.exp(-40.0), rtol=1e-5)
        np.testing.assert_allclose(to_host(sums)[:, :3], to_host(residual)[0], rtol=1e-6)


@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", [(2500, 1, 3), (1300, 4, 10), (70, 2, 1500)])
def test_loss_and_residual_equal_those_of_numpy(shape, dtype, is_weighted, move):
    """On a GPU this is the fused kernel, with several rows per program and an incomplete last program."""
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
    sums, actual = loss_and_residual(place, move(logits), move(level), move(labels), given, learn=True)
    expected = [residual.sum(axis=0), (loss * weight).sum(axis=0)[:, None], (size - size**2).sum(axis=0)]
    precision = 1e-13 if dtype is np.float64 else 5e-6
    np.testing.assert_allclose(to_host(actual), residual, atol=precision)
    np.testing.assert_allclose(
        to_host(sums), np.concatenate(expected, axis=1), rtol=precision, atol=precision * size.sum()
    )


def test_narrow_residuals_are_rounded_residuals(move_torch):
    torch = pytest.importorskip("torch")
    generator = np.random.RandomState(0)
    logits, labels = generator.standard_normal((300, 2, 40)).astype(np.float32), generator.randint(40, size=300)
    place, level = Place.of(move_torch(logits)), move_torch(np.zeros((2, 40), dtype=np.float32))
    gain = move_torch(np.array([4.0, 1024.0], dtype=np.float32))
    arguments = (level, move_torch(labels), None)
    sums, plain = loss_and_residual(place, move_torch(logits), *arguments)
    options = {"dtype": torch.float16, "gain": gain}
    narrow_sums, narrow = loss_and_residual(place, move_torch(logits), *arguments, **options)
    rounding = float(torch.finfo(narrow.dtype).eps)
    np.testing.assert_allclose(to_host(narrow.double()), to_host((plain * gain[:, None]).double()), rtol=rounding)
    np.testing.assert_allclose(to_host(narrow_sums), to_host(sums), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", [(1300, 10), (70, 1500)])
def test_moments_at_a_scale_equal_those_of_the_posterior(shape, dtype, move):
    generator = np.random.RandomState(0)
    deviation = (3 * generator.standard_normal(shape)).astype(dtype)
    scale = 0.7310585786300049
    wide = deviation.astype(np.float64)
    posterior = gibbs.posterior(scale * wide)
    mean = (posterior * wide).sum(axis=1)
    expected = (np.log(np.exp(scale * wide).sum(axis=1)), mean, (posterior * wide**2).sum(axis=1) - mean**2)
    place = Place.of(move(deviation))
    actual = to_host(scaled_moments(place, scale, move(deviation)))
    for part, expected_part in zip(actual, expected, strict=True):
        np.testing.assert_allclose(part, expected_part, atol=1e-11 if dtype is np.float64 else 1e-4)
    np.testing.assert_allclose(to_host(scaled_losses(place, scale, move(deviation))), expected[0], rtol=1e-5)


@pytest.mark.gpu
def test_the_kernel_of_a_gpu_is_used():
    pytest.importorskip("triton")
    logits = mover("cuda")(np.zeros((4, 1, 3), dtype=np.float32))
    assert fused_kernel(logits) is not None
    assert fused_kernel(logits[:, :, ::2]) is None  # rows are not contiguous


def half_rows(X, y, weight, move, is_copied, monkeypatch):
    monkeypatch.setattr(Place, "free_bytes", lambda place: np.inf if is_copied else 0)
    place = Place.of(move(X))
    design = ArrayDesign(move(X), move(y), place.row(weight), np.array([float(len(y))]), 3)
    rows = HalfRows(design.centered(X.mean(axis=0)))
    (values,) = rows.design.map_blocks(rows.of_block)
    assert rows.is_copied == is_copied and values.shape == (len(X), 8)
    return place, rows, values


@pytest.mark.parametrize("is_copied", [False, True])
def test_rounded_rows_with_split_coefficients(is_copied, move_torch, monkeypatch):
    """Only the rows are rounded: scores equal those of the rounded rows, to float32 precision."""
    X, y = table()
    X, weight = X.astype(np.float32), np.full((len(y), 1), 1 / len(y))
    place, rows, values = half_rows(X, y, weight, move_torch, is_copied, monkeypatch)
    coef, level = np.random.RandomState(1).standard_normal((3, 4)), np.array([0.0, 100.0, -50.0])
    factor = to_host(rows.factor).astype(np.float64)
    rounded = ((X - X.mean(axis=0)) * factor).astype(np.float16).astype(np.float64) / factor
    expected = rounded @ coef.T + level
    plain, split = (
        to_host(rows.logits(values, rows.table(place.wide(coef), place.wide(level), is_split)))
        for is_split in (False, True)
    )
    assert 1e-4 < np.abs(plain - expected).max() < 0.1
    np.testing.assert_allclose(split, expected, atol=1e-4)


@pytest.mark.parametrize("is_copied", [False, True])
def test_rows_in_half_precision_are_rounded_as_in_tf32(is_copied, move_torch, monkeypatch):
    """Whatever the scale of the features, of the coefficients and of the weights."""
    X, y = table()
    X, weight = (X * [1e-9, 1.0, 1e5, 0.0]).astype(np.float32), np.full((len(y), 1), 1e-6)
    place, rows, values = half_rows(X, y, weight, move_torch, is_copied, monkeypatch)
    centered = X - X.mean(axis=0)
    coef, level = np.random.RandomState(1).standard_normal((3, 4)) / [1e-9, 1.0, 1e5, 1.0], np.array([0.0, 50.0, -2.0])
    logits = rows.logits(values, rows.table(place.wide(coef), place.wide(level)))
    sizes = np.abs(X) @ np.abs(coef).T
    np.testing.assert_array_less(np.abs(to_host(logits) - centered @ coef.T - level), 1e-3 * sizes + 1e-5)
    residual = np.random.RandomState(0).uniform(-1, 1, (len(y), 3)) * 1e-6
    gain = to_host(rows.gain)
    pulled = rows.pulled(values, place.row(residual * gain).to(rows.residual_dtype))
    actual = to_host(rows.centered(place.wide(pulled) / gain[0], place.wide(residual.sum(axis=0))))
    sizes = np.abs(residual).T @ np.abs(X)
    np.testing.assert_array_less(np.abs(actual - residual.T @ centered), 1e-3 * sizes + 1e-300)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n_prototypes", [5, 70, 3000])
def test_sums_of_a_sweep_equal_those_of_numpy(n_prototypes, dtype, move):
    """On a GPU, float32 uses the kernel, unless prototypes are too many for it, such as 3000."""
    X, y = table()
    X = (X * [1e-3, 1.0, 50.0, 0.0]).astype(dtype)
    generator = np.random.RandomState(0)
    size = np.maximum(X.std(axis=0), 1e-9)
    prototypes = X[generator.randint(len(X), size=n_prototypes)] + generator.standard_normal((n_prototypes, 4)) * size
    state = PottsState(prototypes, generator.dirichlet(np.ones(3), n_prototypes), np.diag(size**-2), 0.0, np.eye(4))
    precision = 1e-10 if dtype is np.float64 else 2e-6
    for weight in (np.ones(len(y)), generator.uniform(0.5, 2, len(y))):
        plain = LabelledRows(X.astype(np.float64), y, weight, 3)
        moved = ArrayLabelledRows(move(X), y, move(weight), 3)
        actual = moved.sums(state, 1.3, 8.0)
        for part, expected, repeated in zip(
            actual, plain.sums(state, 1.3, 8.0), moved.sums(state, 1.3, 8.0), strict=True
        ):
            atol = precision * np.abs(expected).max(axis=0, initial=0.0) if np.ndim(expected) else 0.0
            np.testing.assert_array_less(np.abs(part - expected), precision * np.abs(expected) + atol + 1e-12)
            np.testing.assert_array_equal(part, repeated)
        scale = np.sqrt(np.diag(plain.second_moment)) + 1e-9
        crossed = moved.second_moment / scale / scale[:, None]
        np.testing.assert_allclose(crossed, plain.second_moment / scale / scale[:, None], atol=1e-9)
        np.testing.assert_allclose(moved.class_weight, plain.class_weight, atol=1e-9)


@pytest.mark.gpu
def test_the_kernel_of_a_sweep_is_used():
    pytest.importorskip("triton")
    X, y = table()
    weight = mover("cuda")(np.ones(len(y)))
    single, double = (ArrayLabelledRows(mover("cuda")(X.astype(kind)), y, weight, 3) for kind in ("f4", "f8"))
    single.sums(PottsState(X[:5], np.eye(3)[y[:5]], np.eye(4), 0.0, np.eye(4)), 1.0, 8.0)
    assert single._fused_kernel.padded_shape(200, 60) == (256, 64)
    assert single._fused_kernel.padded_shape(3000, 60) is None
    assert double._fused_kernel is None


def test_many_samples_are_swept_on_the_device(move, monkeypatch):
    X, y = table(1200)
    for module in (annealed.potts.search, annealed.estimators.potts_settings):
        monkeypatch.setattr(module, "FIT_ROWS", 500)
    monkeypatch.setattr(annealed.potts.search, "SEARCH_ROWS", 300)
    model = PottsDA(n_prototypes=6).fit(move(X), move(y))
    plain = PottsDA(n_prototypes=6).fit(X, y)
    right = np.mean(to_host(model.predict(move(X))) == y)
    assert right >= plain.score(X, y) - 0.03
    assert type(model.transform(move(X))) is type(move(X))
    nearest = PottsDA(n_prototypes=6, decision="nearest").fit(move(X), y)
    assert np.mean(to_host(nearest.predict(move(X))) == y) >= right - 0.1
    for model in (PottsDA(n_prototypes=6, shrinkage="ledoit_wolf"), AnnealedLDA(shrinkage="ledoit_wolf")):
        with pytest.raises(ValueError, match="ledoit_wolf"):
            model.fit(move(X), y)


@pytest.mark.parametrize("n_weighty", [800, 100])
def test_samples_without_weight_are_left_out_if_there_are_many(n_weighty, move, monkeypatch):
    """So few samples may remain that they are handled on the host."""
    X, y = table(1200)
    for module in (annealed.potts.search, annealed.estimators.potts_settings):
        monkeypatch.setattr(module, "FIT_ROWS", 500)
    monkeypatch.setattr(annealed.potts.search, "SEARCH_ROWS", 300)
    weight = np.zeros(len(y))
    weight[np.random.RandomState(0).permutation(len(y))[:n_weighty]] = 1
    weight[y == 2] = 0
    has_weight = weight > 0
    options = {"n_init": 2, "shrinkage": "oas", "refine": False}
    masked = PottsDA({0: 2, 1: 2, 2: 2}, **options).fit(move(X), move(y), move(weight))
    parted = PottsDA({0: 2, 1: 2}, **options).fit(move(X[has_weight]), move(y[has_weight]))
    assert masked.prototype_labels_.shape == (4, 3)
    assert masked.free_energy_ == pytest.approx(parted.free_energy_, rel=1e-9)
    np.testing.assert_allclose(to_host(masked.prototypes_), to_host(parted.prototypes_), rtol=1e-9)


def test_samples_of_another_precision_are_predicted(move):
    X, y = table()
    model = PottsDA(n_prototypes=4, n_init=1, shrinkage="oas").fit(move(X), move(y))
    wide, narrow = (model.predict_proba(move(samples)) for samples in (X, X.astype(np.float32)))
    assert narrow.dtype == move(X.astype(np.float32)).dtype
    np.testing.assert_allclose(to_host(narrow), to_host(wide), atol=1e-5)


def test_callbacks_receive_prototypes_on_the_device_of_the_samples(move):
    X, y = table()
    predictions = []

    class Reader:
        def setup(self, estimator, context): ...
        def teardown(self, estimator, context): ...
        def on_fit_task_begin(self, estimator, context): ...
        def on_fit_task_end(self, estimator, context, *, X, fitted_estimator):
            if context.task_name == "temperature":
                predictions.append((fitted_estimator.predict(X), fitted_estimator.classes_))

    model = PottsDA(n_prototypes=4, n_init=1, shrinkage="oas").set_callbacks(Reader()).fit(move(X), move(y))
    assert len(predictions) == len(model.path_) and all(
        type(array) is type(move(y)) for pair in predictions for array in pair
    )
    assert np.mean(to_host(predictions[-1][0]) == y) > 0.6


def test_arrays_are_combined_and_taken(move):
    values = np.arange(12.0).reshape(3, 2, 2)
    moved = [move(array) for array in values]
    np.testing.assert_allclose(to_host(combined([0.5, -1.0, 2.0], moved)), np.tensordot([0.5, -1, 2], values, axes=1))
    np.testing.assert_array_equal(to_host(take_rows(move(values), np.array([2, 0]))), values[[2, 0]])
    assert is_foreign(moved[0]) and not is_foreign(values)
