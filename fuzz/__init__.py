"""Random trials by the thousand: model files that were damaged, and fits of every estimator to tables of every kind."""
