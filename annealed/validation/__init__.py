"""Validation: folds, scores of held-out samples, calibration, and the choice of the temperature."""
