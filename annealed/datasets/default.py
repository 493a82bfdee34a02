"""The built-in example: measurements of breast-cancer cells, as shipped with scikit-learn."""

from sklearn.datasets import load_breast_cancer
from sklearn.utils import Bunch


def load_default() -> Bunch:
    """Load the data set of the demo and the examples.

    The Wisconsin diagnostic breast-cancer data: 569 samples, two classes, and 30 raw features whose standard deviations
    range from 0.003 to 570. It shows the effect of annealing clearly: the validation loss has a minimum at an
    intermediate temperature, and a solver that depends on the units of the features does not converge on it.

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
