"""Real broker processes, killed, paused and restarted on damaged directories."""
