"""Website activity to sessions, top pages, funnels and what is viewed and bought together."""
