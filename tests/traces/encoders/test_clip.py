"""CLIP's text side: tiny models with random weights, built in code, behave as the large one does."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mezzotint.networks.clip import ClipModel
from mezzotint.traces.encoders.clip import Clip
from mezzotint.traces.encoders.embeddings import Encoder, embed
from mezzotint.traces.error import TraceError
from mezzotint.traces.table.trace import Trace
from tests.traces.lab import needs_clip, tiny_clip

TEXTS = ["a red fox", "a lighthouse at dusk, oil on canvas", "x", "", "a queen " * 60]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Treat as read-only."""
    needs_clip()
    return tiny_clip(tmp_path_factory.mktemp("clip"))


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def test_vectors_equal_the_normalized_clip_model_output(folder: Path) -> None:
    import torch
    import transformers

    model = transformers.CLIPModel.from_pretrained(folder).eval()
    tokenizer = transformers.CLIPTokenizer.from_pretrained(folder)
    encoder = Clip(str(folder), batch=2)
    assert isinstance(encoder, Encoder)
    found = encoder.encode(TEXTS, False)
    assert found.dtype == np.float32
    assert found.shape == (5, encoder.dim) == (5, 24)
    assert np.linalg.norm(found, axis=1) == pytest.approx([1, 1, 1, 0, 1], abs=1e-6)
    for at in (0, 1, 2, 4):
        tokens = tokenizer([TEXTS[at]], truncation=True, max_length=77, return_tensors="pt")
        with torch.no_grad():
            own = model.text_projection(model.text_model(**tokens).pooler_output)[0].numpy()
        np.testing.assert_allclose(found[at], own / np.linalg.norm(own), atol=1e-5)


def test_vector_does_not_depend_on_batch_or_order(folder: Path) -> None:
    found = Clip(str(folder)).encode(TEXTS, False)
    np.testing.assert_array_equal(Clip(str(folder)).encode(TEXTS, False), found)
    for batch in (1, 2):
        np.testing.assert_allclose(Clip(str(folder), batch=batch).encode(TEXTS[::-1], False)[::-1], found, atol=1e-5)


def test_prompts_are_cut_at_77_tokens(folder: Path) -> None:
    """In this vocabulary a word of one letter is a token; the first and the last token mark the ends."""
    at_75, at_74 = "a " * 75, "a " * 74
    vectors = Clip(str(folder)).encode([at_75, at_75 + "b " * 40, at_74, at_74 + "b"], False)
    np.testing.assert_allclose(vectors[1], vectors[0], atol=1e-6)
    assert np.abs(vectors[3] - vectors[2]).max() > 1e-3


def test_encoder_name_depends_on_the_weights_and_device_kind_only(folder: Path, copy: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    name = Clip(str(folder)).name
    assert Clip(str(copy), batch=7).name == name
    assert Clip(str(copy), device="cuda:1").name == Clip(str(copy), device="cuda").name != name
    tensors = load_file(copy / "model.safetensors")
    tensors["text_projection.weight"] += torch.ones(1)
    save_file(tensors, copy / "model.safetensors", {"format": "pt"})
    assert Clip(str(copy)).name != name
    (copy / "notes.txt").write_text("no part of the model")
    assert Clip(str(copy)).name == Clip(str(copy)).name


def test_embeddings_are_cached_by_encoder_name(
    folder: Path, copy: Path, trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = np.array(embed(trace, Clip(str(folder))))
    assert first.shape == (3, 24)
    monkeypatch.setattr(ClipModel, "text_vectors", lambda *_: pytest.fail("was encoded again"))
    np.testing.assert_array_equal(embed(trace, Clip(str(copy))), first)


def test_text_encoder_without_a_vision_side_suffices(folder: Path, tmp_path: Path) -> None:
    """As diffusers' pipelines save it."""
    import transformers

    alone = tmp_path / "text_encoder"
    transformers.CLIPTextModelWithProjection.from_pretrained(
        folder, config=transformers.CLIPTextConfig.from_pretrained(folder, projection_dim=24)
    ).save_pretrained(alone)
    transformers.CLIPTokenizer.from_pretrained(folder).save_pretrained(alone)
    expected = Clip(str(folder)).encode(TEXTS, False)
    np.testing.assert_allclose(Clip(str(alone)).encode(TEXTS, False), expected, atol=1e-6)
    with pytest.raises(TraceError, match="'clip_text_model', expected CLIP's vision side"):
        ClipModel(str(alone), TraceError).image_vectors([])


def test_missing_weights_error_says_what_to_do(tmp_path: Path) -> None:
    wanted = r"no such folder and no model of that id was downloaded before .*put config\.json.*allow_hub=true"
    for where in ("openai/clip-vit-large-patch14-nowhere", "not/a/folder", "a b"):
        with pytest.raises(TraceError, match=wanted):
            _ = Clip(where).name
    with pytest.raises(TraceError, match=r"found no config\.json; put"):
        _ = Clip(str(tmp_path)).dim


def _no_tokenizer(copy: Path) -> None:
    (copy / "tokenizer.json").unlink()
    (copy / "vocab.json").unlink(missing_ok=True)


def _cut(copy: Path) -> None:
    path = copy / "model.safetensors"
    path.write_bytes(path.read_bytes()[:20_000])


def _lacking(copy: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(copy / "model.safetensors")
    del tensors["text_projection.weight"]
    save_file(tensors, copy / "model.safetensors", {"format": "pt"})


def _configured(**changed: Any) -> Any:
    def change(copy: Path) -> None:
        path = copy / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))

    return change


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_no_tokenizer, r"found no tokenizer\.json"),
        (_cut, "cannot be read as a CLIP model"),
        (_lacking, "lacks 1 of the text model's tensors"),
        (_configured(model_type="bert"), "model of type 'bert', expected CLIP's text side"),
        (lambda copy: (copy / "model.safetensors").unlink(), r"found no model\*\.safetensors"),
    ],
)
def test_damaged_clip_folder_is_refused(copy: Path, damage: Any, message: str) -> None:
    damage(copy)
    with pytest.raises(TraceError, match=message):
        Clip(str(copy)).encode(["a"], False)


def test_unavailable_device_is_refused(folder: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is such a device")
    with pytest.raises(TraceError, match="device 'cuda' cannot be used"):
        Clip(str(folder), device="cuda").encode(["a"], False)
