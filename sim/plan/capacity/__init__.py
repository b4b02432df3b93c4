"""The highest rate of requests that a design carries within a latency limit."""
