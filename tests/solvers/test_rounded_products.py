"""Sparse data with features of very different sizes: rounding of the large ones must not hide the small ones."""

import numpy as np
import pytest
from scipy import sparse

from annealed import AnnealedLogisticRegression

N_ROWS = 620


def words_and(column):
    """Sparse words that determine the classes, and one dense feature beside them."""
    generator = np.random.RandomState(0)
    words = sparse.random(
        N_ROWS, 1500, 0.02, format="csr", random_state=generator, data_rvs=lambda size: generator.rand(size) + 0.2
    )
    y = (words @ generator.randn(1500) + 0.2 * generator.randn(N_ROWS) > 0).astype(int)
    return sparse.hstack([words, sparse.csr_array(column(generator)[:, None])]).tocsr(), y


def year(generator):
    return 2000 + 5 * generator.randn(N_ROWS)


def prices(generator):
    return np.exp(3 * generator.randn(N_ROWS) + 5) * (generator.rand(N_ROWS) < 0.3)


def wide_noise(generator):
    return 1000 * generator.randn(N_ROWS)


def far_off(generator):
    return 2e5 + generator.randn(N_ROWS)


def values_of(path, X, y, scale):
    """Q / T at every temperature, from the coefficients of the path, in float64."""
    logits = np.stack([X @ coef.T for coef in path.coef]) + path.intercept[:, None]
    margin = np.take_along_axis(logits, np.broadcast_to(y[:, None], (*logits.shape[:2], 1)), axis=2) - logits
    loss = np.log(np.exp(-margin).sum(axis=2)).mean(axis=1)
    return loss + path.temperatures / 2 * ((path.coef * scale) ** 2).sum(axis=(1, 2))


@pytest.mark.parametrize("penalty_scaling", ["none", "standardize"])
@pytest.mark.parametrize("column", [year, prices, wide_noise, far_off])
def test_features_of_very_different_sizes_are_solved(column, penalty_scaling):
    """Compared with a small tolerance."""
    X, y = words_and(column)
    scale = 1.0 if penalty_scaling == "none" else X.toarray().std(axis=0)
    settings = dict(penalty_scaling=penalty_scaling, schedule=[1.0, 0.1, 0.01, 0.003], selection="last")
    usual, exact = (AnnealedLogisticRegression(tol=tol, **settings).fit(X, y).path_ for tol in (1e-4, 9e-6))
    actual, least = (values_of(path, X, y, scale) for path in (usual, exact))
    np.testing.assert_allclose(usual.free_energy / usual.temperatures, actual, rtol=1e-6)
    assert (actual / least - 1).max() < 1e-6
