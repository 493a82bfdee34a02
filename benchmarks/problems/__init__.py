"""One module per problem: `TITLE`, `IS_QUICK`, `tables()`, and `methods()` if it does not run the usual methods."""

from benchmarks.problems import (
    dense_ill_conditioned,
    genes,
    mnist,
    newsgroups,
    scaling,
    small_tables,
    small_text,
)

MODULES = (small_tables, small_text, genes, dense_ill_conditioned, mnist, newsgroups, scaling)
PROBLEMS = {module.__name__.rpartition(".")[2]: module for module in MODULES}
QUICK = [name for name, module in PROBLEMS.items() if module.IS_QUICK]
