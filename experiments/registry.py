"""One file an experiment: `TITLE`, and `run(options)`, which prints ours beside the published numbers."""

from experiments import melda_table2, potts_suite, potts_tables

MODULES = (melda_table2, potts_suite, potts_tables)
EXPERIMENTS = {module.__name__.rpartition(".")[2].replace("_", "-"): module for module in MODULES}
