"""What pictures share: names as they are written, and labels that are known."""

import numpy as np


def as_written(name):
    """A name of the data: matplotlib reads formulas between dollars, and leaves out of legends what begins with _."""
    text = str(name).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def checked_labels(y, n_rows, classes):
    """One known class a row, as an array: rows of another would be left out without a word."""
    y = np.asarray(y)
    if y.shape != (n_rows,):
        raise ValueError(f"y must hold one class for each of {n_rows} rows. Got an array of shape {y.shape}.")
    is_known = np.any([y == label for label in classes], axis=0)
    if not is_known.all():
        known = np.asarray(classes)[:20].tolist()
        raise ValueError(f"y must hold classes of the estimator. Got {y[~is_known].tolist()[0]!r}, known: {known}.")
    return y
