"""Occupancy of GPUs: what claims them, what works there, and which of them are away or held for an answer."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from mezzotint.sim.execution.stages.view import Claims


@dataclass(slots=True)
class Occupancy:
    """The GPUs that run stages. Masks have one bit for each GPU.

    Attributes:
        claimed: launches that hold each GPU; one that is away or held counts as a launch does.
    """

    claimed: Claims
    _working: int = field(init=False, default=0)
    """The GPUs of launches and moves that run."""
    _kept: int = field(init=False, default=0)
    """The GPUs that are held."""
    _masks: dict[tuple[int, ...], int] = field(init=False, default_factory=dict)
    _away: set[int] = field(init=False, default_factory=set)
    """GPUs that are not open (Worker.open): down, loading, ordered to another role, or not rented."""
    _held: Counter[int] = field(init=False, default_factory=Counter)
    """GPU -> how often it is held: for a request until it is answered, for its weights, while it is away."""

    def known_mask(self, gpus: tuple[int, ...]) -> int:
        """Return the mask of ``gpus``; 0 before ``mask`` was asked for it."""
        return self._masks.get(gpus, 0)

    def mask(self, gpus: tuple[int, ...]) -> int:
        """Return the mask of ``gpus``, and keep it."""
        # By both orders: the policy names GPUs in any (test_order_in_which_a_launch_names_its_gpus_is_of_no_account).
        mask = self._masks[gpus] = self._masks[tuple(sorted(gpus))] = sum(1 << gpu for gpu in gpus)
        return mask

    def mask_there(self, gpus: tuple[int, ...]) -> int:
        """Return the mask of those of ``gpus`` that are not away."""
        return sum(1 << gpu for gpu in gpus if gpu not in self._away) if self._away else self._masks[gpus]

    def are_idle(self, mask: int) -> bool:
        """Return True if nothing works on the GPUs of ``mask``, and none is away or held."""
        return not mask & (self._working | self._kept)

    def start(self, mask: int) -> None:
        """Take note that a launch or a move starts on the GPUs of ``mask``."""
        self._working |= mask

    def end(self, gpus: tuple[int, ...]) -> None:
        """Take note that what worked on ``gpus`` ended."""
        self._working &= ~self._masks[gpus]

    def hold(self, gpus: tuple[int, ...]) -> None:
        """Hold ``gpus``, as a launch would."""
        self.claimed.add(gpus, 1)
        for gpu in gpus:
            self._held[gpu] += 1
            self._kept |= 1 << gpu

    def unhold(self, gpus: tuple[int, ...]) -> None:
        """Let ``gpus`` go, which were held."""
        self.claimed.add(gpus, -1)
        for gpu in gpus:
            self._held[gpu] -= 1
            if not self._held[gpu]:
                self._kept &= ~(1 << gpu)

    def leave(self, gpu: int) -> None:
        """Keep ``gpu``, which goes away, from launches."""
        self._away.add(gpu)
        self.hold((gpu,))

    def come_back(self, gpu: int) -> None:
        """Let launches take ``gpu`` again."""
        self._away.remove(gpu)
        self.unhold((gpu,))

    def is_away(self, gpu: int) -> bool:
        """Return True if ``gpu`` is away."""
        return gpu in self._away

    def are_there(self, gpus: Sequence[int]) -> bool:
        """Return True if none of ``gpus`` is away."""
        return self._away.isdisjoint(gpus)

    def those_there(self, gpus: Iterable[int]) -> tuple[int, ...]:
        """Return those of ``gpus`` that are not away, in their order."""
        return tuple(gpu for gpu in gpus if gpu not in self._away)
