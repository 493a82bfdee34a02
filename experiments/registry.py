"""One file an experiment: `TITLE`, `OPTIONS`, the names of those it heeds, `run(options)`, which prints ours beside the
published numbers, and perhaps `add_options(parser)` for options of its own.
"""

from experiments import ada_newsgroups, ada_webkb, keel, melda_table2, potts_suite, potts_tables, suite

MODULES = (melda_table2, ada_webkb, ada_newsgroups, potts_tables, potts_suite, suite, keel)
EXPERIMENTS = {module.__name__.rpartition(".")[2].replace("_", "-"): module for module in MODULES}
