"""What serves clients and followers: logs, replicas, sessions, coordinators, and what keeps them in order."""
