"""Plans: the stages of a request, each of which queues, runs and moves between GPUs on its own."""

from dataclasses import dataclass

WHOLE, TEXT_ENCODER, DENOISER, VAE = "whole", "text-encoder", "denoiser", "vae"
"""Components. WHOLE is all of them in one stage: text encoding is part of its first step, decoding of its last."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of a plan.

    Attributes:
        component: what runs: WHOLE, TEXT_ENCODER, DENOISER, VAE, or another that the backend knows.
        steps: steps, with a boundary after each; 1 for a component that runs once.
        role: role of the GPUs that may run it; None for any.
        max_degree: greatest parallel degree; 0 for any. Text encoders and VAEs do not gain from several GPUs.
    """

    component: str
    steps: int = 1
    role: str | None = None
    max_degree: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """The stages of a request, in the order in which they run."""

    stages: tuple[Stage, ...]


def whole(steps: int) -> Plan:
    """Return the plan of one fused stage of ``steps`` denoising steps."""
    return Plan((Stage(WHOLE, steps),))


def apart(steps: int) -> Plan:
    """Return the plan of three stages: text encoder and VAE on one GPU, the denoiser on any number."""
    return Plan((Stage(TEXT_ENCODER, max_degree=1), Stage(DENOISER, steps), Stage(VAE, max_degree=1)))
