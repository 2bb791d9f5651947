"""The transaction coordinator's state machine, alone."""
