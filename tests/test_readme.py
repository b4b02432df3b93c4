"""The commands of README.md and docs/: every one composes or parses as written; nothing is run or measured."""

import re
import shlex
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from sim.cli import main
from sim.plan.clusters.command import separated
from sim.run.commands import command_of, parsed
from sim.run.config.compose import composed
from sim.run.config.points import points, sweep_config
from sim.run.config.settings import check
from sim.verbs import arranged, files_of
from tests.conftest import REPOSITORY

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
DOCS = "".join(page.read_text(encoding="utf-8") for page in sorted((REPOSITORY / "docs").rglob("*.md")))


def _commands() -> list[str]:
    """Return the commands of the blocks, and those in running text that have arguments."""
    text = README + DOCS
    blocks = "".join(re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)).replace("\\\n", " ")
    within = [" ".join(found.split()) for found in re.findall(r"`(mezzotint (?:run|list|plan|validate) [^`]+)`", text)]
    return [line for line in [*blocks.splitlines(), *within] if line.startswith("mezzotint ")]


COMMANDS = _commands()


def test_readme_has_commands_of_every_verb() -> None:
    verbs = {command.split()[1] for command in COMMANDS}
    assert verbs == {"run", "list", "plan", "validate", "trace", "report", "reproduce", "calibrate"}
    assert len(COMMANDS) > 35


@pytest.fixture(scope="module")
def run_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, which `--config-path out` runs again."""
    folder = tmp_path_factory.mktemp("before") / "out"
    assert main(["run", "trace.requests=5", f"run.dir={folder}"]) == 0
    return folder


@pytest.fixture
def elsewhere(run_before: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a folder with the files that the README's commands read."""
    monkeypatch.chdir(tmp_path)
    Path("out").symlink_to(run_before)
    for block in re.findall(r"^```yaml\n(.*?)^```", README + DOCS, re.MULTILINE | re.DOTALL):
        name = re.search(r"my_conf/[\w/-]+\.yaml", block)
        if name is None:
            continue
        Path(name[0]).parent.mkdir(parents=True, exist_ok=True)
        Path(name[0]).write_text(block)
    Path("mine/selector").mkdir(parents=True)  # written by `calibrate selector -o mine`
    Path("mine/selector/measured.yaml").write_text((REPOSITORY / "conf/selector/nirvana.yaml").read_text())


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("command", COMMANDS)
def test_readme_command_is_accepted(command: str) -> None:
    """Commands of a launcher that is not installed are left out."""
    if (launcher := re.search(r"launcher[ =](ray|submitit|slurm)", command)) is not None:
        pytest.importorskip({"ray": "ray"}.get(launcher[1], "submitit"))
    given = shlex.split(command, comments=True)[1:]
    words = command_of(given)
    assert words is not None
    with parsed(words, given[len(words.split()) :]) as context:
        options = context.params
    if "overrides" not in options:
        return
    files = files_of(options["config_dir"], options.get("config_path"), options.get("config_name", "config"))
    written = options["overrides"] or []
    overrides = arranged(separated(written)[0] if words == "plan" else written)
    for point in points(overrides, sweep_config(overrides, files), files) if options.get("multirun") else [overrides]:
        plain = OmegaConf.to_container(composed(point, files), resolve=True, throw_on_missing=True)
        assert isinstance(plain, dict)
        check({str(key): value for key, value in plain.items()})


def test_readme_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On fewer requests than the README names."""
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    exec(block.replace('"arrivals.rate_rpm=', '"trace.requests=100", "arrivals.rate_rpm='), {})
    assert len(list((tmp_path / "sweep").glob("*/summary.json"))) == 4
