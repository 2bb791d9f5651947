"""One deterministic object that holds all state of a broker: wiring, waiting room, fetch sessions.

**Invariant:** no socket, clock, thread, `async` or randomness; inputs go in, effects come out.
"""
