"""What add-ons cost by a profile: their loads, and the stages of a LoRA one by one."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from backends.base import Apart, Asset, BackendError, Cost, Work
from backends.lookup import Lookup
from backends.profile import LoraTiming


@dataclass(frozen=True, slots=True)
class ProfiledAddons:
    """See Taken for the stages."""

    lookup: Lookup

    def load(self, asset: Asset) -> Cost:
        """Of a LoRA: read, and merged into the weights."""
        self.lookup.require(asset.model)
        profile = self.lookup.profiles[asset.model]
        if asset.kind == "lora":
            lora = self._lora(asset)
            return self.lookup.cost(asset.model, lora.read_s * _size(asset, lora.bytes) + lora.patch_s)
        if profile.controlnet is None:
            raise self._absent("controlnet", asset, "--controlnets 1")
        return self.lookup.cost(asset.model, profile.controlnet.load_s * _size(asset, profile.controlnet.bytes))

    def read_lora(self, lora: Asset) -> Cost:
        measured = self._lora(lora)
        return self.lookup.cost(lora.model, measured.read_s * _size(lora, measured.bytes))

    def create_lora(self, lora: Asset) -> Cost:
        measured = self._lora(lora)
        return self.lookup.cost(lora.model, (measured.attach_s + measured.fuse_s) * _size(lora, measured.bytes))

    def lora_spread(self, lora: Asset) -> Sequence[float]:
        return self._lora(lora).spread or ()

    def merge_loras(self, loras: Sequence[Asset]) -> Cost:
        """One after another."""
        return self.lookup.in_turn((lora.model, self._merge_s(lora)) for lora in loras)

    def _merge_s(self, lora: Asset) -> float:
        measured = self._lora(lora)
        once_s = measured.patch_s if measured.merge_s is None else measured.merge_s
        return once_s + (measured.copy_s or 0.0) * _size(lora, measured.bytes)

    def restore_weights(self, loras: Sequence[Asset]) -> Cost:
        measured = self._lora(loras[0])
        return self.lookup.cost(loras[0].model, measured.unfuse_s if measured.restore_s is None else measured.restore_s)

    def _lora(self, lora: Asset) -> LoraTiming:
        """What was measured of a LoRA of its model."""
        self.lookup.require(lora.model)
        measured = self.lookup.profiles[lora.model].lora
        if measured is None:
            raise self._absent("lora", lora, "--loras")
        return measured

    def apart(self, work: Work, batch: int, gpus: int) -> Apart:
        """Of a batch, in the proportion of the step's own."""
        self.lookup.require(work.model)
        measured = self.lookup.profiles[work.model].apart
        at = [(p.gpus, p.width, p.height) for p in measured]
        try:
            found = measured[at.index((gpus, work.width, work.height))]
        except ValueError:
            there = "; ".join(f"{g} GPUs at {w}x{h}" for g, w, h in at) or "nothing"
            raise BackendError(
                f"profile of {work.model} on {self.lookup.gpu}: apart: nobody measured a step on {gpus} GPUs at "
                f"{work.width}x{work.height} with ControlNets on others (measured: {there}); serve them in line "
                "(controlnets=in-line), or add the figures to a profile in backend.folder"
            ) from None
        scale = self.lookup.service_factor
        if batch > 1:
            shape = ("step", work.model, work.width, work.height)
            scale *= self.lookup.seconds(*shape, batch) / self.lookup.seconds(*shape)
        return Apart(found.encoder_s * scale, found.controlnet_s * scale, found.receive_s * scale)

    def faster(self, model: str, kernels: Sequence[str]) -> float:
        """Their factors are multiplied."""
        self.lookup.require(model)
        known = self.lookup.profiles[model].kernels
        for name in kernels:
            if name not in known:
                raise BackendError(
                    f"profile of {model} on {self.lookup.gpu}: kernels: nobody measured {name} (measured: "
                    f"{', '.join(known) or 'none'}); leave it out, or add it to a profile in backend.folder"
                )
        return prod(known[name] for name in kernels)

    def _absent(self, key: str, asset: Asset, option: str) -> BackendError:
        gpu = self.lookup.gpu
        return BackendError(
            f"profile of {asset.model} on {gpu}: {key}: nobody measured what it takes to load {asset.name} for "
            f"{asset.model} on {gpu}; serve without add-ons, or measure it (mezzotint calibrate {option})"
        )


def _size(asset: Asset, measured: int) -> float:
    """The bytes of ``asset`` over those of the one that was measured."""
    return 1.0 if asset.size is None else asset.size / measured
