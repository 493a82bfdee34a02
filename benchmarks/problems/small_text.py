"""Small sparse text: word counts of two pairs of newsgroups."""

from annealed.datasets import load_table
from benchmarks.contract import Table

TITLE = "small sparse text"
IS_QUICK = True


def tables():
    for name in ("text_pcmac", "text_relathe"):
        table = load_table(name)
        yield Table(name, table.X, table.y)
