"""Tests of the group coordinator: classic and consumer groups, their records, assignors and offsets."""
