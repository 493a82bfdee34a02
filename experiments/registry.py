"""One module per experiment.

It has a `TITLE`, `OPTIONS` (the names of the options that it accepts), `run(options)`, which prints our numbers with
the published ones, and optionally `add_options(parser)` for further options.
"""

from experiments import ada_newsgroups, ada_webkb, keel, kernel, melda_table2, potts_suite, potts_tables, suite

MODULES = (melda_table2, ada_webkb, ada_newsgroups, potts_tables, potts_suite, suite, keel, kernel)
EXPERIMENTS = {module.__name__.rpartition(".")[2].replace("_", "-"): module for module in MODULES}
