"""Style and files of figures, templates of pages."""
