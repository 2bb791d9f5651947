"""Bytes from anybody: round trips by Hypothesis, mutated frames, and every API of every version without a socket."""
