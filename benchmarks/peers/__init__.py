"""One file a peer: `methods(table, anchor, yardstick, options)` yields what runs there, or why it does not."""

from benchmarks.peers import coordinate_descent, lda, logistic_regression, logistic_regression_cv

PEERS = (logistic_regression, logistic_regression_cv, lda, coordinate_descent)
