"""Real images on the artifact side: given vectors, and vectors that CLIP makes of a folder of images."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mezzotint.networks.clip import ClipModel
from mezzotint.settings.assumption import Assumption
from mezzotint.sim.run.config.build import build
from mezzotint.sim.run.simulate import simulate
from mezzotint.traces.encoders import images
from mezzotint.traces.encoders.clip import Clip
from mezzotint.traces.encoders.images import ClipImages, GivenImages
from mezzotint.traces.error import TraceError
from mezzotint.traces.similarity.made_images import TextToMadeImage
from mezzotint.traces.similarity.real_images import TextToRealImage
from mezzotint.traces.similarity.similarities import SimilaritySource, similarity
from mezzotint.traces.similarity.similarity_map import Identity, PiecewiseLinear
from mezzotint.traces.table.trace import make, write
from tests.sim.lab import configured, simulated
from tests.traces.lab import needs_clip, tiny_clip

Vectors = npt.NDArray[Any]


@pytest.fixture
def text(rng: np.random.Generator) -> npt.NDArray[np.float32]:
    vectors = rng.normal(size=(6, 8))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture
def given(tmp_path: Path) -> Callable[[Any], GivenImages]:
    def save(vectors: Any) -> GivenImages:
        np.save(tmp_path / "images.npy", vectors)
        return GivenImages(str(tmp_path / "images.npy"))

    return save


def _bound(source: images.ImageSource, text: npt.NDArray[np.float32]) -> TextToRealImage:
    bound = TextToRealImage(source)
    bound.bind(text, np.random.default_rng(0), Identity())
    return bound


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_product_of_image_and_text_is_their_cosine(
    given: Callable[[Any], GivenImages], text: npt.NDArray[np.float32], rng: np.random.Generator, kind: Any
) -> None:
    raw = rng.normal(size=(6, 8)).astype(kind)
    bound = _bound(given(raw), text)
    assert isinstance(bound, SimilaritySource)
    exact = raw.astype(np.float64)
    cosines = (text.astype(np.float64) * exact).sum(axis=1) / np.linalg.norm(exact, axis=1)
    found = bound.artifacts(np.arange(6))
    assert found.dtype == bound.queries(0, 6).dtype == np.float32
    np.testing.assert_allclose(similarity(bound.queries(0, 6), found), cosines, atol=2e-6)
    np.testing.assert_array_equal(bound.artifacts(np.array([4, 1])), found[[4, 1]])
    assert bound.similar(0.3) == bound.product(0.3) == 0.3
    assumptions = {each.what: each.value for each in bound.assumptions()}
    assert assumptions["mean cosine of a prompt and its own image"] == pytest.approx(cosines.mean(), abs=1e-4)
    assert "rows without an image, never found" not in assumptions


def test_similarity_key_depends_on_content(given: Callable[[Any], GivenImages], text: npt.NDArray[np.float32]) -> None:
    key = _bound(given(text), text).key
    assert _bound(given(text), text).key == key
    assert _bound(given(text[::-1]), text).key != key


def test_zero_row_is_a_missing_image(given: Callable[[Any], GivenImages], text: npt.NDArray[np.float32]) -> None:
    vectors = text.copy()
    vectors[2] = 0
    bound = _bound(given(vectors), text)
    assert not bound.artifacts(np.array([2])).any()
    assert Assumption("rows without an image, never found", 1, "given in images.npy") in bound.assumptions()
    with pytest.raises(TraceError, match="nothing could be compared"):
        _bound(given(np.zeros((6, 8))), text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: v[:5], "found vectors of 5 images, expected 6, one per row"),
        (lambda v: np.concatenate([v, v]), "found vectors of 12 images, expected 6"),
        (lambda v: v[:, :7], "found image vectors of 7 numbers, expected 8 as the encoder gives"),
        (lambda v: np.where(np.arange(6)[:, None] == 3, np.nan, v), "row 3: found a vector with a number that is not"),
        (lambda v: v.astype(np.complex64), "found complex64"),
        (lambda v: v[0], r"found float32 \(8,\)"),
        (lambda v: np.array([{}]), "cannot be read"),
    ],
)
def test_image_vectors_of_the_wrong_form_are_refused_at_bind(
    given: Callable[[Any], GivenImages], text: npt.NDArray[np.float32], change: Callable[[Vectors], Any], message: str
) -> None:
    with pytest.raises(TraceError, match=message):
        _bound(given(change(text)), text)


def test_real_images_refuse_similarity_maps(given: Callable[[Any], GivenImages], text: npt.NDArray[np.float32]) -> None:
    with pytest.raises(TraceError, match=r"found PiecewiseLinear, expected the identity.*similarity_map=identity"):
        TextToRealImage(given(text)).bind(
            text, np.random.default_rng(0), PiecewiseLinear({0.0: 0.0, 1.0: 1.0}, "made up")
        )


@pytest.mark.parametrize(("cosine", "hit_rate"), [(0.26, 1 / 3), (0.24, 0.0)])
def test_run_hits_follow_the_given_images(tmp_path: Path, cosine: float, hit_rate: float) -> None:
    """MoDM's threshold is 0.25: the third prompt is or is not served from the image of the first."""
    columns = {"request_id": list("abc"), "arrival_s": [0.0, 900, 1800], "prompt": ["a", "b", "c"]}
    write(make(columns, name="three", source="a test"), tmp_path / "t.parquet")
    pq.write_table(pa.table({"prompt": ["a", "b", "c"], "vector": list(np.eye(3))}), tmp_path / "v.parquet")
    first = [(1 - cosine**2) ** 0.5, 0, cosine]
    np.save(tmp_path / "i.npy", np.stack([first, *np.eye(3)[1:]]))
    outcome = simulated(
        "system=modm-throughput", "similarity=text-to-given-images", "arrivals=trace", "trace=file",
        f"trace.path={tmp_path / 't.parquet'}", f"similarity.images.path={tmp_path / 'i.npy'}",
        "encoder=precomputed", f"encoder.path={tmp_path / 'v.parquet'}",
    )  # fmt: skip
    assert outcome.summary["cache"]["hit_rate"] == pytest.approx(hit_rate)
    assumptions = [one["what"] for one in outcome.summary["assumptions"]]
    assert "mean cosine of a prompt and its own image" in assumptions


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Treat as read-only."""
    needs_clip()
    return tiny_clip(tmp_path_factory.mktemp("clip"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> Path:
    """Three images, and files that belong to no row."""
    from PIL import Image

    monkeypatch.setenv("MEZZOTINT_CACHE", str(tmp_path / "cache"))
    made = tmp_path / "images"
    made.mkdir()
    for name in ("0.png", "01.jpg", "2.webp"):
        Image.fromarray(rng.integers(0, 256, (20, 30, 3), np.uint8)).save(made / name)
    (made / "notes.txt").write_text("")
    (made / "cover.png").write_text("")
    return made


def test_image_vectors_equal_the_clip_model_output(weights: Path, folder: Path) -> None:
    import torch
    import transformers
    from PIL import Image

    model = transformers.CLIPModel.from_pretrained(weights).eval()
    opened = ClipImages(str(folder), str(weights), batch=2).open(3, 24)
    prepare = transformers.CLIPImageProcessorPil(
        size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}, resample=3
    )
    for row, name in enumerate(("0.png", "01.jpg", "2.webp")):
        pixels = prepare([Image.open(folder / name).convert("RGB")], return_tensors="pt")["pixel_values"]
        with torch.no_grad():
            own = model.visual_projection(model.vision_model(pixels).pooler_output)[0].numpy()
        np.testing.assert_allclose(opened.rows[row], own / np.linalg.norm(own), atol=1e-5)


def test_images_are_encoded_once(weights: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def counting(model: ClipModel, paths: list[Path], batch: int) -> Any:
        asked.append(len(paths))
        return original(model, paths, batch)

    original = images.image_vectors
    monkeypatch.setattr(images, "image_vectors", counting)
    source = ClipImages(str(folder), str(weights))
    text = Clip(str(weights)).encode(["a fox", "a queen", "x"], False)
    first = _bound(source, text)
    again = _bound(source, text)
    assert asked == [3]
    assert first.key == again.key
    np.testing.assert_array_equal(first.artifacts(np.arange(3)), again.artifacts(np.arange(3)))
    os.utime(folder / "0.png", (1, 1))  # it may be another image by then
    _bound(source, text)
    assert asked == [3, 3]


def test_image_folder_that_does_not_match_the_trace_is_refused(weights: Path, folder: Path, tmp_path: Path) -> None:
    source = ClipImages(str(folder), str(weights))
    with pytest.raises(TraceError, match=r"found image vectors of 24 numbers, expected 512"):
        source.open(3, 512)
    with pytest.raises(TraceError, match=r"2 of the trace's 5 rows have no image, the first is row 3, expected 3\.png"):
        source.open(5, 24)
    with pytest.raises(TraceError, match="no such folder"):
        ClipImages(str(tmp_path / "none"), str(weights)).open(3, 24)
    (folder / "02.png").write_bytes((folder / "0.png").read_bytes())
    with pytest.raises(TraceError, match=r"row 2 has two images, 02\.png and 2\.webp"):
        source.open(3, 24)
    (folder / "02.png").unlink()
    (folder / "2.webp").write_bytes(b"no image")
    with pytest.raises(TraceError, match=r"2\.webp: cannot be read as an image"):
        source.open(3, 24)


def test_image_side_uses_the_encoder_weights(weights: Path) -> None:
    overrides = ["system=modm-throughput", "similarity=text-to-clip-images"]
    named = ["similarity.images.folder=f"]
    node = configured(*overrides, *named, "encoder=clip", f"encoder.weights={weights}")["similarity"]
    assert build(node, "similarity", SimilaritySource) == TextToRealImage(ClipImages("f", str(weights)))
    other = configured(*overrides, *named)["similarity"]
    with pytest.raises(TraceError, match="choose encoder=clip"):
        build(other, "similarity", SimilaritySource)


def test_images_of_a_run_are_compared_once_they_are_made_as_a_folder_of_all_is(
    weights: Path, folder: Path, tmp_path: Path
) -> None:
    """The same plans as with the images given beforehand. The last request's image, which no request could start from,
    is not there."""
    from PIL import Image

    Image.open(folder / "01.jpg").save(folder / "1.png")
    (folder / "01.jpg").unlink()
    columns = {"request_id": list("abc"), "arrival_s": [0.0, 900, 1800], "prompt": ["a fox", "a queen", "a fox"]}
    write(make(columns, name="three", source="a test"), tmp_path / "t.parquet")
    words = (
        *("system=modm-throughput", "arrivals=trace", "trace=file", f"trace.path={tmp_path / 't.parquet'}"),
        *("encoder=clip", f"encoder.weights={weights}"),
    )
    made = ("similarity=text-to-made-images", "search=scan", f"similarity.folder={folder}")
    outcomes = []
    for chosen in (made, ("similarity=text-to-clip-images", f"similarity.images.folder={folder}")):
        config = configured(*words, *chosen)
        config["selector"]["thresholds"] = {5: -1.0}  # random weights reach no real threshold
        outcomes.append(simulate(config))
    of_run, given = (outcome.requests for outcome in outcomes)
    assert of_run["source_id"] == given["source_id"]
    assert of_run["similarity"].to_pylist()[1:] == pytest.approx(given["similarity"].to_pylist()[1:], abs=1e-5)
    said = {row["what"]: row["source"] for row in outcomes[0].summary["assumptions"]}
    assert said["text-to-image similarity"].startswith("measured on the images that the run makes")


def test_image_that_was_not_made_is_refused(weights: Path, tmp_path: Path, text: npt.NDArray[np.float32]) -> None:
    source = TextToMadeImage(tmp_path, str(weights))
    source.bind(np.zeros((3, 24), np.float32), np.random.default_rng(0), Identity())
    with pytest.raises(TraceError, match=r"1\.png: not made yet.*search=scan"):
        source.artifacts(np.array([1]))
    with pytest.raises(TraceError, match="expected 8 as the encoder gives"):
        source.bind(text, np.random.default_rng(0), Identity())
    with pytest.raises(TraceError, match=r"give backend\.images"):
        TextToMadeImage(None, str(weights))


def test_run_with_clip_on_both_sides_reports_the_best_cosine(weights: Path, folder: Path, tmp_path: Path) -> None:
    """Every request gets the largest cosine of its prompt with an image of an earlier row."""
    prompts = ["a fox", "a queen", "a fox"]
    columns = {"request_id": list("abc"), "arrival_s": [0.0, 900, 1800], "prompt": prompts}
    write(make(columns, name="three", source="a test"), tmp_path / "t.parquet")
    config = configured(
        "system=modm-throughput", "similarity=text-to-clip-images", "arrivals=trace", "trace=file",
        f"trace.path={tmp_path / 't.parquet'}", f"similarity.images.folder={folder}",
        "encoder=clip", f"encoder.weights={weights}",
    )  # fmt: skip
    config["selector"]["thresholds"] = {5: -1.0}  # random weights reach no real threshold
    outcome = simulate(config)
    text = Clip(str(weights)).encode(prompts, False)
    cosines = text @ ClipImages(str(folder), str(weights)).open(3, 24).rows.T
    expected = [cosines[1, 0], cosines[2, :2].max()]
    assert outcome.requests["similarity"].to_pylist()[1:] == pytest.approx(expected, abs=1e-5)
    assert outcome.requests["source_id"].to_pylist()[2] == "ab"[int(cosines[2, :2].argmax())]
