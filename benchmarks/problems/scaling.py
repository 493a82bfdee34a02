"""Growth of the cost of a path with samples, with temperatures (four times as many) and with folds (ten, not five)."""

from annealed.datasets import make_gaussian_classes
from benchmarks import ours
from benchmarks.contract import Table

TITLE = "scaling of our path"
IS_QUICK = False
BASE = "50 temperatures, 5 folds"
FINER = "200 temperatures, 5 folds"
MORE_FOLDS = "50 temperatures, 10 folds"


def tables(sizes=(10_000, 20_000, 40_000, 80_000), n_features=50, n_classes=5):
    for n_rows in sizes:
        made = make_gaussian_classes(n_rows, n_features, n_classes, condition=1e4, random_state=0)
        yield Table(f"scaling, {n_rows} rows", made.X, made.y)


def methods(table, yardstick):
    """Our path only: a fixed list of temperatures at every size, a finer list, and more folds."""
    hot = ours.hottest(table)
    ladder, finer = ours.ladder(hot, 50), ours.ladder(hot, 50, finer=4)
    return [
        ours.on_grid(BASE, table, yardstick, ladder),
        ours.on_grid(FINER, table, yardstick, finer),
        ours.on_grid(MORE_FOLDS, table, yardstick, ladder, n_folds=10),
    ]
