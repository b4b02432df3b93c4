"""What is similar to what: spaces, scales, and the search for the most similar artifact."""
