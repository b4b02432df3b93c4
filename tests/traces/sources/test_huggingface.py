"""A data set of Hugging Face: a folder is read as any table, offline."""

from pathlib import Path

import numpy as np
import pytest

from mezzotint.traces.error import TraceError
from mezzotint.traces.sources.huggingface import HuggingFace
from mezzotint.traces.sources.interpret import SAID

datasets = pytest.importorskip("datasets")
REQUESTS = {"prompt": ["a fox", "a cat"], "size": ["512x512", "64x32"], "boxes": [[[1]], [[2]]]}


@pytest.mark.parametrize("kind", ["saved", "saved splits", "parquet"])
def test_folder_is_read(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    data, folder = datasets.Dataset.from_dict(REQUESTS), tmp_path / "set"
    if kind == "parquet":
        folder.mkdir()
        data.to_parquet(str(folder / "train.parquet"))
    else:
        (data if kind == "saved" else datasets.DatasetDict(train=data, test=data.select([0]))).save_to_disk(str(folder))
    reading = HuggingFace(path=folder).read(np.random.default_rng(0))
    trace = HuggingFace(path=folder).load(np.random.default_rng(0))
    assert trace.table.select(["prompt", "width", "height"]).to_pylist() == [
        {"prompt": "a fox", "width": 512, "height": 512}, {"prompt": "a cat", "width": 64, "height": 32},
    ]  # fmt: skip
    assert "boxes" in reading.notes[SAID][-1]
    if kind == "saved splits":
        assert len(HuggingFace(path=folder, split="test").load(np.random.default_rng(0))) == 1
        with pytest.raises(TraceError, match="found the splits train, test; choose one with --split"):
            HuggingFace(path=folder, split="dev").load(np.random.default_rng(0))


def test_folder_without_data_is_refused(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("raise SystemExit('ran')")
    with pytest.raises(TraceError, match="cannot be loaded as a data set"):
        HuggingFace(path=tmp_path).load(np.random.default_rng(0))
