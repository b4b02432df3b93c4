"""One pass of a UNet over images of several sizes."""

from collections.abc import Sequence
from typing import Any

import torch

from backends.diffusers_.addons.residuals import StepInput
from backends.diffusers_.patches.layout import layout
from backends.diffusers_.patches.operators import patched


def predict(pipe: Any, steps: Sequence[StepInput], side: int) -> list[torch.Tensor]:
    """What the UNet makes of the latents of each size, (rows, c, h, w), run as patches of ``side`` latents.

    Args:
        steps: of each size its rows, doubled under classifier-free guidance, as Family.predict takes them.
    """
    cut = layout([(x.shape[0], *x.shape[-2:]) for x in (step.x for step in steps)], side, steps[0].x.device)
    times = torch.cat([step.t.expand(step.x.shape[0]) for step in steps])
    rows = {name: torch.cat([step.inputs[name] for step in steps]) for name in steps[0].inputs}
    # Time, size and pooled text are added pixel by pixel, so each patch has its image's; attention reads them by image.
    added = {name: rows[name][cut.image] for name in ("text_embeds", "time_ids") if name in rows}
    with patched(pipe.unet, cut):
        made = pipe.unet(
            cut.split([step.x for step in steps]),
            times[cut.image],
            encoder_hidden_states=rows["hidden"],
            added_cond_kwargs=added or None,
            return_dict=False,
        )[0]
    return cut.join(made)
