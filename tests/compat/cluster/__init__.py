"""Real clients against a replicated cluster whose brokers are killed and restarted under them."""
