"""Tuned numbers whose worth no problem of the ablation can tell, each with its reason."""

from __future__ import annotations

LIMITS = {
    "SHARE_OF_MEMORY": "memory of a device",
    "MOST_COPIED_BYTES": "memory: larger than the problems",
    "EXTREME": "a limit of the input",
    "contrasts.MOST_ROWS": "a limit of the input",
    "CHECKED_ROWS": "a check of families that users define",
    "LITERAL_INNER_ITERATIONS": "the paper's, in `as_published`",
    "DEFAULT_FOLDS": "a default of the estimators",
    "UNPENALIZED": "the limit of no penalty, for a default of MELDA",
    "SMALLEST_WITHIN": "rounding: a floor of what is divided by, in MELDA",
    "penalized_linear.UNSEEN_WEIGHT": "a floor, so that an intercept has a minimum: of classes without weight",
    "distance.UNSEEN_WEIGHT": "a floor, so that a logarithm is finite: of classes without weight",
    "UNSEEN_LOG_PRIOR": "a floor, so that a logarithm is finite: of classes without weight",
    "WEAK_ANCHOR": "a warning of slow fits without an anchor, which is not the default",
    "FEWEST_ROWS": "calls in predictions of quadratic families",
    "LEAST_RISE": "families that users define",
    "HIGH_LEVERAGE": 'a warning of selection="loo"',
    "MOST_HIGH_LEVERAGE": 'a warning of selection="loo"',
    "N_PROBES": 'accuracy of selection="loo" on large tables',
    "MOST_EXACT_WORK": 'accuracy of selection="loo" on large tables',
    "SMALLEST_SHARED": "threads: the ablation has one",
    "THREAD": "threads: the ablation has one",
}
# Measured by `python dev.py reproduce kernel`: the ablation has no kernels.
OF_KERNELS = {
    *("MOST_GAMMAS", "ROWS_OF_COLUMN", "MOST_LANDMARKS", "WORTHWHILE", "CANDIDATES", "SAMPLED_ROWS", "MOST_BYTES"),
    *("NEGLIGIBLE", "FIRST_LANDMARKS", "LEAST_EIGENVALUE", "LARGEST_EIGENPROBLEM", "kernel.MOST_ROWS"),
}
# Measured by `benchmarks/gpu_*.py`.
ON_A_DEVICE = {
    *("DEVICE_BLOCK_BYTES", "REFINED_SHARE", "SMALLEST_FACTOR", "INSPECTED_ROWS", "FEW_COLUMNS", "TEMPORARIES"),
    *("VALUE_ROUNDING", "DECREASE_ROUNDING", "MOST_NUMBERS", "WARP_VALUES", "LEAST_WARPS", "gibbs_kernels.STEPS"),
    *("LEAST_PROTOTYPES", "LEAST_FEATURES", "LINES", "WARPS"),
}
