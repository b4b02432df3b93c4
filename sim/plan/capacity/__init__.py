"""Search for a design's capacity: the highest request rate that it sustains within a latency limit."""
