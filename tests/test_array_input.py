"""Input of torch: tensors of a network in training, sparse and complex tensors, labels of every dtype."""

import copy

import numpy as np
import pytest
from devices import table

from annealed import MELDA, AnnealedLDA, AnnealedLogisticRegression, PottsDA
from annealed.arrays import to_host

pytestmark = pytest.mark.usefixtures("dispatch")
FEW = [1.0, 0.1]
ESTIMATORS = pytest.mark.parametrize(
    "model",
    [
        AnnealedLogisticRegression(schedule=FEW),
        AnnealedLDA(schedule=FEW),
        MELDA(1, schedule=FEW),
        PottsDA(n_prototypes=3, shrinkage=0.1),
    ],
    ids=lambda model: type(model).__name__,
)


@ESTIMATORS
@pytest.mark.parametrize("tracked", ["X", "sample_weight"])
def test_fitted_tensors_do_not_require_gradients(model, tracked, move_torch):
    X, y = table()
    given = {"X": move_torch(X), "y": move_torch(y), "sample_weight": move_torch(np.ones(len(y)))}
    given[tracked] = given[tracked].requires_grad_() * 1.0  # like the output of a layer
    fitted = copy.deepcopy(model.fit(**given))  # torch cannot copy a tensor that is part of a graph
    inner = getattr(fitted, "reduced_classifier_", fitted)
    assert not any(getattr(value, "requires_grad", False) for value in vars(inner).values())
    np.testing.assert_allclose(to_host(fitted.predict_proba(given["X"])), model.fit(X, y).predict_proba(X), atol=2e-3)


@ESTIMATORS
def test_sparse_and_complex_tensors_are_refused(model, move_torch):
    X, y = table()
    with pytest.raises(TypeError, match="must be dense.*Got layout torch.sparse_coo"):
        model.fit(move_torch(X).to_sparse(), move_torch(y))
    with pytest.raises(ValueError, match="Complex data not supported. Got X of torch.complex128"):
        model.fit(move_torch(X + 1j), move_torch(y))


@pytest.mark.parametrize("scoring", ["accuracy", "balanced_accuracy", "jaccard_macro", "neg_brier_score"])
@pytest.mark.parametrize("given", ["X, y", "X"])
def test_scorers_get_labels_and_predictions_of_the_same_library(scoring, given, move):
    X, y = table()
    model = AnnealedLogisticRegression(schedule=FEW, scoring=scoring, tol=1e-8)
    plain = model.fit(X, y).path_.validation_score
    moved = model.fit(move(X), move(y) if given == "X, y" else y).path_.validation_score
    np.testing.assert_allclose(moved, plain, atol=1e-5)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "float16"])
@pytest.mark.parametrize("given", ["X, y", "X"])
def test_predictions_have_the_dtype_of_the_labels(dtype, given, move_torch):
    X, y = table()
    names = (y > 0 if dtype == "bool" else y).astype(dtype)
    model = AnnealedLogisticRegression(schedule=FEW, scoring="accuracy")
    predicted = model.fit(move_torch(X), move_torch(names) if given == "X, y" else names).predict(move_torch(X))
    assert predicted.dtype == move_torch(names).dtype
    np.testing.assert_array_equal(to_host(predicted), model.fit(X, names).predict(X))


def test_a_read_only_array_is_sent_to_a_device_without_a_warning():
    """Arrays of pandas and of joblib's workers are read-only. By default torch warns about it once per process only."""
    torch = pytest.importorskip("torch")
    X, y = table()
    X.flags.writeable = False
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        AnnealedLogisticRegression(schedule=FEW, device="cpu").fit(X, y)
    finally:
        torch.set_warn_always(before)
