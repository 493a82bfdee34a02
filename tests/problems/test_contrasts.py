"""Scores and logits: logits = B scores, so every derivative by scores is B' times the derivative by logits."""

import numpy as np
import oracles
import pytest

from annealed.problems.contrasts import Contrasts

BASES = {2: np.array([[-1.0], [1.0]]) / np.sqrt(2), 3: np.eye(3)}


@pytest.fixture(params=BASES, ids="{}_classes".format)
def made(request):
    return Contrasts(request.param), BASES[request.param]


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def posteriors(n_classes, *shape):
    return np.random.default_rng(1).dirichlet(np.ones(n_classes), size=shape)


def hessians(posterior, basis):
    """B' (diag p - p p') B of each posterior, in loops."""
    flat = posterior.reshape(-1, posterior.shape[-1])
    each = [basis.T @ (np.diag(p) - np.outer(p, p)) @ basis for p in flat]
    return np.reshape(each, (*posterior.shape[:-1], basis.shape[1], basis.shape[1]))


@pytest.mark.parametrize(("n_classes", "n_scores"), [(2, 1), (3, 3), (7, 7)])
def test_two_classes_share_one_score(n_classes, n_scores):
    assert Contrasts(n_classes).n_scores == n_scores


# --- values -----------------------------------------------------------------------------------------


def test_logits_are_those_of_the_basis(made):
    contrasts, basis = made
    scores = drawn(5, 4, contrasts.n_scores)
    expected = scores @ basis.T
    logits = contrasts.logits(scores.copy())
    np.testing.assert_allclose(logits, expected, rtol=1e-14)
    np.testing.assert_allclose((logits**2).sum(axis=-1), (scores**2).sum(axis=-1), rtol=1e-14)


def test_logits_of_one_fit_alone(made):
    contrasts, basis = made
    scores = drawn(5, contrasts.n_scores)
    np.testing.assert_allclose(contrasts.logits(scores.copy()), scores @ basis.T, rtol=1e-14)


def test_logits_keep_the_dtype_and_contiguous_rows():
    scores = drawn(5, 4, 1).astype(np.float32)
    logits = Contrasts(2).logits(scores)
    assert logits.dtype == np.float32
    assert np.moveaxis(logits, 0, -1).flags.c_contiguous


@pytest.mark.parametrize("axis", [1, 2])
def test_coefficients_of_classes_have_the_length_of_those_of_scores(made, axis):
    contrasts, basis = made
    values = np.moveaxis(drawn(4, contrasts.n_scores, 6), 1, axis)
    classes = contrasts.to_classes(values, axis)
    expected = np.moveaxis(np.einsum("cs,fsd->fcd", basis, np.moveaxis(values, axis, 1)), 1, axis)
    np.testing.assert_allclose(classes, expected, rtol=1e-14)
    np.testing.assert_allclose((classes**2).sum(axis=(1, 2)), (values**2).sum(axis=(1, 2)), rtol=1e-14)


def test_from_classes_inverts_to_classes(made):
    contrasts, basis = made
    values = drawn(4, contrasts.n_classes)
    np.testing.assert_allclose(contrasts.from_classes(values), values @ basis, rtol=1e-13)
    scores = drawn(4, contrasts.n_scores)
    np.testing.assert_allclose(contrasts.from_classes(contrasts.to_classes(scores, axis=1)), scores, rtol=1e-13)


def test_a_common_shift_of_two_classes_is_lost():
    values = drawn(4, 2)
    np.testing.assert_allclose(Contrasts(2).from_classes(values + 5.0), Contrasts(2).from_classes(values), rtol=1e-13)


# --- derivatives ------------------------------------------------------------------------------------


def test_pull_is_the_derivative_by_scores(made):
    contrasts, basis = made
    residual = drawn(5, 4, contrasts.n_classes)
    residual -= residual.mean(axis=-1, keepdims=True)
    np.testing.assert_allclose(contrasts.pull(residual), residual @ basis, rtol=1e-12, atol=1e-15)


def test_variance_is_the_diagonal_of_the_hessian(made):
    contrasts, basis = made
    posterior = posteriors(contrasts.n_classes, 5)
    expected = np.diagonal(hessians(posterior, basis), axis1=-2, axis2=-1)
    np.testing.assert_allclose(contrasts.variance(posterior * (1 - posterior)), expected, rtol=1e-12)


def test_covariance_is_the_upper_triangle_of_the_hessian(made):
    contrasts, basis = made
    posterior = posteriors(contrasts.n_classes, 5, 4)
    left, right = np.triu_indices(contrasts.n_scores)
    expected = hessians(posterior, basis)[..., left, right]
    np.testing.assert_allclose(contrasts.covariance(posterior, left, right), expected, rtol=1e-12)


def test_row_hessian_is_a_diagonal_minus_an_outer_product(made):
    contrasts, basis = made
    posterior = posteriors(contrasts.n_classes, 4, 5)
    along, across = contrasts.row_hessian(posterior)
    found = along[..., None] * np.eye(contrasts.n_scores) - across[..., None] * across[..., None, :]
    np.testing.assert_allclose(found, hessians(posterior, basis), rtol=1e-12)


