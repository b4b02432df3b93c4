"""What a denoiser reuses of its own earlier steps: blocks of it, for patches or whole images, or the whole step."""
