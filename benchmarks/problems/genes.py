"""Gene expression, with tens of samples and thousands of features: every gene_* table of the suite."""

from annealed.datasets import load_table, table_names
from benchmarks.contract import Table

TITLE = "gene expression, features far outnumber samples"
IS_QUICK = True


def tables():
    for name in table_names():
        if name.startswith("gene_"):
            table = load_table(name)
            yield Table(name, table.X, table.y)
