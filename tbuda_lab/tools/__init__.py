"""Calibration of the cost model: measurement sheets, fits, cross-validation. Nothing of the compiler needs it."""
