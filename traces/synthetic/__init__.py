"""Made-up traffic, part by part: when sessions begin, who is in them, what a prompt comes from, what it says."""
