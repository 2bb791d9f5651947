"""Tests of the broker: wiring, waiting room, fetch sessions."""
