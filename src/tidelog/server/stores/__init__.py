"""The real coordination stores behind the one `Store` interface."""
