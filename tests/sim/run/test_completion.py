"""Shell completion, asked for as the shells' scripts do."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mezzotint.sim.cli import main
from mezzotint.sim.run.config.choices import choices, groups


def completed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], shell: str, line: str) -> list[str]:
    """Return what ``shell`` is told at the end of ``line``; bash's words end at `=`, too."""
    words = line.replace("=", " = ").split() + [""] * line.endswith(" ")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("_MEZZOTINT_COMPLETE", f"complete_{shell}")
    if shell == "bash":
        monkeypatch.setenv("COMP_WORDS", " ".join(words))
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    else:
        monkeypatch.setenv("_TYPER_COMPLETE_ARGS", line)
        monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    with pytest.raises(SystemExit) as end:
        main([])
    assert end.value.code == 0
    return [line for line in capsys.readouterr().out.splitlines() if line]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("mezzotint re", ["report", "reproduce"]),
        ("mezzotint plan ", ["capacity", "placement"]),
        ("mezzotint trace d", ["describe"]),
        ("mezzotint plan --ta", ["--target"]),
        ("mezzotint plan capacity --fr", ["--from"]),
        ("mezzotint list ev", ["eviction"]),
        ("mezzotint run --multi", ["--multirun"]),
        ("mezzotint run -m e", [f"{group}=" for group in groups() if group.startswith("e")]),
        ("mezzotint run eviction=fi", ["fifo"]),
        ("mezzotint run -m eviction=lru,fi", ["lru,fifo"]),
        ("mezzotint plan --model sdxl eviction=fi", ["fifo"]),
        ("mezzotint run unknown=fi", []),
    ],
)
def test_bash_completes_verbs_options_groups_and_choices(
    line: str, expected: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert completed(monkeypatch, capsys, "bash", line) == expected


def test_bash_completes_the_empty_word_after_an_equals_sign(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert completed(monkeypatch, capsys, "bash", "mezzotint run eviction=") == [
        each.name for each in choices("eviction")
    ]


def test_only_group_is_completed_with_its_choices(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [f"eviction={each.name}" for each in choices("eviction")]
    assert completed(monkeypatch, capsys, "bash", "mezzotint run evic") == names


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_complete_the_whole_word_with_a_line_of_description(
    shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (line,) = completed(monkeypatch, capsys, shell, "mezzotint run eviction=fi")
    (fifo,) = (each for each in choices("eviction") if each.name == "fifo")
    assert "eviction=fifo" in line
    assert fifo.line.partition(":")[0] in line
    verbs = completed(monkeypatch, capsys, shell, "mezzotint ")
    assert len(verbs) == len({"report", "run", "list", "merge", "validate", "trace", "calibrate", "plan", "reproduce"})


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_script_for_bash_completes_in_bash(tmp_path: Path) -> None:
    """The script defines a function; a key press sets the words, and reads its reply."""
    command = tmp_path / "mezzotint"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m mezzotint.sim.cli "$@"\n')
    command.chmod(0o755)
    press = (
        'eval "$(_MEZZOTINT_COMPLETE=source_bash mezzotint)"\n'
        "COMP_WORDS=(mezzotint run system = nirvana-no) COMP_CWORD=4\n"
        "_mezzotint_completion mezzotint\n"
        'echo "${COMPREPLY[@]}"\n'
    )
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "--norc", "-c", press], env=environment, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("nirvana-no-predictor\n", "")


def test_script_is_printed_and_installed_by_typers_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")  # name the shell instead
    for option, said in (("--show-completion", "complete_bash"), ("--install-completion", "bash completion installed")):
        with pytest.raises(SystemExit):
            main([option, "bash"])
        assert said in capsys.readouterr().out
    assert "mezzotint.sh" in (tmp_path / ".bashrc").read_text()
