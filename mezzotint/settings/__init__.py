"""What settings may be: their ranges, their choices, and the assumptions that they state."""
