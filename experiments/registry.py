"""One file an experiment: `TITLE`, and `run(options)`, which prints ours beside the published numbers."""

from experiments import melda_table2

MODULES = (melda_table2,)
EXPERIMENTS = {module.__name__.rpartition(".")[2].replace("_", "-"): module for module in MODULES}
