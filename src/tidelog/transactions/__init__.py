"""The transaction coordinator: a state machine whose state lives in `__transaction_state`.

**Invariant:** a decision is a list of records; nothing changes before they are replayed.
"""
