"""Tests of the image, the decisions and the placement."""
