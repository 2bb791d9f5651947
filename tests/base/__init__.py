"""Tests of the settings and the real disk."""
