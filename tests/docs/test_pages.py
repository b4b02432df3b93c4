"""README.md and docs/: stories and quick commands run, every other command composes, and Python blocks parse."""

import re
import shlex
from collections.abc import Iterator, Sequence
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE, OutputChecker
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf
from sybil import Example, Sybil
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser, SkipParser

from mezzotint.sim.cli import main
from mezzotint.sim.plan.command import separate_trace
from mezzotint.sim.run.commands import command_of, parse_options
from mezzotint.sim.run.config.compose import compose_config
from mezzotint.sim.run.config.options import files_of, prepare_overrides
from mezzotint.sim.run.config.points import points
from mezzotint.sim.run.config.settings import check
from mezzotint.sim.run.termination import end_workers
from tests.conftest import REPOSITORY

DOCS = REPOSITORY / "docs"
PAGES = {
    path.relative_to(REPOSITORY).as_posix(): path.read_text(encoding="utf-8")
    for path in [REPOSITORY / "README.md", *sorted(DOCS.rglob("*.md"))]
}
TOP = {"CHANGELOG.md", "CONTRIBUTING.md"}
"""Pages of the top folder that the site has too."""
STORIES = {
    "readme": ["README.md"],
    "start": ["docs/start/install.md", "docs/start/first-figure.md", "docs/start/report.md", "docs/start/settings.md"],
    "tutorial": sorted(page for page in PAGES if page.startswith("docs/tutorial/")),
}
"""Pages whose blocks are run in their order, those of a story in one folder."""
SHORTER = {
    "mezzotint report first --reruns-s ": "--reruns-s 1",
    "mezzotint run -m ": "hydra.launcher.n_jobs=1",
}
"""What the tests add to a command that begins like this: it prints what its page shows, sooner."""


