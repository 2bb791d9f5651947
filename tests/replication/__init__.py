"""Tests of the partition and its roles."""
