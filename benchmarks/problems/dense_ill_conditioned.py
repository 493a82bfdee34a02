"""Many samples of few, strongly correlated features: ten Gaussian classes, raw features."""

from annealed.datasets import make_gaussian_classes
from benchmarks.contract import Table

TITLE = "dense 100000 x 100, 10 classes, ill-conditioned"
IS_QUICK = False
CONDITION = 1e6  # of the covariance


def tables(n_rows=100_000, n_features=100, n_classes=10):
    made = make_gaussian_classes(n_rows, n_features, n_classes, condition=CONDITION, random_state=0)
    yield Table(f"dense {n_rows} x {n_features}", made.X, made.y)
