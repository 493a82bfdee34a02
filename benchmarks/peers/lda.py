"""scikit-learn's LinearDiscriminantAnalysis: another objective, without path or tuning; timed for orientation."""

from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from benchmarks.contract import Method, Skipped

NAME = "LinearDiscriminantAnalysis"


def methods(table, anchor, yardstick, options):
    if table.is_sparse:
        yield Skipped(NAME, "does not support sparse X")
    else:
        yield Method(NAME, lambda: LinearDiscriminantAnalysis().fit(table.X, table.y), patience=60.0)
