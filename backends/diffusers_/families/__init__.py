"""One small adapter per model family: what differs between them around the shared denoise loop."""
