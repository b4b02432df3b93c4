"""Commands killed at random moments, and what they leave behind."""
