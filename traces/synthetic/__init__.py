"""Models of synthetic traffic, part by part: sessions, users, prompt ancestry, prompt text, settings, add-ons."""