@pytest.mark.parametrize("n_vectors", [0, 1, 3])
def test_hessian_along_vectors_is_that_of_all_rows_between_them(made, n_vectors):
    contrasts, basis = made
    posterior, weight = posteriors(contrasts.n_classes, 4, 5), np.abs(drawn(4, 5))
    weight[:, 1] = 0  # a row that the fit leaves out
    vectors = drawn(4, n_vectors, 5, contrasts.n_scores)
    by_row = weight[..., None, None] * hessians(posterior, basis)
    products = np.einsum("fnst,fmnt->fmns", by_row, vectors)
    square, to_shifts, of_shifts = contrasts.hessian_along(vectors, posterior, weight)
    np.testing.assert_allclose(square, np.einsum("fmns,fkns->fmk", products, vectors), atol=1e-13)
    np.testing.assert_allclose(to_shifts, products.sum(axis=2), atol=1e-13)
    np.testing.assert_allclose(of_shifts, by_row.sum(axis=1), atol=1e-13)


# --- loss and posterior -----------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1.0, 30.0, 1e3])
def test_loss_and_posterior_are_those_of_the_logits(made, size):
    contrasts, basis = made
    scores = size * drawn(4, 6, contrasts.n_scores)
    labels = np.arange(6) % contrasts.n_classes
    losses, posterior = contrasts.loss_and_posterior(scores.copy(), labels)
    for fit, logits in enumerate(scores @ basis.T):
        np.testing.assert_allclose(posterior[fit], oracles.exact_posterior(logits, 1.0), rtol=1e-12, atol=1e-300)
        expected = [oracles.log_partition(row, 1.0) - row[label] for row, label in zip(logits, labels, strict=True)]
        np.testing.assert_allclose(losses[fit], expected, rtol=1e-12, atol=1e-12 * size)


@pytest.mark.parametrize("score", [-1e3, 0.0, 1e3])
@pytest.mark.parametrize("label", [0, 1])
def test_a_large_score_gives_a_certain_posterior_and_a_finite_loss(score, label):
    losses, posterior = Contrasts(2).loss_and_posterior(np.array([[score]]), np.array([label]))
    second = 0.5 * (1 + np.sign(score))
    np.testing.assert_allclose(posterior, [[1 - second, second]], atol=1e-300)
    margin = np.sqrt(2) * score * (1 if label else -1)
    np.testing.assert_allclose(losses, np.log(2) if score == 0 else max(-margin, 0.0), rtol=1e-14)


def test_a_small_loss_of_one_score_keeps_its_digits():
    """An almost certain row: the loss is exp(-margin), far below the rounding error of one."""
    losses, _ = Contrasts(2).loss_and_posterior(np.array([[60 / np.sqrt(2)]]), np.array([1]))
    np.testing.assert_allclose(losses, np.exp(-60), rtol=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_differences_are_those_from_any_reference(n_classes):
    contrasts = Contrasts(n_classes)
    differences = np.random.default_rng(0).normal(size=(4, contrasts.n_differences, 6))
    gradient = contrasts.without_shift(np.random.default_rng(1).normal(size=(4, contrasts.n_scores, 6)))
    for reference in (*range(contrasts.n_scores), -1):
        scores = contrasts.from_differences(differences, reference)
        if n_classes > 2:
            np.testing.assert_allclose(scores.sum(axis=1), 0, atol=1e-14)
            found = np.delete(scores - scores[:, [reference]], reference, axis=1)
            np.testing.assert_allclose(found, differences, atol=1e-14)
        squares = np.einsum("nsk,st,ntk->nk", differences, contrasts.square, differences)
        np.testing.assert_allclose(np.sum(scores**2, axis=1), squares, atol=1e-13)
        slope = np.sum(contrasts.by_differences(gradient, reference) * differences, axis=(1, 2))
        np.testing.assert_allclose(slope, np.sum(gradient * scores, axis=(1, 2)), atol=1e-13)


def test_evaluate_returns_the_weighted_derivative_of_the_loss(made):
    contrasts, basis = made
    labels, weight = np.arange(6) % contrasts.n_classes, np.random.default_rng(2).uniform(size=(6, 4))
    scores = np.asfortranarray(20 * drawn(6, 4, contrasts.n_scores))
    logits = scores @ basis.T
    posterior = np.exp(logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True))
    losses, pulled, seen = contrasts.evaluate(scores, labels, np.asfortranarray(weight))
    rows = np.arange(6)
    np.testing.assert_allclose(losses, -np.log(posterior[rows, :, labels]), rtol=1e-12, atol=1e-14)
    residual = posterior - np.eye(contrasts.n_classes)[labels][:, None]
    np.testing.assert_allclose(pulled, weight[..., None] * (residual @ basis), rtol=1e-10, atol=1e-14)
    expected = np.sort(posterior, axis=-1) if contrasts.is_single else posterior
    np.testing.assert_allclose(seen, expected, rtol=1e-12, atol=1e-15)
