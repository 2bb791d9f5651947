"""Simulations: a disk that loses, fails and fills up, under the real log and the real broker."""
