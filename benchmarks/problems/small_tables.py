"""Small tables, dominated by overhead."""

from sklearn.datasets import load_digits, load_iris, load_wine

from benchmarks.contract import Table

TITLE = "small tables"
IS_QUICK = True


def tables():
    for load in (load_iris, load_wine, load_digits):
        yield Table(load.__name__.removeprefix("load_"), *load(return_X_y=True))
