"""`mezzotint reproduce video`: logged runs of videos on NPUs, replayed."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from mezzotint.sim.cli import main
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.papers.video.logs import MEASURES, policy_of, read_folder, statistics_of
from mezzotint.sim.papers.video.study import INPUTS, measure, replay_run, videos_of, workload
from tests.conftest import ORACLES

LOGS = ORACLES / "wan22_npu"

SHAPES = {"short": (854, 480, 80, 3), "medium": (854, 480, 120, 4), "long": (1280, 720, 80, 6)}
PROFILE = {"short": 100.0, "medium": 200.0, "long": 600.0}
BELIEVED = {"short": 38.0, "medium": 71.0, "long": 120.0}


def write(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*rows[0]])
        writer.writeheader()
        writer.writerows(rows)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a profile of degree 1 and one published row of each policy."""
    rows = []
    for degree, name, seconds in ((1, "8x1", PROFILE), ("", "estimator", BELIEVED)):
        for size, (width, height, frames, steps) in SHAPES.items():
            shape = {"size": size, "width": width, "height": height, "frames": frames, "steps": steps}
            known = {"text_encoder_s": 0.12, "vae_decode_s": 12.0, "note": "compute"}
            rows.append({"topology": name, "usp_degree": degree, **shape, "e2e_mean_s": seconds[size], **known})
    write(tmp_path / "profiles.csv", rows)
    run = {"topology": "8xUSP1", "num_requests": 40, "rate_rps": 0.05, "p95_s": 1000.0}
    policies = ("super_p95", "central pull max risk", "beta=0.85 + tail pack + protected drain", "by lot")
    write(tmp_path / "measured.csv", [run | {"policy": policy} for policy in policies])
    return tmp_path


@pytest.mark.parametrize(
    ("words", "system", "beta", "tails"),
    [
        ("super_p95 (normal preempts tail)", "super-p95", None, None),
        ("superp95", "super-p95", None, None),
        ("costdamped", "central-pull", 0.5, "spread"),
        ("cost_damped_risk", "central-pull", 0.5, "spread"),
        ("central pull max risk (wait+estimate; estimator values)", "central-pull", 1.0, "spread"),
        ("beta=0.95 + tail pack", "central-pull", 0.95, "pack"),
        ("beta085_sink", "central-pull", 0.85, "sink"),
        ("beta0p5_spread", "central-pull", 0.5, "spread"),
        ("tailgate", "tail-gate", 0.85, "pack"),
        ("beta=0.85 + tail pack + protected drain", "tail-gate", 0.85, "pack"),
        ("cost-damped risk beta=0.85, queue band", "central-pull", 0.85, "spread"),
    ],
)
def test_policy_is_known_by_its_words(words: str, system: str, beta: float | None, tails: str | None) -> None:
    settings = dict(word.split("=", 1) for word in policy_of(words).overrides)
    assert settings["system"] == system
    assert settings.get("group_policy.beta") == (None if beta is None else repr(beta))
    assert settings.get("group_policy.tails") == tails


@pytest.mark.parametrize(
    "words",
    [
        *("by lot", "eager drain", "drain", "tail pack", "central pull, drained last", "super_p95 beta=0.5", ""),
        *("beta=0.5 + tail pack + tail spread", "max risk beta=0.5", "queue mix risk", "beta=0.85 backlog leveling"),
    ],
)
def test_policy_with_a_word_that_is_not_known_is_none_of_ours(words: str) -> None:
    with pytest.raises(ValueError, match="expected a policy that is known here"):
        policy_of(words)


