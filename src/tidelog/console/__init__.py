"""The web page of a broker.

**Invariant:** a client like any other; it has no door of its own into the broker.
"""
