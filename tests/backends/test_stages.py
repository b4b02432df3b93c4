"""Stage costs of a profile: laws of batches, and the effect of every figure of a profile."""

import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.backends.base import Asset, Backend, BackendError, Cost, Work, standalone_cost, total
from mezzotint.backends.profiled import Profiled

SIDES, BATCHES = (64, 128, 256), (1, 2, 4, 8, 16)


def _grid(unit: float, **more: Any) -> list[dict[str, Any]]:
    """Points whose time rises with the pixels and, more slowly, with the batch."""
    return [
        {"width": side, "height": side, "batch": batch, "seconds": unit * side * side * batch**0.8} | more
        for side, batch in product(SIDES, BATCHES)
    ]


FULL: dict[str, Any] = {
    "model": "m",
    "gpu": "g",
    "source": "made up for a test",
    "step": _grid(1e-6),
    "text_encode": [{"batch": batch, "seconds": 0.01 + 0.002 * batch} for batch in BATCHES],
    "vae_encode": _grid(2e-6),
    "vae_decode": _grid(3e-6),
    "controlnet_step": _grid(4e-7, nets=1) + _grid(1.2e-6, nets=3),
    "controlnet": {"bytes": 700, "load_s": 0.5},
    "lora": {"bytes": 90, "rank": 8} | {f"{n}_s": 0.1 for n in ("read", "attach", "fuse", "unfuse")} | {"patch_s": 0.3},
    "memory": [
        {"operation": operation, "nets": nets, "width": s, "height": s, "batch": b, "bytes": 5000 + extra * s * s * b}
        for operation, nets, extra in (("step", 0, 1), ("controlnet_step", 3, 2), ("vae_decode", 0, 4))
        for s, b in product(SIDES, BATCHES if operation != "vae_decode" else (1, 16))
        if operation != "vae_decode" or s > 64
    ],
    "energy": [{"width": s, "height": s, "batch": b, "joules": 1e-3 * s * s * b} for s, b in product(SIDES, BATCHES)],
    "load_s": 7.0,
    "weights_bytes": 5000,
    "power_w": 300.0,
    "schema": 1,
}
MODEL, NET, LORA = (Asset(kind, kind, "m") for kind in ("model", "controlnet", "lora"))
Profiles = Callable[..., Profiled]


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Profiles:
    """A backend of a complete profile, with the given changes; None removes a key."""

    def made(extrapolate: Any = "error", **changes: Any) -> Profiled:
        folder = tmp_path_factory.mktemp("profiles")
        content = {key: value for key, value in (FULL | changes).items() if value is not None}
        (folder / "g_m.yaml").write_text(yaml.safe_dump(content))
        return Profiled("g", extrapolate=extrapolate, folder=str(folder))

    return made


def works(*sides: int, nets: int = 0, steps: int = 20) -> list[Work]:
    return [Work("m", side, side, steps, controlnets=tuple("abcdef"[:nets])) for side in sides]


@pytest.fixture(scope="module")
def full(profiled: Profiles) -> Profiled:
    return profiled()


SIDE = st.sampled_from((64, 96, 128, 200, 256))


@given(side=SIDE, steps=st.integers(1, 60), data=st.data())
def test_staged_request_costs_the_whole_request(full: Profiled, side: int, steps: int, data: st.DataObject) -> None:
    """For any cut of the steps. N - K steps are one product, so nothing is rounded twice."""
    skipped = data.draw(st.integers(0, steps - 1))
    alone = standalone_cost(full, Work("m", side, side, steps, skipped))
    assert alone.denoise_s == full.seconds("step", "m", side, side) * (steps - skipped)
    work = Work("m", side, side, steps, skipped)
    begun, denoise_s, joules = full.begin([work]), 0.0, 0.0
    while work.done < steps:
        cost = full.steps([work], data.draw(st.integers(1, steps - work.done)))
        denoise_s, joules = denoise_s + cost.seconds, joules + (cost.joules or 0.0)
    ended = full.end([work])
    assert denoise_s == pytest.approx(alone.denoise_s)
    assert begun.seconds + ended.seconds == alone.other_s
    assert alone.energy_j == pytest.approx((begun.joules or 0) + joules + (ended.joules or 0))


@given(sides=st.lists(SIDE, min_size=1, max_size=16), nets=st.integers(0, 3), count=st.integers(1, 50))
def test_step_cost_is_linear_in_the_number_of_steps(full: Profiled, sides: list[int], nets: int, count: int) -> None:
    batch = works(*sides, nets=nets)
    one, many = full.steps(batch), full.steps(batch, count)
    assert many.seconds == pytest.approx(count * one.seconds)
    assert many.joules == pytest.approx(count * (one.joules or 0))
    assert {work.done for work in batch} == {1 + count}


