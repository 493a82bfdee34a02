"""Every storage backend computes the same sums as NumPy on the dense rows."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse
from small_problems import (
    badly_scaled,
    dense,
    fold_masks,
    gaussian,
    sparse_rows,
    stack_of,
    text,
    uneven_weights,
    wide,
    wide_text,
)

from annealed.problems.linear import mean_of_columns, spread_of_columns
from annealed.rows import CsrDesign, DenseDesign, SinglePrecisionRows, make_design, principal_coordinates, row_span
from annealed.rows.coordinates import diagonal_coordinates
from annealed.rows.dense import DenseBlock

CENTER = np.linspace(-1, 2, 25)


def dense_text():
    table = text()
    return type(table)("text_dense", table.X.toarray(), table.y)


def single_precision_text():
    table = text()
    return type(table)("text_float32", table.X.toarray().astype(np.float32), table.y)


BACKENDS = {
    "dense": dense_text,
    "float32": single_precision_text,
    "csr_matrix": lambda: text(sparse.csr_matrix),
    "csr_array": lambda: text(sparse.csr_array),
}


@pytest.fixture(params=BACKENDS)
def backend(request):
    table = BACKENDS[request.param]()
    design = stack_of(table, uneven_weights(len(table.y))).centered(CENTER)
    return design, dense(table.X).astype(float) - CENTER


def in_short_blocks(monkeypatch):
    for kind in (DenseDesign, CsrDesign):
        monkeypatch.setattr(kind, "block_rows", lambda self, n_fits, copies_rows=True: 7)


@pytest.mark.parametrize("is_blocked", [False, True], ids=["whole", "blocks"])
def test_sums_over_rows_equal_numpy(backend, is_blocked, monkeypatch):
    if is_blocked:
        in_short_blocks(monkeypatch)
    design, rows = backend
    assert len(list(design.map_blocks(lambda block: block))) == (10 if is_blocked else 1)
    weight, labels = design.weight, design.labels
    targets = weight[:, :, None] * np.eye(3)[labels][:, None]
    coef = np.random.default_rng(0).normal(size=(3, 3, 25))
    close = {"rtol": 1e-10, "atol": 1e-12}
    np.testing.assert_allclose(design.product(coef), np.einsum("nd,scd->nsc", rows, coef), **close)
    np.testing.assert_allclose(design.class_sums(), np.einsum("nsc,nd->scd", targets, rows), **close)
    np.testing.assert_allclose(design.class_weight_sums(), targets.sum(axis=0), **close)
    for fit in range(3):
        weighted = weight[:, fit, None] * rows
        np.testing.assert_allclose(design.covariance(fit), weighted.T @ rows, **close)
        np.testing.assert_allclose(design.covariances()[fit], weighted.T @ rows, **close)
        np.testing.assert_allclose(design.column_mean(fit), weighted.sum(axis=0), **close)
        np.testing.assert_allclose(design.column_variance(fit), (weighted * rows).sum(axis=0), **close)
    combinations = np.random.default_rng(1).normal(size=(4, len(rows)))
    np.testing.assert_allclose(design.combine_rows(combinations), combinations @ rows, **close)
    scale = np.linspace(0.5, 3, 25)
    np.testing.assert_allclose(design.row_gram(scale), (rows * scale) @ (rows * scale).T, **close)
    squares = np.concatenate(list(design.map_blocks(lambda block: block.row_squares(scale))))
    np.testing.assert_allclose(squares, ((rows * scale) ** 2).sum(axis=1), **close)


def test_moments_under_weights_of_either_sign(backend):
    design, rows = backend
    weight = np.stack([design.weight, -2 * design.weight], axis=2)
    squares, sums, counts = design.sum_rows(lambda block: block.moments(weight[block.rows]))
    np.testing.assert_allclose(squares, np.einsum("nfp,ni,nj->fpij", weight, rows, rows), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(sums, np.einsum("nfp,ni->fpi", weight, rows), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(counts, weight.sum(axis=0))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_wide_array_is_summed_in_groups_of_columns(monkeypatch, dtype):
    monkeypatch.setattr("annealed.rows.dense.BLOCK_BYTES", 8 * 4 * 64)
    table = wide()
    X = np.tile(table.X, 4).astype(dtype)
    center = np.linspace(-1, 2, X.shape[1])
    design = stack_of(replace(table, X=X), uneven_weights(len(table.y))).centered(center)
    rows = X.astype(float) - center
    weighted, combinations = design.weight[:, 1, None] * rows, np.random.default_rng(1).normal(size=(4, len(rows)))
    assert len(list(design._of_columns(lambda columns, part: part))) > 3
    np.testing.assert_allclose(design.column_mean(1), weighted.sum(axis=0), atol=1e-12)
    np.testing.assert_allclose(design.column_variance(1), (weighted * rows).sum(axis=0), rtol=1e-10)
    np.testing.assert_allclose(design.combine_rows(combinations), combinations @ rows, atol=1e-10)
    np.testing.assert_allclose(design.row_gram(2 * np.ones(rows.shape[1])), 4 * rows @ rows.T, atol=1e-9)


def test_a_pass_over_some_fits_uses_their_weights(backend):
    design, rows = backend
    (sums,) = design.sum_rows(lambda block: (block.weight.T @ rows[block.rows],), np.array([2, 0]))
    np.testing.assert_allclose(sums, design.weight[:, [2, 0]].T @ rows, rtol=1e-12)


@pytest.mark.parametrize("is_blocked", [False, True], ids=["whole", "blocks"])
def test_map_rows_keeps_the_order_of_the_indices(backend, is_blocked, monkeypatch):
    if is_blocked:
        in_short_blocks(monkeypatch)
    design, rows = backend
    named = np.array([59, 3, 3, 0, 17, 41, 40, 8, 58])
    coef = np.random.default_rng(0).normal(size=(2, 3, 25))

    def seen(block):
        assert block.weight is None
        return block.rows, block.labels, block.product(coef)

    numbers, labels, products = (np.concatenate(part) for part in zip(*design.map_rows(seen, named), strict=True))
    np.testing.assert_array_equal(numbers, named)
    np.testing.assert_array_equal(labels, design.labels[named])
    np.testing.assert_allclose(products, np.einsum("nd,scd->nsc", rows[named], coef), rtol=1e-10, atol=1e-12)


def test_map_rows_without_indices_has_no_blocks(backend):
    design, _ = backend
    assert list(design.map_rows(lambda block: block, np.empty(0, dtype=int))) == []


def test_centring_does_not_copy_the_rows(backend):
    design, _ = backend
    recentred = design.centered(np.zeros(25))
    assert recentred.X is design.X
    np.testing.assert_array_equal(design.center, CENTER)


@pytest.mark.parametrize("keeps_copy", [True, False])
@pytest.mark.parametrize("distance", [0.5, 1e8])
def test_products_keep_their_digits_wherever_the_centre_is(distance, keeps_copy, monkeypatch):
    monkeypatch.setattr("annealed.rows.dense.BLOCK_BYTES", 10**7 if keeps_copy else 0)
    generator = np.random.default_rng(0)
    X = generator.integers(-512, 512, (40, 6)) / 512 + distance  # exact in float64, as is the centre
    design = DenseDesign(X, np.zeros(40, int), np.ones((40, 1)), 40.0, 1).centered(np.full(6, distance))
    coef, residual = generator.normal(size=(1, 2, 6)), generator.normal(size=(40, 1, 2))
    (sums,) = design.sum_rows(lambda block: (block.transposed_product(residual[block.rows]),))
    np.testing.assert_allclose(design.product(coef)[:, 0], (X - distance) @ coef[0].T, rtol=0, atol=1e-13)
    np.testing.assert_allclose(sums[0], residual[:, 0].T @ (X - distance), rtol=0, atol=1e-12)
    recentred = design.centered(np.full(6, distance - 1.0))
    np.testing.assert_allclose(recentred.product(coef)[:, 0], (X - distance + 1) @ coef[0].T, rtol=0, atol=1e-13)


def test_sparse_squares_of_a_nearly_constant_column_do_not_cancel():
    X = sparse.csr_matrix(1e6 + np.arange(10.0)[:, None] / 1e3)
    table = type(text())("nearly_constant", X, np.arange(10) % 2)
    variance = stack_of(table).centered(np.array([X.mean()])).column_variance()
    np.testing.assert_allclose(variance, (np.arange(10.0) / 1e3).var(), rtol=1e-6)


def test_the_mean_of_a_constant_sparse_column_is_exact():
    """Otherwise its rounding errors would count as a feature, and standardized, as one of unit variance."""
    X = sparse.csr_array(np.column_stack([np.full(30_011, 0.1), np.arange(30_011) % 3 == 0]))
    design = stack_of(SimpleNamespace(X=X, y=np.arange(30_011) % 2, n_classes=2))
    mean = mean_of_columns(design)
    assert abs(mean[0] - 0.1) <= 1e-16
    np.testing.assert_array_equal(spread_of_columns(design, mean, of_constant=7.0)[0], 7.0)


def test_duplicate_entries_are_summed():
    summed = sparse_rows(20, 4, density=0.5)
    with_duplicates = sparse.csr_array(
        (np.column_stack([3 * summed.data, -2 * summed.data]).ravel(), np.repeat(summed.indices, 2), 2 * summed.indptr),
        shape=summed.shape,
    )
    labels, weight = np.arange(20) % 2, np.full((20, 1), 0.05)
    actual, expected = (
        make_design(X, labels, weight, np.full(1, 20.0), 2).column_variance() for X in (with_duplicates, summed)
    )
    np.testing.assert_allclose(actual, expected, rtol=1e-12)
    assert len(with_duplicates.data) == 2 * len(summed.data)  # the user's array is unchanged


@pytest.mark.parametrize("make", [wide, wide_text], ids=lambda make: make.__name__)
def test_row_span_coordinates_are_orthonormal(make):
    table = make()
    rows = dense(table.X)
    center, scale = rows.mean(axis=0), np.linspace(0.5, 2, rows.shape[1])
    span = row_span(stack_of(table).centered(center), scale)
    scaled = (rows - center) / scale
    np.testing.assert_allclose(span.rows @ span.rows.T, scaled @ scaled.T, atol=1e-9)
    assert span.rows.shape[1] == np.linalg.matrix_rank(scaled)
    coef = np.random.default_rng(2).normal(size=(2, 3, span.rows.shape[1]))
    expanded = span.expand_coef(coef)
    scores = np.einsum("nd,scd->nsc", rows - center, expanded)
    np.testing.assert_allclose(scores, np.einsum("nr,scr->nsc", span.rows, coef), atol=1e-9)
    np.testing.assert_allclose(((expanded * scale) ** 2).sum(axis=-1), (coef**2).sum(axis=-1), rtol=1e-9)


@pytest.mark.parametrize("make", [wide, wide_text], ids=lambda make: make.__name__)
def test_row_span_maps_points_both_ways(make):
    table = make()
    rows = dense(table.X)
    center, scale = rows.mean(axis=0), np.linspace(0.5, 2, rows.shape[1])
    span = row_span(stack_of(table).centered(center), scale)
    np.testing.assert_allclose(span.expand_points(span.rows), rows - center, atol=1e-9)
    np.testing.assert_allclose(span.project(rows[3] - center), span.rows[3], atol=1e-9)


def test_row_span_of_equal_rows_is_one_zero_direction():
    table = type(text())("constant", np.ones((4, 9)), np.array([0, 1, 0, 1]))
    span = row_span(stack_of(table).centered(np.ones(9)), np.ones(9))
    np.testing.assert_array_equal(span.rows, np.zeros((4, 1)))


def diagonal_of(design, scale):
    return diagonal_coordinates(scale, design.column_variance())


@pytest.mark.parametrize("n_folds", [3, 70], ids=["few_folds", "more_than_are_grouped"])
@pytest.mark.parametrize("is_weighted", [False, True], ids=["rows_alike", "weighted"])
def test_second_moments_of_folds_equal_numpy(is_weighted, n_folds, monkeypatch):
    """With weights, a fifth of the samples has weight zero."""
    table = gaussian()
    sample_weight = np.arange(len(table.y)) % 5 / 3 if is_weighted else np.ones(len(table.y))
    design = stack_of(table, fold_masks(len(table.y), n_folds) * sample_weight[:, None])
    design = design.centered(design.column_mean())
    n_multiplied, gram = [], DenseBlock.gram

    def counted(block, weight):
        n_multiplied.append(len(weight))
        return gram(block, weight)

    monkeypatch.setattr(DenseBlock, "gram", counted)
    actual, rows = design.covariances(), table.X - design.center
    for weight, moment in zip(design.weight.T, actual, strict=True):
        np.testing.assert_allclose(moment, (rows.T * weight) @ rows, rtol=1e-10, atol=1e-13)
    assert (sum(n_multiplied) == len(rows)) == (n_folds == 3)


@pytest.mark.parametrize("power", [0.0, 0.25, 0.5])
def test_principal_coordinates_diagonalize_the_covariance(power):
    table = gaussian()
    design = stack_of(table).centered(table.X.mean(axis=0))
    coordinates = principal_coordinates(design, table.X.std(axis=0), power)
    rotated = (table.X - table.X.mean(axis=0)) @ coordinates.basis
    variances = np.linalg.eigvalsh(np.corrcoef(table.X.T))
    expected = np.diag(variances ** (1 - 2 * power))
    np.testing.assert_allclose(np.diag(coordinates.spectrum), expected, atol=1e-12)
    np.testing.assert_allclose(rotated.T @ rotated / len(rotated), expected, atol=1e-12)
    np.testing.assert_allclose(coordinates.to_points(rotated[None])[0], table.X - table.X.mean(axis=0), atol=1e-9)


@pytest.mark.parametrize("make", [diagonal_of, principal_coordinates])
def test_along_gives_the_selected_coordinates(make):
    table = gaussian()
    coordinates = make(stack_of(table), table.X.std(axis=0))
    np.testing.assert_allclose(coordinates.along([2, 0])(table.X), coordinates.from_features(table.X)[:, [2, 0]])


def test_dense_data_with_more_samples_than_features_are_rotated_up_to_a_larger_width(monkeypatch):
    monkeypatch.setattr("annealed.rows.coordinates.WIDEST_EIGENPROBLEM", 3)
    for table, n_axes in [(gaussian(), 2), (text(), 1), (wide(), 1)]:
        design = stack_of(table)
        assert principal_coordinates(design, np.ones(design.n_features)).basis.ndim == n_axes
    monkeypatch.setattr("annealed.rows.coordinates.WIDEST_ROTATION", 3)
    assert principal_coordinates(stack_of(gaussian()), np.ones(4)).basis.ndim == 1


# --- float32 copies of the rows ----------------------------------------------------------------------


def nearly_collinear():
    """The samples of `gaussian` with the first feature repeated, plus noise of a millionth."""
    plain = gaussian()
    noise = 1e-6 * np.random.default_rng(3).normal(size=len(plain.y))
    return type(plain)("nearly_collinear", np.column_stack([plain.X, plain.X[:, 0] + noise]), plain.y)


def in_both_precisions(table, power=0.0):
    design = stack_of(table, uneven_weights(len(table.y))).centered(table.X.mean(axis=0))
    coordinates = principal_coordinates(design, table.X.std(axis=0), power)
    return design, coordinates, SinglePrecisionRows(design, coordinates)


@pytest.mark.parametrize("is_blocked", [False, True], ids=["whole", "blocks"])
@pytest.mark.parametrize("power", [0.0, 0.25, 0.5], ids=["rotated", "half-whiten", "whitened"])
@pytest.mark.parametrize("make", [gaussian, badly_scaled, nearly_collinear], ids=lambda make: make.__name__)
def test_single_precision_rows_agree_with_the_design_in_the_same_coordinates(make, power, is_blocked, monkeypatch):
    """Errors are relative to the spread of each coordinate, including the smallest."""
    if is_blocked:
        in_short_blocks(monkeypatch)
    design, coordinates, rows = in_both_precisions(make(), power)
    assert rows.X.dtype == np.float32
    spread = np.sqrt(coordinates.spectrum)
    coef = np.random.default_rng(0).normal(size=(3, 3, coordinates.rank)) / spread
    expected = design.product(coordinates.to_features(coef))
    np.testing.assert_allclose(rows.product(coef), expected, atol=1e-6 * np.abs(expected).max())
    residual = np.random.default_rng(1).normal(size=(design.n_rows, 3, 3)) / design.n_rows

    def sums(block):
        return (block.transposed_product(residual[block.rows]),)

    (single,), (double,) = rows.sum_rows(sums), design.sum_rows(sums)
    np.testing.assert_allclose(single / spread, coordinates.from_features(double) / spread, atol=1e-6)


def test_float32_coefficients_give_float32_products_and_float64_sums():
    design, coordinates, rows = in_both_precisions(badly_scaled())
    coef = np.random.default_rng(0).normal(size=(3, 3, coordinates.rank))
    single = rows.product(coef.astype(np.float32))
    assert single.dtype == np.float32
    expected = design.product(coordinates.to_features(coef))
    np.testing.assert_allclose(single, expected, atol=1e-6 * np.abs(expected).max())
    (sums,) = rows.sum_rows(lambda block: (block.transposed_product(single[block.rows]),))
    assert sums.dtype == np.float64


def test_single_precision_rows_do_not_change_the_design():
    table = gaussian()
    design, _, rows = in_both_precisions(table)
    assert design.X is table.X
    assert design.X.dtype == np.float64
    np.testing.assert_array_equal(rows.labels, design.labels)
    np.testing.assert_allclose(rows.weight, design.weight, rtol=1e-7)


@pytest.fixture(params=[1, 10**9], ids=["large", "small"])
def groups(request, monkeypatch):
    """Whether the held-out part of a fold is large enough to form separate blocks."""
    monkeypatch.setattr("annealed.rows.dense.BLOCK", request.param)
    return request.param == 1


def in_folds(n_rows=1200, n_folds=3):
    """A design with the final fit and folds of random samples, 400 by default, and its float32 copy."""
    table = gaussian(n_samples=n_rows)
    weight = np.ones((n_rows, 1 + n_folds))
    fold = np.random.default_rng(0).permutation(n_rows) % n_folds
    weight[np.arange(n_rows), 1 + fold] = 0
    design = stack_of(table, weight / weight.sum(axis=0)).centered(table.X.mean(axis=0))
    return design, SinglePrecisionRows(design, principal_coordinates(design, np.ones(table.X.shape[1]), 0.0)), fold


def test_held_out_samples_are_stored_together_and_skipped_if_they_are_many(groups):
    _, rows, fold = in_folds()
    n_evaluated = dict.fromkeys(range(3), 0)

    def evaluate(block):
        for fit in range(3) if block.fit_positions is None else block.fit_positions:
            n_evaluated[fit] += len(block.labels)
        assert (block.weight > 0).all() == groups

    list(rows.map_blocks(evaluate, np.arange(1, 4)))
    assert n_evaluated == {fit: np.sum(fold != fit) if groups else len(fold) for fit in range(3)}
    assert rows.n_groups == (3 if groups else 1)
    assert sum(rows.map_blocks(lambda block: np.count_nonzero(block.weight), slice(0, 1))) == len(fold)
    assert np.count_nonzero(np.diff(fold[rows.order])) == 2


@pytest.mark.parametrize("fits", [slice(None), slice(0, 1), np.arange(1, 4), np.array([2]), np.array([1, 3])], ids=str)
def test_sums_over_regrouped_rows_equal_those_of_the_design(fits, groups):
    design, rows, _ = in_folds()
    (sums,) = rows.sum_rows(lambda block: (block.weight.sum(axis=0),), fits)
    np.testing.assert_allclose(sums, np.ones(len(np.arange(4)[fits])), rtol=1e-6)

    def kernel(block):
        return (np.stack([np.bincount(block.labels, weight, 3) for weight in block.weight.T]),)

    np.testing.assert_allclose(rows.sum_rows(kernel, fits)[0], design.sum_rows(kernel, fits)[0], rtol=1e-6)


def test_regrouped_rows_keep_their_indices(groups):
    design, rows, fold = in_folds()
    for indices in (np.flatnonzero(fold == 1), np.array([5, 900, 17])):
        labels = np.concatenate(list(rows.map_rows(lambda block: block.labels, indices)))
        np.testing.assert_array_equal(labels, design.labels[indices])
    coef = np.random.default_rng(0).normal(size=(4, 3, rows.n_features))
    coordinates = principal_coordinates(design, np.ones(design.n_features), 0.0)
    np.testing.assert_allclose(rows.product(coef), design.product(coordinates.to_features(coef)), atol=1e-5)


def test_many_or_uneven_folds_keep_the_order_of_the_rows():
    table = gaussian()
    weight = np.ones((len(table.y), 1 + len(table.y)))
    weight[np.arange(len(table.y)), 1 + np.arange(len(table.y))] = 0
    design = stack_of(table, weight / weight.sum(axis=0))
    rows = SinglePrecisionRows(design, principal_coordinates(design, np.ones(table.X.shape[1]), 0.0))
    np.testing.assert_array_equal(rows.labels, design.labels)
