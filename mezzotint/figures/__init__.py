"""How pages and figures look."""
