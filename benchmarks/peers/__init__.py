"""One module per peer: `methods(table, anchor, yardstick, options)` yields a `Method`, or `Skipped` with a reason."""

from benchmarks.peers import coordinate_descent, lda, logistic_regression, logistic_regression_cv

PEERS = (logistic_regression, logistic_regression_cv, lda, coordinate_descent)
