"""One file an experiment: `TITLE`, `run(options)`, which prints ours beside the published numbers, and perhaps
`add_options(parser)` for options of its own.
"""

from experiments import melda_table2, potts_suite, potts_tables, suite

MODULES = (melda_table2, potts_suite, potts_tables, suite)
EXPERIMENTS = {module.__name__.rpartition(".")[2].replace("_", "-"): module for module in MODULES}
