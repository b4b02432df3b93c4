"""Adapters of the live model families to the denoise loop."""

from mezzotint.backends.base import BackendError
from mezzotint.backends.diffusers_.families.base import Family
from mezzotint.backends.diffusers_.families.transformer import FLUX, SANA, SD3
from mezzotint.backends.diffusers_.families.unet import SD15, SDXL

FAMILIES = {"sd15": SD15, "sdxl": SDXL, "sd3": SD3, "flux": FLUX, "sana": SANA}


def family_of(name: str) -> Family:
    """Return the family called ``name``. Raises BackendError if there is none."""
    if name not in FAMILIES:
        known = ", ".join(sorted(FAMILIES))
        raise BackendError(f"unknown model family {name!r}; live families are {known}")
    return FAMILIES[name]
