"""The brokers that are compared: how each is fetched, configured, started, paused and stopped."""
