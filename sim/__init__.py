"""What happens to a request: engine, reuse, scheduling, cluster, record and study."""
