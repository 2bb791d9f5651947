"""Consumer groups: state machines whose state is stored in `__consumer_offsets`.

**Invariant:** a decision is a list of records; nothing changes before they are replayed.
"""
