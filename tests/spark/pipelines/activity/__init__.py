"""Website activity."""
