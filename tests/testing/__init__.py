"""The broker that people put inside their tests."""
