"""Resuming a calibration: no cell is measured twice, wherever the run was cut."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("diffusers")

from mezzotint.backends.base import BackendError  # noqa: E402
from mezzotint.backends.calibrate import Cell, grid  # noqa: E402
from mezzotint.backends.calibrate.session import Interrupted, complete, unmeasured  # noqa: E402
from mezzotint.backends.profile import read  # noqa: E402

from .conftest import files  # noqa: E402

ADD_ONS = {"lora_rank": 4, "controlnets": (0, 1, 3)}


@pytest.fixture(autouse=True)
def _undrawn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the figures, which take longer than all else here, except in the test that compares files."""
    if "same_bytes" not in request.node.name:
        monkeypatch.setattr("mezzotint.backends.calibrate.page.draw", lambda profile, references, path: path.touch())


@pytest.mark.parametrize("cut", [0, 7, 21])
def test_calibration_resumed_after_any_cell_completes_the_grid(plan: Any, stub: Any, tmp_path: Path, cut: int) -> None:
    wanted = plan(**ADD_ONS)
    cells = wanted.cells(True)
    whole = complete(wanted, tmp_path / "whole", measure=stub()).profile
    first, second = stub(stop_after=cut), stub()
    with pytest.raises(Interrupted, match=rf"interrupted; {cut} of {len(cells)} cells are kept in .*journal"):
        complete(wanted, tmp_path / "cut", measure=first)
    assert not list((tmp_path / "cut").glob("*.yaml")), "a profile is written when all is there"
    resumed = complete(wanted, tmp_path / "cut", measure=second).profile
    assert first.calls + second.calls == Counter(cells)
    assert resumed.model_copy(update={"date": whole.date}) == whole


def test_finished_calibration_measures_nothing_and_writes_the_same_bytes(plan: Any, stub: Any, tmp_path: Path) -> None:
    complete(plan(**ADD_ONS), tmp_path, measure=stub())
    before, again = files(tmp_path), stub()
    complete(plan(**ADD_ONS), tmp_path, measure=again)
    assert not again.calls
    assert files(tmp_path) == before


def test_profile_holds_the_mean_of_its_samples_which_a_run_pays(plan: Any, stub: Any, tmp_path: Path) -> None:
    """The stub's third sample is a stall of the host; the median of the three would be 1.1 times the first."""
    profile = complete(plan(), tmp_path, measure=stub()).profile
    for point in profile.step:
        once = 0.01 + 1e-6 * point.width * point.height * point.batch
        assert (point.seconds, point.spread_s) == pytest.approx((1.2 * once, 0.25 * once), rel=1e-5)


def test_grid_can_grow(plan: Any, stub: Any, tmp_path: Path) -> None:
    small, large = plan(shapes=grid([(64, 64)], [1])), plan(shapes=grid([(64, 64), (128, 64)], [1, 2]))
    complete(small, tmp_path, measure=stub())
    rest = stub()
    assert len(complete(large, tmp_path, measure=rest).profile.step) == 4
    assert set(rest.calls) == set(large.cells(True)) - set(small.cells(True))
    assert len(complete(small, tmp_path, measure=stub()).profile.step) == 4, "what is known stays in the profile"


def test_fresh_measures_everything_again(plan: Any, stub: Any, tmp_path: Path) -> None:
    complete(plan(), tmp_path, measure=stub())
    again = stub()
    complete(plan(), tmp_path, measure=again, fresh=True)
    assert again.calls == Counter(plan().cells(True))


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.999])
def test_truncated_journal_loses_only_its_last_cell(
    plan: Any, stub: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], share: float
) -> None:
    before = complete(plan(), tmp_path, measure=stub()).profile
    journal = tmp_path / "cpu_sdxl-tiny.journal.jsonl"
    content = journal.read_bytes()
    left = content[: int(share * len(content))]
    journal.write_bytes(left)
    again = stub()
    after = complete(plan(), tmp_path, measure=again).profile
    assert again.calls.total() == len(plan().cells(True)) - left.count(b"\n")
    assert after.model_copy(update={"date": before.date}) == before
    error = capsys.readouterr().err
    assert ("half written" in error) == (not left.endswith(b"\n") and bool(left))
    assert all(json.loads(line) for line in journal.read_text().splitlines())


def test_malformed_journal_line_is_named(plan: Any, stub: Any, tmp_path: Path) -> None:
    complete(plan(), tmp_path, measure=stub())
    journal = tmp_path / "cpu_sdxl-tiny.journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([lines[0], b"{}\n", *lines[2:]]))
    with pytest.raises(BackendError, match=r"journal\.jsonl: line 2: conditions: .*--fresh"):
        complete(plan(), tmp_path, measure=stub())


