"""Tests of the shell around the broker."""
