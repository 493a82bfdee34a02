"""Handwritten digits: the canonical training part, with raw pixels from 0 to 255."""

import numpy as np

from annealed.datasets import load_table
from benchmarks.contract import Table

TITLE = "MNIST 60000 x 784"
IS_QUICK = False


def tables():
    table = load_table("mnist", dtype=None)
    yield Table("mnist", table.X[table.train].astype(np.float64), table.y[table.train])
