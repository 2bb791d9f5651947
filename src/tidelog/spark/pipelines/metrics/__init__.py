"""Measurements to windowed counts, sums and percentiles of each series."""
