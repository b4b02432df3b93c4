"""The device at hand: its memory and a stopwatch."""
