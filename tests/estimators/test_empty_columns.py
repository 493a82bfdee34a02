"""Sparse features that are zero in every sample, as from hashed words: they cost nothing and change nothing."""

import numpy as np
import pytest
from scipy import sparse

from annealed import MELDA, AnnealedLDA, AnnealedLogisticRegression
from annealed.datasets import make_gaussian_classes

N_COLUMNS = 400


def narrow_and_hashed(n_classes=3, n_rows=90, n_used=40, dtype=np.float64):
    """X, the same features as some columns of a wider matrix, the indices of those columns, and labels."""
    drawn = make_gaussian_classes(n_rows, n_used, n_classes, separation=3.0, random_state=0)
    X = sparse.csr_array(np.where(np.abs(drawn.X) > 0.8, drawn.X, 0).astype(dtype))
    used = np.sort(np.random.RandomState(0).permutation(N_COLUMNS)[:n_used])
    return X, sparse.csr_array((X.data, used[X.indices], X.indptr), shape=(n_rows, N_COLUMNS)), used, drawn.y


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("n_rows", [30, 90, 900], ids=["wide", "tall", "many"])
@pytest.mark.parametrize("penalty_scaling", ["auto", "standardize"])
def test_empty_features_change_nothing(n_classes, n_rows, penalty_scaling):
    X, hashed, used, y = narrow_and_hashed(n_classes, n_rows)
    narrow, model = (AnnealedLogisticRegression(penalty_scaling=penalty_scaling).fit(given, y) for given in (X, hashed))
    assert model.path_.coef.shape == (len(narrow.path_), n_classes, N_COLUMNS)
    assert np.allclose(model.path_.coef[..., used], narrow.path_.coef, rtol=1e-10)
    assert np.count_nonzero(model.path_.coef) == np.count_nonzero(narrow.path_.coef)
    assert np.allclose(model.path_.intercept, narrow.path_.intercept, rtol=1e-10)
    assert (
        model.temperature_ == pytest.approx(narrow.temperature_, rel=1e-10)
        and model.penalty_scaling_ == narrow.penalty_scaling_
    )
    assert np.allclose(model.predict_proba(hashed), narrow.predict_proba(X), rtol=1e-10)
    between = np.sqrt(narrow.path_.temperatures[3] * narrow.path_.temperatures[4])
    assert np.allclose(model.at(between).coef_[:, used], narrow.at(between).coef_, rtol=1e-10)
    assert model.coef_.shape == (1 if n_classes == 2 else n_classes, N_COLUMNS)


def test_the_path_stores_no_coefficients_of_empty_features():
    X, hashed, used, y = narrow_and_hashed()
    path = AnnealedLogisticRegression().fit(hashed, y).path_
    assert np.array_equal(path.columns, used) and path.n_columns == N_COLUMNS
    assert path.arrays["coef"].shape[-1] == len(used)
    assert path == AnnealedLogisticRegression().fit(hashed, y).path_
    assert path != AnnealedLogisticRegression().fit(hashed[:, ::-1], y).path_
    assert AnnealedLogisticRegression().fit(X, y).path_.columns is None


@pytest.mark.parametrize("settings", [{"scoring": "accuracy"}, {"selection": "loo"}, {"selection": "holdout"}], ids=str)
def test_every_way_of_validation_accepts_empty_features(settings):
    X, hashed, used, y = narrow_and_hashed(n_rows=900)
    narrow, model = (AnnealedLogisticRegression(**settings).fit(given, y) for given in (X, hashed))
    assert np.allclose(model.coef_[:, used], narrow.coef_, rtol=1e-10)


def test_features_empty_in_training_are_ignored_in_a_validation_set():
    X, hashed, used, y = narrow_and_hashed()
    filled = hashed.tolil()
    filled[0, np.setdiff1d(np.arange(N_COLUMNS), used)] = 1e3
    pairs = [(X, X), (hashed, hashed), (hashed, filled.tocsr())]
    narrow, *models = (
        AnnealedLogisticRegression(selection="holdout").fit(train, y, X_val=held_out, y_val=y)
        for train, held_out in pairs
    )
    assert all(np.allclose(model.coef_[:, used], narrow.coef_, rtol=1e-10) for model in models)


@pytest.mark.parametrize("estimator", [MELDA(), AnnealedLDA()], ids=str)
def test_other_estimators_accept_empty_features(estimator):
    X, hashed, _, y = narrow_and_hashed()
    assert estimator.fit(hashed, y).score(hashed, y) >= estimator.fit(X, y).score(X, y) > 0.75


def test_float32_is_kept_and_all_features_may_be_empty():
    X, hashed, used, y = narrow_and_hashed(dtype=np.float32)
    model = AnnealedLogisticRegression().fit(hashed, y)
    assert model.coef_.dtype == np.float32
    assert model.path_.coef.dtype == np.float64
    assert np.allclose(model.coef_[:, used], AnnealedLogisticRegression().fit(X, y).coef_, rtol=1e-5)
    constant = AnnealedLogisticRegression().fit(sparse.csr_array((len(y), N_COLUMNS)), y)
    assert not constant.coef_.any()


def test_errors_name_a_column_by_its_index_in_x():
    _, hashed, used, y = narrow_and_hashed()
    hashed.data[hashed.indices == used[5]] = 1e200
    with pytest.raises(ValueError, match=f"Column {used[5]} of X holds numbers so large"):
        AnnealedLogisticRegression(penalty_scaling="standardize").fit(hashed, y)
