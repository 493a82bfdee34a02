"""The embedded default: measurements of breast-cancer cells, as scikit-learn ships them."""

from sklearn.datasets import load_breast_cancer
from sklearn.utils import Bunch


def load_default() -> Bunch:
    """Load the table that the demo and the examples use.

    The Wisconsin diagnostic breast-cancer data: 569 rows, 30 raw columns whose spreads run from 0.003 to 570,
    two classes. It shows annealing at a glance: the validation loss has a clear best at a middle temperature,
    and a solver that minds the units of the columns does not converge on it.

    Returns
    -------
    table : Bunch
        ``X`` (569, 30) float64, ``y`` (569,) codes, ``feature_names``, ``target_names``.

    Examples
    --------
    >>> from annealed.datasets import load_default
    >>> load_default().X.shape
    (569, 30)
    """
    source = load_breast_cancer()
    return Bunch(
        X=source.data,
        y=source.target,
        feature_names=source.feature_names,
        target_names=source.target_names,
    )