def _large(cell: Cell) -> BaseException | None:
    """Run out of memory as an 80 GB card does: the step of a large size does not fit from batch 2 on."""
    if cell.operation in ("step", "controlnet_step") and cell.width == 192 and cell.batch >= 2:
        return torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
    return None


def test_cell_that_does_not_fit_is_recorded_and_the_rest_is_measured(plan: Any, stub: Any, tmp_path: Path) -> None:
    wanted = plan(shapes=grid([(64, 64), (192, 192)], [1, 2, 4]), controlnets=(1,))
    first = stub(broken=_large)
    done = complete(wanted, tmp_path, measure=first)
    misfits = [entry for entry in done.entries if entry.outcome == "did not fit"]
    assert [(str(entry.cell), entry.measured) for entry in misfits] == [("step 192x192 batch 2", None)]
    assert {cell for cell in wanted.cells(True) if _large(cell) is None} == set(first.calls)
    assert [(p.width, p.batch) for p in done.profile.step] == [(64, 1), (64, 2), (64, 4), (192, 1)]
    assert len(done.profile.vae_decode) == 6
    page = (tmp_path / "cpu_sdxl-tiny.md").read_text()
    assert "- step 192x192 batch 2: did not fit (CUDA out of memory. Tried to allocate 20.00 GiB)" in page
    assert "- step 192x192 batch 4: not tried, a smaller one gave nothing" in page
    second = stub()
    complete(wanted, tmp_path, measure=second)
    assert not second.calls, "it would not fit the next time either"


def test_refused_kernel_is_retried_by_the_next_run(plan: Any, stub: Any, tmp_path: Path) -> None:
    def refused(cell: Cell) -> BaseException | None:
        return RuntimeError("too many\nelements") if cell.operation == "vae_decode" and cell.batch == 4 else None

    done = complete(plan(), tmp_path, measure=stub(broken=refused))
    assert unmeasured(done.entries) == [
        f"vae decode {size}x{size} batch 4: failed (too many elements)" for size in (64, 192)
    ]
    again = stub()
    assert len(complete(plan(), tmp_path, measure=again).profile.vae_decode) == 4
    assert set(again.calls) == {c for c in plan().cells(True) if c.operation == "vae_decode" and c.batch == 4}


def test_device_failure_ends_the_run_and_keeps_finished_cells(plan: Any, stub: Any, tmp_path: Path) -> None:
    def lost(cell: Cell) -> BaseException | None:
        return torch.AcceleratorError("CUDA error: unspecified launch failure") if cell.width == 192 else None

    first, second = stub(broken=lost), stub()
    with pytest.raises(BackendError, match=r"step 192x192 batch 1: the device failed .*launch failure"):
        complete(plan(), tmp_path, measure=first)
    complete(plan(), tmp_path, measure=second)
    assert first.calls + second.calls == Counter(plan().cells(True))


def test_calibration_without_any_step_is_refused(plan: Any, stub: Any, tmp_path: Path) -> None:
    def nothing(cell: Cell) -> BaseException | None:
        return torch.cuda.OutOfMemoryError("out of memory") if cell.operation == "step" else None

    with pytest.raises(BackendError, match=r"no denoising step of sdxl-tiny could be measured \(out of memory\)"):
        complete(plan(), tmp_path, measure=stub(broken=nothing))


def test_truncated_profile_is_refused(plan: Any, stub: Any, tmp_path: Path) -> None:
    """A cut at the end of a line leaves valid YAML and is refused too."""
    complete(plan(), tmp_path, measure=stub())
    content = (tmp_path / "cpu_sdxl-tiny.yaml").read_bytes().rstrip()
    cut = tmp_path / "cut.yaml"
    ends = [index for index in range(len(content)) if content[index : index + 1] == b"\n"]
    for end in [*ends, *range(1, len(content), 41), len(content) - 1]:
        cut.write_bytes(content[:end])
        with pytest.raises(BackendError, match=r"cut\.yaml: .*re-measure it"):
            read(cut)


def test_another_spec_is_measured_anew(
    plan: Any, tmp_path: Path, stub: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another dtype, or more repeats, is another measurement."""
    complete(plan(), tmp_path, measure=stub())
    for other in (plan(dtype="bfloat16"), plan(repeats=3), plan(warmup=0)):
        again = stub()
        complete(other, tmp_path, measure=again)
        assert set(again.calls) == set(other.cells(True))
    assert "other conditions" not in capsys.readouterr().err
    complete(plan(repeats=4, shapes=grid([(64, 64)], [1, 4])), tmp_path, measure=stub())
    assert "6 cells (step 192x192 batch 1, ...) were measured under other conditions" in capsys.readouterr().err
