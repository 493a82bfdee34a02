"""scikit-learn's LinearDiscriminantAnalysis: no path, no tuning, another objective; its time is for orientation."""

from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from benchmarks.contract import Method, Skipped

NAME = "LinearDiscriminantAnalysis"


def methods(table, anchor, yardstick, options):
    if table.is_sparse:
        yield Skipped(NAME, "takes no sparse X")
    else:
        yield Method(NAME, lambda: LinearDiscriminantAnalysis().fit(table.X, table.y), patience=60.0)
