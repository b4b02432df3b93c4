"""Files and folders as they are read, written and named, whoever asks."""