@given(sides=st.lists(st.tuples(SIDE, st.integers(0, 3)), min_size=1, max_size=16), data=st.data())
def test_mixed_batch_costs_the_sum_of_shapes(full: Profiled, sides: list[tuple[int, int]], data: st.DataObject) -> None:
    """In any order of the batch, to the last bit."""
    batch = [work for side, nets in sides for work in works(side, nets=nets)]
    groups = [[work for work in batch if work.shape == shape] for shape in {work.shape for work in batch}]
    together = full.steps(batch)
    separate = [full.steps(group) for group in groups]
    assert together.seconds == pytest.approx(sum(cost.seconds for cost in separate))
    assert together.joules == pytest.approx(sum(cost.joules or 0 for cost in separate))
    assert full.steps(data.draw(st.permutations(batch))) == together
    peaks = [full.peak_bytes(group) or 0 for group in groups if group[0].width > 96]
    if len(peaks) == len(groups):
        assert full.peak_bytes(batch) == max(peaks)


def test_shapes_of_equal_pixels_share_no_batch(full: Profiled) -> None:
    wide, high = Work("m", 256, 64, 20), Work("m", 64, 256, 20)
    assert full.steps([wide, high]).seconds == 2 * full.steps([wide]).seconds > full.steps([wide, wide]).seconds


@given(side=st.integers(64, 255), batch=st.integers(1, 15), nets=st.integers(0, 3))
def test_step_time_grows_with_size_batch_and_controlnets(full: Profiled, side: int, batch: int, nets: int) -> None:
    """Time per image falls with the batch size."""
    here = full.steps(works(*[side] * batch, nets=nets))
    assert full.steps(works(*[side + 1] * batch, nets=nets)).seconds > here.seconds
    larger = full.steps(works(*[side] * (batch + 1), nets=nets))
    assert larger.seconds > here.seconds
    assert larger.seconds / (batch + 1) < here.seconds / batch
    if nets < 3:
        assert full.steps(works(*[side] * batch, nets=nets + 1)).seconds > here.seconds