def test_what_cannot_be_replayed_is_skipped_by_name_and_counted(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = {"topology": "8xUSP1", "num_requests": 40, "rate_rps": 0.05, "policy": "super_p95"}
    wrong = ({"num_requests": "many"}, {"topology": "8 NPUs"}, {"topology": "4xUSP3"})
    write(folder / "more.csv", [run | each for each in wrong])
    request = {"size": "long", "queue": "tail", "backend": 0, "arrival_s_from_seed": 0, "central_wait_s": 0}
    request |= {"request": "r", "preemptions": 0, "e2e_s": 9}
    for policy in ("tailgate", "bylot"):
        write(folder / f"8xusp1_n{1 + (policy == 'tailgate')}_r0.05_{policy}.csv", [request])
    (folder / "notes.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    assert main(["reproduce", "video", str(folder), "-o", str(folder / "out")]) == 0
    assert "3 runs replayed, 7 skipped" in capsys.readouterr().out
    facts = json.loads((folder / "out" / "video.json").read_text(encoding="utf-8"))
    expected = (
        "8xusp1_n1_r0.05_bylot.csv: its name, column policy: ",
        "8xusp1_n2_r0.05_tailgate.csv: found 1 requests, expected 2",
        *("measured.csv: row 4, column policy: ", "more.csv: row 1, column num_requests: ", "more.csv: row 2, column "),
        *("notes.csv: ", "4xUSP3, 40 at 0.05/s, super_p95: "),
    )
    assert all(line.startswith(words) for line, words in zip(facts["skipped"], expected, strict=True))
    assert [run["policy"].split(",")[0] for run in facts["runs"]] == ["super_p95", "central pull", "central pull"]
    assert len(facts["changes"]) == 2


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("measured.csv", "8xUSP1,40,0.05,by lot", r"found no run that can be replayed .*skipped measured.csv: row 1"),
        ("measured.csv", "4xUSP3,40,0.05,super_p95", r"none of its runs can be replayed; the last is 4xUSP3"),
        ("profiles.csv", "8x1,1,short", r"row 1, column width: field required"),
        ("profiles.csv", "8x1,1,huge", r"row 1, column size: .*found 'huge'"),
        ("profiles.csv", None, r"found no profile"),
    ],
)
def test_folder_that_cannot_be_replayed_is_refused(folder: Path, file: str, text: str | None, message: str) -> None:
    (folder / file).unlink()
    head = "topology,usp_degree,size" if file == "profiles.csv" else "topology,num_requests,rate_rps,policy"
    if text is not None:
        (folder / file).write_text(f"{head}\n{text}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        measure(folder)


def test_percentiles_are_of_type_7() -> None:
    found = statistics_of(np.array([4.0, 1.0, 3.0, 2.0]), 9.0)
    assert found == pytest.approx({"mean": 2.5, "p50": 2.5, "p95": 3.85, "p99": 3.97, "duration": 9.0})


def test_longer_workload_of_a_rate_begins_with_the_same_arrivals() -> None:
    sizes, arrivals = workload(100, 0.03)
    assert arrivals[0] == 0.0
    assert arrivals[:50] == workload(50, 0.03)[1]
    assert np.array(arrivals[:50]) * 0.03 == pytest.approx(np.array(workload(50, 0.05)[1]) * 0.05)
    assert 0.4 < sizes.count("long") / 100 < 0.7


def test_run_replays_from_its_own_log_without_error(folder: Path) -> None:
    """The log of a simulated run, replayed by its name and columns alone, gives that run again."""
    content = read_folder(folder)
    gate = next(run for run in content.runs if "gate" in run.policy.name)
    videos = videos_of(content, gate)
    ours, (sizes, _) = replay_run(videos, gate), workload(gate.num_requests, gate.rate_rps)
    assert ours["tail"].sum() == 2
    rows = []
    for number, size in enumerate(sizes):
        served_s, latency_s = PROFILE[size], ours["latency_s"][number]
        wait_s = max(0.0, latency_s - served_s - INPUTS.polling_s)
        kept = {"dispatcher_wait_s": wait_s, "scheduler_wait_s": 0, "compute_s": served_s, "preemptions": 0}
        queue = "tail" if ours["tail"][number] else "normal"
        asked = {"request": f"request-{number:05d}", "size": size, "queue": queue, "backend": 0}
        rows.append(asked | {"arrival_s_from_seed": ours["arrival_s"][number], "e2e_s": latency_s} | kept)
    write(folder / "8xusp1_n40_r0.05_tailgate.csv", rows)
    run = next(run for run in measure(folder)["runs"] if "each" in run)
    assert run["same_tails"]
    assert run["rules_alone"]["same_starts"] == run["rules_alone"]["normals"] == 38
    for error in (run["error"], run["rules_alone"]["error"]):
        assert [error[name] for name in MEASURES] == pytest.approx([0.0] * 5, abs=1e-9)
    file_s = INPUTS.file_s_per_pixel * 1280 * 720 * 80
    assert videos["long"].answer_s == pytest.approx(INPUTS.polling_s + file_s)


@pytest.fixture(scope="module")
def results() -> Mapping:
    """The results of the real folder."""
    return measure(LOGS)


@pytest.fixture(scope="module")
def real(results: Mapping) -> Mapping[tuple[object, ...], Mapping[str, Mapping[str, float]]]:
    """Its runs by machine, requests and policy; a log in place of its published row."""
    return {(run["groups"], run["degree"], run["requests"], run["policy"]): run for run in reversed(results["runs"])}


GATE = "central pull, beta 0.85, tails pack, gate"
DAMPED = "central pull, beta 0.5, tails spread"
MAX_RISK = "central pull, beta 1, tails spread"


@pytest.mark.oracle
def test_logged_sizes_arrivals_and_tails_follow_from_the_seed() -> None:
    for run in read_folder(LOGS).runs:
        if run.log:
            sizes, arrivals = workload(run.num_requests, run.rate_rps)
            assert [row.size for row in run.log] == sizes
            assert [row.arrival_s for row in run.log] == pytest.approx(arrivals, abs=6e-4)


@pytest.mark.oracle
def test_tail_gate_is_replayed_exactly_on_its_own_seconds(real: Mapping) -> None:
    run = real[8, 1, 100, GATE]
    assert run["same_tails"]
    assert run["rules_alone"]["same_starts"] == run["rules_alone"]["normals"] == 95
    assert max(map(abs, run["rules_alone"]["error"].values())) < 5e-4
    assert max(abs(each["rules_alone_s"] / each["measured_s"] - 1) for each in run["each"]) < 0.03


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("run", "limits"),
    [
        ((8, 1, 100, GATE), {"mean": 0.005, "p50": 0.012, "p95": 0.007, "p99": 0.03, "duration": 0.01}),
        ((4, 2, 50, DAMPED), dict.fromkeys(MEASURES, 0.015)),
        ((4, 2, 50, MAX_RISK), dict.fromkeys(MEASURES, 0.015)),
        ((2, 4, 50, "super_p95"), dict.fromkeys(MEASURES, 0.02)),
        ((8, 1, 50, "super_p95"), dict.fromkeys(MEASURES, 0.015)),
        ((8, 1, 50, GATE), {"p95": 0.005}),
        ((8, 1, 50, "central pull, beta 0.95, tails pack"), {"p95": 0.005}),
    ],
)
def test_profile_predicts_a_run_within_its_stated_error(real: Mapping, run: tuple, limits: dict[str, float]) -> None:
    for name, limit in limits.items():
        assert abs(real[run]["error"][name]) <= limit, name


