"""Where requests come from: canonical traces, arrival clocks, embeddings, similarity search."""
