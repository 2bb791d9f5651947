"""The commands as a person runs them: real processes against a real broker."""