@pytest.mark.parametrize("story", STORIES)
def test_story_runs_and_prints_what_it_shows(
    story: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A `text` block shows the output of the block before it; `...` stands for anything."""
    monkeypatch.chdir(tmp_path)
    end_workers()  # those of an earlier test have its working directory
    run_python, flags = PythonEvaluator(), ELLIPSIS | NORMALIZE_WHITESPACE

    def shell(example: Example) -> None:
        capsys.readouterr()
        for command in example.parsed.replace("\\\n", " ").splitlines():
            shorter = [words for begin, words in SHORTER.items() if command.startswith(begin)]
            name, *arguments = shlex.split(" ".join([command, *shorter]), comments=True)
            assert name == "mezzotint", "what is no command of ours is skipped by its page"
            assert main(arguments) == 0

    def python(example: Example) -> None:
        capsys.readouterr()
        run_python(example)

    def output(example: Example) -> None:
        found, shown = (text.strip() + "\n" for text in (capsys.readouterr().out, example.parsed))
        assert OutputChecker().check_output(shown, found, flags), f"{example.path}, {example.line}: {found}"

    parsers = [CodeBlockParser("sh", shell), CodeBlockParser("python", python), CodeBlockParser("text", output)]
    for page in STORIES[story]:
        for example in Sybil([*parsers, SkipParser()]).parse(REPOSITORY / page).examples():
            example.evaluate()


def _commands() -> Iterator[str]:
    """Yield the commands of the blocks, and those in running text that have arguments."""
    for text in PAGES.values():
        blocks = "".join(re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)).replace("\\\n", " ")
        within = [
            " ".join(found.split()) for found in re.findall(r"`(mezzotint (?:run|list|plan|validate) [^`]+)`", text)
        ]
        yield from (
            line
            for line in [*blocks.splitlines(), *(" ".join(found.split()) for found in within)]
            if line.startswith("mezzotint ")
        )


COMMANDS = sorted(set(_commands()))


def test_docs_have_commands_of_every_verb() -> None:
    verbs = {command.split()[1] for command in COMMANDS}
    assert verbs >= {"run", "list", "plan", "validate", "trace", "report", "reproduce", "calibrate"}


SHOWN = {
    name[0]: block
    for block in re.findall(r"^```yaml\n(.*?)^```", "".join(PAGES.values()), re.MULTILINE | re.DOTALL)
    if (name := re.search(r"(?:my_conf|profiles)/[\w/-]+\.yaml", block)) is not None
}
"""YAML blocks whose first line names their file."""


@pytest.fixture(scope="module")
def run_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, which `--config-path out` runs again."""
    folder = tmp_path_factory.mktemp("before") / "out"
    assert main(["run", "trace.requests=5", f"run.dir={folder}"]) == 0
    return folder


@pytest.fixture
def elsewhere(run_before: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a folder with the files that the commands read."""
    monkeypatch.chdir(tmp_path)
    Path("out").symlink_to(run_before)
    for name, block in SHOWN.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(block)
    Path("mine/selector").mkdir(parents=True)  # written by `calibrate selector -o mine`
    Path("mine/selector/measured.yaml").write_text((REPOSITORY / "conf/selector/nirvana.yaml").read_text())


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("command", COMMANDS)
def test_command_is_accepted(command: str) -> None:
    """Of a sweep, some points that show each choice. Commands of a launcher that is not installed are left out."""
    if (launcher := re.search(r"launcher[ =](ray|submitit|slurm)", command)) is not None:
        pytest.importorskip("ray" if launcher[1] == "ray" else "submitit")
    given = shlex.split(command, comments=True)[1:]
    if given[0].startswith("--"):
        assert main(given) == 0
        return
    words = command_of(given)
    assert words is not None
    with parse_options(words, given[len(words.split()) :]) as context:
        options = context.params
    if "overrides" not in options:
        return
    files = files_of(options["config_dir"], options.get("config_path"), options.get("config_name", "config"))
    written = options["overrides"] or []
    overrides = prepare_overrides(separate_trace(written)[0] if words == "plan" else written)
    swept = points(overrides, files).overrides if options.get("multirun") else [overrides]
    for point in _covering(swept):
        plain = OmegaConf.to_container(compose_config(point, files), resolve=True, throw_on_missing=True)
        assert isinstance(plain, dict)
        check({str(key): value for key, value in plain.items()})


QUICK = re.compile(
    r"mezzotint (?:list (?!.*[A-Z]{3})|run cluster=pools .*sdxl-mlperf|run models=sdxl-mlperf cluster=h100-sxm )"
)
"""Commands that end within two seconds; `python -m tests.docs.commands` runs the others."""


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("command", list(filter(QUICK.match, COMMANDS)))
def test_quick_command_runs(command: str) -> None:
    assert main(shlex.split(command)[1:]) == 0


def _covering(points: Sequence[Sequence[str]]) -> Iterator[Sequence[str]]:
    """Yield a few of ``points`` that between them have every choice, and a number of each key that is swept."""

    def kinds(point: Sequence[str]) -> set[str]:
        return {re.sub(r"=[\d.]+$", "=number", value) for value in point}

    left = {kind for point in points for kind in kinds(point)}
    while True:
        best = max(points, key=lambda point: len(left & kinds(point)))
        yield best
        left -= kinds(best)
        if not left:
            return


@pytest.mark.parametrize("page", [*PAGES, "CONTRIBUTING.md", "SECURITY.md"])
def test_links_and_pictures_of_a_page_exist_and_its_python_parses(page: str) -> None:
    """The site has docs/, results/*.md and the pages of TOP; what a page names outside of them it does not link."""
    written = (REPOSITORY / page).read_text(encoding="utf-8")
    for block in re.findall(r"^```python\n(.*?)^```", written, re.MULTILINE | re.DOTALL):
        compile(block, page, "exec")
    text = re.sub(r"^```.*?^```", "", written, flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", re.sub(r"`[^`]*`", "", text)):
        if "://" in link:
            continue
        target = ((REPOSITORY / page).parent / link).resolve()
        assert target.is_file(), f"{page}: {link}"
        if page.startswith("docs/"):
            place = target.relative_to(REPOSITORY).parts
            assert place[0] in {"docs", *TOP} or (place[0] == "results" and len(place) == 2), f"{page}: {link}"


def _paths(entries: object) -> Iterator[str]:
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, str):
            yield entry
        elif isinstance(entry, dict):
            for value in entry.values():
                yield from [value] if isinstance(value, str) else _paths(value)


def test_navigation_names_each_page_once() -> None:
    shown = sorted(_paths(yaml.safe_load((REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]))
    pages = {page.removeprefix("docs/") for page in PAGES} - {"README.md"}
    made = {path.stem for path in (REPOSITORY / "results").glob("*.md")}
    results = {f"results/{name}.md" for name in made if not name.endswith("-quick")}
    sources = {path.stem for path in (REPOSITORY / "notebooks").glob("*.py")} - {"make"}
    notebooks = {f"notebooks/{name}.md" for name in sources}
    assert shown == sorted(pages | results | notebooks | TOP)