def _answers(backend: Backend) -> dict[str, Any]:
    """Return one answer of each kind; an error is its text."""

    def answer(ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except BackendError as error:
            return str(error)

    def refined() -> Any:
        return backend.begin([Work("m", 128, 128, 20, skipped=5, refine=True)])

    def ended(*sides: int) -> Any:
        return backend.end([Work("m", side, side, 20, skipped=20) for side in sides])

    asked: dict[str, Callable[[], Any]] = {
        "step": lambda: backend.steps(works(128)),
        "batch": lambda: backend.steps(works(*[128] * 4)),
        "steered": lambda: backend.steps(works(128, nets=1)),
        "begin": lambda: backend.begin(works(128)),
        "begin two": lambda: backend.begin(works(128, 128)),
        "refine": refined,
        "end": lambda: ended(128),
        "end two": lambda: ended(128, 256),
        "peak": lambda: backend.peak_bytes(works(128)),
        **{f"load {asset.kind}": lambda asset=asset: backend.load(asset) for asset in (MODEL, NET, LORA)},  # type: ignore[misc]
        **{f"bytes {asset.kind}": lambda asset=asset: backend.bytes(asset) for asset in (MODEL, NET, LORA)},  # type: ignore[misc]
    }
    return {name: answer(ask) for name, ask in asked.items()}


POWERED = {"begin", "begin two", "refine", "end", "end two", "load model", "load controlnet", "load lora"}


@pytest.mark.parametrize(
    ("key", "changed"),
    [
        ("text_encode", {"begin", "begin two", "refine"}),
        ("vae_encode", {"refine"}),
        ("vae_decode", {"end", "end two"}),
        ("controlnet_step", {"steered"}),
        ("controlnet", {"load controlnet", "bytes controlnet"}),
        ("lora", {"load lora", "bytes lora"}),
        ("memory", {"peak"}),
        ("energy", {"step", "batch", "steered"}),
        ("load_s", {"load model"}),
        ("weights_bytes", {"bytes model"}),
        ("power_w", POWERED),
    ],
)
def test_each_profile_figure_changes_an_answer(profiled: Profiles, full: Profiled, key: str, changed: set[str]) -> None:
    before, after = _answers(full), _answers(profiled(**{key: None}))
    assert {name for name in before if before[name] != after[name]} == changed


def test_batch_size_sets_step_encode_and_decode_time(full: Profiled) -> None:
    assert full.steps(works(*[64] * 8)).seconds == pytest.approx(64 * 64 * 1e-6 * 8**0.8)
    assert full.steps(works(*[64] * 3)).seconds == pytest.approx(64 * 64 * 1e-6 * (2**0.8 + 4**0.8) / 2)
    assert full.begin(works(64, 128, 256, 64)).seconds == pytest.approx(0.018), "prompts have no size"
    ended = [Work("m", 128, 128, 20, skipped=20) for _ in range(4)]
    assert full.end(ended).seconds == pytest.approx(128 * 128 * 3e-6 * 4**0.8)


def test_controlnets_add_the_time_measured_for_their_number(full: Profiled) -> None:
    plain, one, two, three = (full.steps(works(128, nets=nets)).seconds for nets in range(4))
    assert one - plain == pytest.approx(128 * 128 * 4e-7)
    assert three - plain == pytest.approx(128 * 128 * 1.2e-6)
    assert two - plain == pytest.approx(128 * 128 * 8e-7), "halfway between one and three"
    assert "extra time of 2 ControlNets in line of m on g" in {assumption.what for assumption in full.assumptions()}


def test_addon_load_time_is_the_measured_one(full: Profiled) -> None:
    assert full.load(LORA).seconds == pytest.approx(0.4), "read and patched"
    assert full.load(NET).seconds == 0.5
    assert full.load(MODEL).seconds == 7.0
    assert [full.bytes(asset) for asset in (MODEL, NET, LORA)] == [5000, 700, 90]


def test_peak_memory_is_the_maximum_over_steps_and_decoding(full: Profiled, profiled: Profiles) -> None:
    side = 128 * 128
    assert full.peak_bytes(works(128)) == 5000 + 4 * side
    without_decoding = [point for point in FULL["memory"] if point["operation"] != "vae_decode"]
    undecoded = profiled(memory=without_decoding)
    assert undecoded.peak_bytes(works(128)) == 5000 + side
    assert undecoded.peak_bytes(works(128, 128, nets=3)) == 5000 + 2 * 2 * side
    assert undecoded.peak_bytes(works(128, nets=1)) == 5000 + round(side * 4 / 3)
    plain = profiled(memory=[point for point in without_decoding if not point["nets"]])
    assert plain.peak_bytes(works(128, nets=1)) is None


@pytest.mark.parametrize("weights", [5000, None])
def test_memory_outside_the_grid_is_refused_or_scaled_without_weights(profiled: Profiles, weights: int | None) -> None:
    memory = [point for point in FULL["memory"] if point["operation"] == "step"]
    with pytest.raises(BackendError, match=r"m on g: memory of a step at 32x32 .*outside the measured grid"):
        profiled(memory=memory).peak_bytes(works(32))
    scaled = profiled("warn", memory=memory, weights_bytes=weights).peak_bytes(works(32))
    assert scaled == (5000 + 32 * 32 if weights else round((5000 + 64 * 64) / 4))


def test_energy_is_measured_or_power_times_seconds_or_unknown(profiled: Profiles, full: Profiled) -> None:
    batch = works(128, 128)
    measured = full.steps(batch, 3)
    assert measured.joules == pytest.approx(3 * 1e-3 * 128 * 128 * 2)
    drawn = profiled(energy=None).steps(batch, 3)
    assert drawn.joules == pytest.approx(300 * drawn.seconds)
    unknown = profiled(energy=None, power_w=None)
    assert unknown.steps(batch).joules is unknown.begin(batch).joules is unknown.load(MODEL).joules is None
    assert standalone_cost(unknown, works(128)[0]).energy_j is None
    steered = full.steps(works(128, nets=1))
    plain = full.steps(works(128))
    assert (steered.joules or 0) / steered.seconds == pytest.approx((plain.joules or 0) / plain.seconds)
    assert {"energy of m on g"} == {assumption.what for assumption in full.assumptions() if "energy" in assumption.what}
    assert not [assumption for assumption in unknown.assumptions() if "energy" in assumption.what]


ABSENT: list[tuple[dict[str, Any], Callable[[Profiled], Any], str]] = [
    (
        {"controlnet_step": None},
        lambda b: b.steps(works(64, nets=2)),
        r"profile of m on g: controlnet_step: 2 inline ControlNets .* m on g \(measured: none\)",
    ),
    (
        {},
        lambda b: b.steps(works(64, nets=4)),
        r"profile of m on g: controlnet_step: 4 inline ControlNets .*\(measured: 1, 3\)",
    ),
    (
        {},
        lambda b: b.peak_bytes(works(128, nets=4)),
        r"profile of m on g: memory .*: 4 inline ControlNets .*\(measured: 3\)",
    ),
    ({"lora": None}, lambda b: b.load(LORA), r"profile of m on g: lora: .* load lora for m on g"),
    ({"controlnet": None}, lambda b: b.load(NET), r"profile of m on g: controlnet: .* load controlnet for m on g"),
    ({}, lambda b: b.load(Asset("lora", "x", "other")), "no profile of other on g"),
    ({}, lambda b: b.steps(works(*[64] * 17)), r"m on g: step at 64x64 .* batch 17 is outside"),
    ({}, lambda b: b.steps(works(64, 512)), r"m on g: step at 512x512 .* outside"),
    ({}, lambda b: b.end(works(64)), "decoded after 0 of 20 steps"),
]


@pytest.mark.parametrize(("changes", "ask", "message"), ABSENT)
def test_unmeasured_operation_is_refused_by_name(
    profiled: Profiles, changes: dict[str, Any], ask: Callable[[Profiled], Any], message: str
) -> None:
    with pytest.raises(BackendError) as refused:
        ask(profiled(**changes))
    assert re.search(message, str(refused.value))


def test_batch_beyond_the_grid_is_extrapolated_and_stated(profiled: Profiles) -> None:
    backend = profiled("warn")
    assert backend.steps(works(*[64] * 32)).seconds == pytest.approx(2 * backend.steps(works(*[64] * 16)).seconds)
    assumptions = {assumption.what: assumption.value for assumption in backend.assumptions()}
    assert assumptions["batched shapes whose time of m on g is extrapolated"] == 1
    assert "sizes whose step time of m on g is extrapolated" not in assumptions


@pytest.mark.parametrize("images", [17, 32, 48])
@pytest.mark.parametrize("stage", ["begin", "end"])
def test_encoding_and_decoding_beyond_the_measured_batch_scale_with_the_images(
    profiled: Profiles, stage: str, images: int
) -> None:
    """Steps beyond the measured batch stay refused; the summary states the rule."""
    backend = profiled()
    largest, beyond = works(*[128] * 16, steps=0), works(*[128] * images, steps=0)
    expected_s = getattr(backend, stage)(largest).seconds * images / 16
    assert not [assumption for assumption in backend.assumptions() if "largest measured" in assumption.what]
    assert getattr(backend, stage)(beyond).seconds == pytest.approx(expected_s)
    (assumption,) = [assumption for assumption in backend.assumptions() if "largest measured" in assumption.what]
    assert assumption.what.startswith("seconds of text_encode" if stage == "begin" else "seconds of vae_decode")
    assert assumption.value == "in proportion to the images"


def test_point_with_its_own_source_is_stated_as_an_assumption(profiled: Profiles) -> None:
    points = [{"width": 64, "height": 64, "batch": 1, "seconds": 0.5, "source": "a rule"}]
    backend = profiled(step=points)
    assert not [assumption for assumption in backend.assumptions() if assumption.source == "a rule"]
    backend.steps(works(64))
    (assumption,) = [assumption for assumption in backend.assumptions() if assumption.source == "a rule"]
    assert (assumption.what, assumption.value) == ("step time of m on g at 64x64 in batches of 1 [s]", 0.5)


def test_mixed_size_batching_is_stated_as_an_assumption(full: Profiled, profiled: Profiles) -> None:
    backend = profiled()
    backend.steps(works(64, 64))
    assert not [assumption for assumption in backend.assumptions() if "several sizes" in assumption.what]
    backend.steps(works(64, 128))
    assert [assumption for assumption in backend.assumptions() if "several sizes" in assumption.what]


@settings(max_examples=30)
@given(st.lists(SIDE, min_size=1, max_size=16))
def test_repeated_question_has_the_same_answer(full: Profiled, sides: list[int]) -> None:
    assert full.steps(works(*sides)) == full.steps(works(*sides))


def test_profile_round_trips_through_its_file(tmp_path: Path) -> None:
    from mezzotint.backends.profile import Profile, read, write

    profile = Profile.model_validate(FULL)
    write(profile, tmp_path / "g_m.yaml")
    assert read(tmp_path / "g_m.yaml") == profile


@given(st.lists(st.tuples(st.integers(0, 999), st.none() | st.integers(0, 999)), min_size=1), st.integers(1, 99))
def test_costs_add_up_and_unknown_energy_stays_unknown(costs: list[tuple[int, int | None]], n: int) -> None:
    """Values are whole numbers, so that sums and products are exact."""
    made = [Cost(*cost) for cost in costs]
    whole_of = total(made)
    known = [joules for _, joules in costs if joules is not None]
    assert whole_of.seconds == sum(seconds for seconds, _ in costs)
    assert whole_of.joules == (sum(known) if len(known) == len(costs) else None)
    one_by_one = made[0]
    for cost in made[1:]:
        one_by_one = one_by_one.plus(cost)
    assert one_by_one == whole_of
    assert total([whole_of] * n) == whole_of.times(n)
    assert whole_of.times(n).over(n) == whole_of
