"""What loads a broker: batches built once, frames encoded once, and loops that only move bytes."""
