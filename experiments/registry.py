"""One file an experiment: `TITLE`, `run(options)`, which prints ours beside the published numbers, and perhaps
`add_options(parser)` for options of its own.
"""

from experiments import ada_newsgroups, ada_webkb, melda_table2, suite

MODULES = (ada_newsgroups, ada_webkb, melda_table2, suite)
EXPERIMENTS = {module.__name__.rpartition(".")[2].replace("_", "-"): module for module in MODULES}
