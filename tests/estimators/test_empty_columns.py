"""Sparse X most of whose columns no row uses, as hashed words have them: they cost nothing and change nothing."""

import numpy as np
import pytest
from scipy import sparse

from annealed import MELDA, AnnealedLDA, AnnealedLogisticRegression
from annealed.datasets import make_gaussian_classes

N_COLUMNS = 400


def rows_and_hashed(n_classes=3, n_rows=90, n_used=40, dtype=np.float64):
    """Rows, the same scattered over many more columns, which columns these are, and labels."""
    made = make_gaussian_classes(n_rows, n_used, n_classes, separation=3.0, random_state=0)
    X = sparse.csr_array(np.where(np.abs(made.X) > 0.8, made.X, 0).astype(dtype))
    used = np.sort(np.random.RandomState(0).permutation(N_COLUMNS)[:n_used])
    return X, sparse.csr_array((X.data, used[X.indices], X.indptr), shape=(n_rows, N_COLUMNS)), used, made.y


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("n_rows", [30, 90, 900], ids=["wide", "tall", "many"])
@pytest.mark.parametrize("penalty_scaling", ["auto", "standardize"])
def test_they_change_nothing(n_classes, n_rows, penalty_scaling):
    X, hashed, used, y = rows_and_hashed(n_classes, n_rows)
    own, model = (AnnealedLogisticRegression(penalty_scaling=penalty_scaling).fit(rows, y) for rows in (X, hashed))
    assert model.path_.coef.shape == (len(own.path_), n_classes, N_COLUMNS)
    assert np.allclose(model.path_.coef[..., used], own.path_.coef, rtol=1e-10)
    assert np.count_nonzero(model.path_.coef) == np.count_nonzero(own.path_.coef)
    assert np.allclose(model.path_.intercept, own.path_.intercept, rtol=1e-10)
    assert (
        model.temperature_ == pytest.approx(own.temperature_, rel=1e-10)
        and model.penalty_scaling_ == own.penalty_scaling_
    )
    assert np.allclose(model.predict_proba(hashed), own.predict_proba(X), rtol=1e-10)
    between = np.sqrt(own.path_.temperatures[3] * own.path_.temperatures[4])
    assert np.allclose(model.at(between).coef_[:, used], own.at(between).coef_, rtol=1e-10)
    assert model.coef_.shape == (1 if n_classes == 2 else n_classes, N_COLUMNS)


def test_the_path_holds_none_of_them():
    X, hashed, used, y = rows_and_hashed()
    path = AnnealedLogisticRegression().fit(hashed, y).path_
    assert np.array_equal(path.columns, used) and path.n_columns == N_COLUMNS
    assert path.arrays["coef"].shape[-1] == len(used)
    assert path == AnnealedLogisticRegression().fit(hashed, y).path_
    assert path != AnnealedLogisticRegression().fit(hashed[:, ::-1], y).path_
    assert AnnealedLogisticRegression().fit(X, y).path_.columns is None


@pytest.mark.parametrize("settings", [{"scoring": "accuracy"}, {"selection": "loo"}, {"selection": "holdout"}], ids=str)
def test_validation_sees_rows_as_they_are_given(settings):
    X, hashed, used, y = rows_and_hashed(n_rows=900)
    own, model = (AnnealedLogisticRegression(**settings).fit(rows, y) for rows in (X, hashed))
    assert np.allclose(model.coef_[:, used], own.coef_, rtol=1e-10)


def test_a_validation_set_may_use_others():
    X, hashed, used, y = rows_and_hashed()
    others = hashed.tolil()
    others[0, np.setdiff1d(np.arange(N_COLUMNS), used)] = 1e3
    fits = [(X, X), (hashed, hashed), (hashed, others.tocsr())]
    own, *models = (
        AnnealedLogisticRegression(selection="holdout").fit(rows, y, X_val=seen, y_val=y) for rows, seen in fits
    )
    assert all(np.allclose(model.coef_[:, used], own.coef_, rtol=1e-10) for model in models)


@pytest.mark.parametrize("estimator", [MELDA(), AnnealedLDA()], ids=str)
def test_other_estimators_take_them(estimator):
    X, hashed, _, y = rows_and_hashed()
    assert estimator.fit(hashed, y).score(hashed, y) >= estimator.fit(X, y).score(X, y) > 0.75


def test_float32_rows_and_columns_without_an_entry():
    X, hashed, used, y = rows_and_hashed(dtype=np.float32)
    model = AnnealedLogisticRegression().fit(hashed, y)
    assert model.coef_.dtype == model.path_.coef.dtype == np.float32
    assert np.allclose(model.coef_[:, used], AnnealedLogisticRegression().fit(X, y).coef_, rtol=1e-5)
    nothing = AnnealedLogisticRegression().fit(sparse.csr_array((len(y), N_COLUMNS)), y)
    assert not nothing.coef_.any()


def test_a_column_is_named_by_its_own_number():
    _, hashed, used, y = rows_and_hashed()
    hashed.data[hashed.indices == used[5]] = 1e200
    with pytest.raises(ValueError, match=f"Column {used[5]} of X holds numbers so large"):
        AnnealedLogisticRegression(penalty_scaling="standardize").fit(hashed, y)
