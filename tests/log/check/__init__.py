"""Tests of the log engine on a real disk, in temporary folders."""
