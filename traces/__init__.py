"""Sources of requests: canonical traces, arrival processes, embeddings, similarity search."""
