"""Bytes from anybody: round trips by Hypothesis, mutated frames, every API and version without a socket."""
