"""Images of different sizes through one pass of a UNet, cut into patches of one size (PatchedServe, section 4)."""