@pytest.mark.oracle
def test_preemptions_are_those_of_the_log(real: Mapping) -> None:
    """To one of 24, which the log of 8 x 1 without a gate counts and does not show."""
    for run in real.values():
        if run["preemptions"]["measured"] is not None:
            assert abs(run["preemptions"]["ours"] - run["preemptions"]["measured"]) <= (run["degree"] == 1)


@pytest.mark.oracle
def test_shares_of_the_steps_are_those_of_two_tails_in_the_log() -> None:
    """A tail takes a step from the end of one normal request on the NPUs to the begin of the next, which it delays."""
    run = next(run for run in read_folder(LOGS).runs if run.log and run.degree == 2)
    videos = videos_of(read_folder(LOGS), run)
    seconds: list[list[float]] = []
    for group in {row.backend for row in run.log if row.queue == "tail"}:
        normal = [row for row in run.log if row.backend == group and row.queue == "normal"]
        ends_s, steps_s = 0.0, []
        for row in sorted(normal, key=lambda row: row.arrival_s + row.wait_s):
            assert row.served_s is not None
            assert row.gpu_s is not None
            waited_s = row.served_s - row.gpu_s - (videos[row.size].answer_s - INPUTS.polling_s)
            from_s = row.arrival_s + row.wait_s + waited_s
            if waited_s > 10.0:
                steps_s.append(from_s - ends_s)
            ends_s = from_s + row.gpu_s
        steps_s[0] -= videos["long"].text_s
        steps_s[-1] -= videos["long"].vae_s
        seconds.append(steps_s)
    assert np.mean(seconds, axis=0) == pytest.approx(INPUTS.step_shares["long"], abs=0.06)
    assert np.ptp(seconds, axis=0).max() < 0.6, "both tails agree"


@pytest.mark.oracle
def test_with_its_own_steps_no_request_of_the_log_is_off_by_a_boundary(real: Mapping) -> None:
    run = real[4, 2, 50, DAMPED]
    assert run["equal_steps"]["furthest_s"] > 40.0
    assert run["rules_alone"]["furthest_s"] < 4.0


@pytest.mark.oracle
def test_max_risk_on_the_schedulers_own_estimates_gains_little_or_loses_much(results: Mapping) -> None:
    changes = {(change["name"], change["policy"]): change for change in results["changes"]}
    few = changes["4xUSP2, 50 at 0.05/s", MAX_RISK]
    many = changes["4xUSP2, 100 at 0.03/s", MAX_RISK]
    assert few["measured"] == pytest.approx(-0.0007, abs=1e-4)
    assert -0.01 < few["ours"] < 0
    assert many["measured"] == pytest.approx(0.1195, abs=1e-4)
    assert many["ours"] > 0.05
