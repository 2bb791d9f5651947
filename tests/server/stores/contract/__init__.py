"""What holds for every store, and the client that asks for it."""
