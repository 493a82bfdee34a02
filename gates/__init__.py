"""Recorded results and operation counts of every estimator, which judge a change of the core without a clock.

    python dev.py gates compare             # the working tree against gates/recorded.json
    python dev.py gates record              # accept what the working tree gives
    python dev.py gates certify             # certificates of random problems against a double-precision oracle
    python dev.py gates size                # lines and tuned numbers of the core

`tables.py` makes the tables and `estimators.py` names what is fitted on them; `counting.py` is the only file that knows
names inside the library.
"""
