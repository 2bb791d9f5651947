"""An entry of `.index` and of `.timeindex`: two numbers, of which the first one grows.

The first number of an offset index is the last offset of a batch, relative to the segment's base, the second
one the batch's position. Those of a time index are the largest timestamp so far and the relative offset that
it was seen at.
"""

from __future__ import annotations

from struct import Struct

OFFSET_ENTRY = Struct(">ii")
TIME_ENTRY = Struct(">qi")
