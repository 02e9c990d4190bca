"""The documentation: the site builds, links lead somewhere, commands parse, and snippets run."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import http.server
import importlib
import importlib.util
import math
import os
import re
import shlex
import subprocess
import sys
import threading
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml

import elites
from browser import browsing, errors, needs_browser
from elites import cli, physics, tasks, training
from elites.core import networks
from elites.core.algorithm import Algorithm
from elites.tasks.rollout import evaluate

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md"))])
named = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def code_blocks(page: Path, *languages: str) -> list[str]:
    """Return the fenced blocks of a page in any of these languages."""
    fence = re.compile(r"^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.M | re.S)
    found = fence.finditer(page.read_text("utf-8"))
    return [match["code"] for match in found if match["language"] in languages]


# ------------------------------------------------------------------------------ your own task


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("own_task", DOCS / "examples" / "own_task.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def policies_with_constant_action(network: networks.MLP, actions: list[float]) -> jax.Array:
    """Networks whose weights are all zero but for the bias of the output."""
    rows = np.zeros((len(actions), network.size), np.float32)
    rows[:, -1] = np.arctanh(actions)
    return jnp.asarray(rows)


def test_own_task_page_shows_the_file():
    first = code_blocks(DOCS / "your-own-task.md", "python")[0]
    assert first == (DOCS / "examples" / "own_task.py").read_text("utf-8")


def test_own_task_has_known_outcomes(example):
    task = example.pendulum()
    network = networks.policy(task.observation_size, task.action_size, hidden=(8,))
    policies = policies_with_constant_action(network, [0.0, 0.25, -0.25])
    evaluation = evaluate(task, network, policies, jax.random.key(0), batch=32)

    assert evaluation.valid.all()
    assert (evaluation.steps == task.episode_length).all()
    # Without torque it hangs still for the whole episode, at no cost.
    assert evaluation.fitness[0] == task.episode_length
    np.testing.assert_allclose(evaluation.descriptors[0], [-1.0, 0.0], atol=1e-6)
    # A constant action a costs a^2 a step, lifts the pendulum and moves it, alike on both sides.
    np.testing.assert_allclose(
        evaluation.fitness[1:], task.episode_length * (1 - 0.25**2), rtol=1e-4
    )
    np.testing.assert_allclose(evaluation.descriptors[1], evaluation.descriptors[2], rtol=1e-3)
    assert (evaluation.descriptors[1] > evaluation.descriptors[0] + 1e-3).all()


def test_own_task_obeys_the_work_theorem(example):
    """Energy gained under a constant torque is torque times angle, up to the integrator's error."""
    task = example.pendulum()
    state = task.reset(jax.random.key(0))
    action = jnp.array([0.3])
    step = jax.jit(task.step)
    for _ in range(task.episode_length):
        state = step(state, action)
        angle, speed = (float(value) for value in state.inner)
        energy = speed**2 / 2 + 9.81 * (1 - math.cos(angle))
        assert energy == pytest.approx(5.0 * 0.3 * angle, abs=0.2)


def test_own_task_page_can_be_followed(example, monkeypatch, capsys):
    monkeypatch.setattr(tasks, "_FACTORIES", dict(tasks._FACTORIES))
    names = {"pendulum": example.pendulum}
    for block in code_blocks(DOCS / "your-own-task.md", "python")[1:]:
        exec(block, names)
    assert tasks.make("pendulum") is example.pendulum()
    assert names["evaluation"].fitness.shape == (100,)
    assert "(100, 2)" in capsys.readouterr().out


# ------------------------------------------------------------------------------ body models


@pytest.fixture(scope="module")
def two_links() -> physics.Model:
    return physics.load(DOCS / "examples" / "two_links.json")


def test_body_model_page_shows_the_file():
    (block,) = code_blocks(DOCS / "body-models.md", "json")
    assert block == (DOCS / "examples" / "two_links.json").read_text("utf-8")


def test_body_model_page_can_be_followed(monkeypatch):
    monkeypatch.chdir(ROOT)
    names = {}
    (block,) = code_blocks(DOCS / "body-models.md", "python")
    exec(block, names)
    assert names["sensors"].angles[0] == pytest.approx(math.pi / 2, abs=0.03)


def test_example_model_rests_on_the_ground(two_links):
    # Joints start at the middle of their limits, the lowest collider touches z = 0.
    _, sensors = physics.reset(two_links)
    assert math.degrees(sensors.angles[0]) == pytest.approx(35.0, abs=1e-3)
    assert two_links.rest[2, 0] == pytest.approx(0.1, abs=1e-6)


@pytest.fixture(scope="module")
def moved(two_links):
    """200 steps with one action, from rest."""

    def move(action: jax.Array):
        def body(_, carry):
            return physics.step(two_links, carry[0], action)

        return jax.lax.fori_loop(0, 200, body, physics.reset(two_links))

    return jax.jit(move)


@pytest.mark.parametrize(("action", "degrees"), [(0.0, -20.0), (1.0, 90.0), (-1.0, -20.0)])
def test_example_model_moves_to_its_limits(moved, action, degrees):
    state, sensors = moved(jnp.array([action]))
    assert math.degrees(sensors.angles[0]) == pytest.approx(degrees, abs=2.0)
    assert state[2, 0] == pytest.approx(0.1, abs=0.02)  # the trunk stays on the ground
    assert abs(float(state[1, 0])) < 0.01


def test_joint_velocity_has_the_documented_sign(two_links):
    state, before = physics.reset(two_links)
    step = jax.jit(lambda state, action: physics.step(two_links, state, action))
    state, now = step(state, jnp.array([1.0]))
    assert now.angles[0] > before.angles[0]
    assert now.velocities[0] < 0


@pytest.mark.parametrize(
    ("where", "entry"),
    [
        ("model", {"bodies": [], "nonsense": 0}),
        ("body", {"bodies": [{"name": "a", "nonsense": 0}]}),
        ("collider", {"bodies": [{"name": "a", "colliders": [{"nonsense": 0}]}]}),
        ("joint", {"joints": [{"name": "j", "nonsense": 0}]}),
        ("actuator", {"joints": [], "actuators": [{"name": "m", "nonsense": 0}]}),
    ],
)
def test_body_model_page_names_every_field(where, entry):
    """The fields a reader of the page knows are those that the loader knows."""
    mass = {"mass": 1.0, "inertia": {"x": 1.0, "y": 1.0, "z": 1.0}}
    with pytest.raises(physics.ModelError, match="unknown field 'nonsense'; known: ") as error:
        physics.build({"bodies": [{"name": "a", **mass}], **entry})
    known = str(error.value).partition("known: ")[2].split()
    assert known
    page = (DOCS / "body-models.md").read_text("utf-8")
    documented = {
        word for row in re.findall(r"^\| (`.*?) \|", page, re.M) for word in re.findall(r"\w+", row)
    }
    assert not set(known) - documented, f"{where} fields missing in body-models.md"


# ------------------------------------------------------------------------------ runs and faults


def test_every_fault_names_tests_that_exist():
    page = (DOCS / "faults.md").read_text("utf-8")
    references = re.findall(r"`(test_\w+\.py)::(test_\w+)`", page)
    assert len(references) > 30
    for file, name in references:
        (source,) = (ROOT / "tests").glob(f"*/{file}")
        assert f"def {name}(" in source.read_text("utf-8"), f"{file}::{name}"
    numbers = [int(n) for n in re.findall(r"^\| (\d+)\. ", page, re.M)]
    assert numbers == list(range(1, 31))


def test_deploy_page_shows_the_file():
    for name, language in (("run_exported.py", "python"), ("run_exported.c", "c")):
        example = (DOCS / "examples" / name).read_text("utf-8")
        assert example in code_blocks(DOCS / "deploy.md", language)


# ------------------------------------------------------------------------------ pages


@named
def test_links_lead_somewhere(page):
    """On GitHub, where the sources are read; the built site is checked below."""
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name} links to {target}"
        if anchor and "docs/api" not in str(file):  # made from docstrings
            titles = re.findall(r"^#+ (.+)$", file.read_text("utf-8"), re.M)
            anchors = {re.sub(r"[^\w\- ]", "", t).lower().replace(" ", "-") for t in titles}
            assert anchor in anchors, f"{page.name} links to {target}"


@pytest.mark.parametrize("page", [DOCS / "map.md", ROOT / "CONTRIBUTING.md"], ids=lambda p: p.name)
def test_files_named_exist(page):
    """Paths are of the repository or of the package; the swimmer is an example."""
    names = re.findall(r"`((?:\w+/)+[\w*.]*)`", page.read_text("utf-8"))
    assert len(names) > 10
    for name in names:
        places = [base for base in (ROOT, ROOT / "src" / "elites") if list(base.glob(name))]
        made = name.startswith("build/") or "swimmer" in name  # by make; an example
        assert places or made, f"{page.name} names {name}"


def test_index_lists_every_page():
    index = (DOCS / "index.md").read_text("utf-8")
    missing = {page.name for page in DOCS.glob("*.md")} - {"index.md"}
    assert not {name for name in missing if f"({name})" not in index}


def test_versions_agree():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert citation["version"] == elites.__version__
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert f"elites-{elites.__version__}-py3" in (DOCS / "installation.md").read_text("utf-8")


# Not wrapped yet: wrap them when they are edited next, and remove them here.
UNWRAPPED: tuple[str, ...] = ()


def test_lines_of_prose_are_short():
    for page in (page for page in PAGES if page.name not in UNWRAPPED):
        text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.M | re.S)
        prose = [line for line in text.splitlines() if not line.startswith(("|", "![", "$$"))]
        assert not [line for line in prose if len(line) > 120], page


# ------------------------------------------------------------------------------ commands


def command_lines() -> list[tuple[str, str]]:
    """Return every `elites ...` of a fenced block, and those with options in the text."""
    found = []
    for page in PAGES:
        lines = []
        for block in code_blocks(page, "", "bash"):
            lines += block.replace("\\\n", " ").splitlines()
        lines += re.findall(r"`(elites [a-z]+ [^`]*--[^`]*)`", page.read_text("utf-8"))
        for line in lines:
            line = re.sub(r"^(?:[A-Z_0-9]+=\S+\s+)+", "", line.strip())
            if line.startswith("elites "):
                found.append((str(page.relative_to(ROOT)), line))
    return found


def test_every_command_shown_parses():
    """Options exist and have values of their type; nothing is run."""
    lines = command_lines()
    assert len(lines) > 30
    for page, line in lines:
        arguments = shlex.split(line, comments=True)[1:]
        try:
            assert callable(cli._parse(arguments))
        except ValueError as error:
            pytest.fail(f"{page}: {line}: {error}")


def test_command_reference_is_current():
    script = [sys.executable, DOCS / "site" / "commands.py", "--check"]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}run `make docs` and commit the page"


# ------------------------------------------------------------------------------ snippets

SHAPES: dict[str, type] = {  # variables that pages use without making them
    "run": training.Run,
    "elite": training.Elite,
    "search": training.AskTell,
    "asked": training.Asked,
    "algorithm": Algorithm,
}
LEADS_TO = {(training.Run, "archive"): training.Elites, (training.Run, "actor"): training.Actor}
FUNCTIONS = (elites.train, elites.build, elites.ask_tell)


@named
def test_python_snippets_use_names_that_exist(page):
    """Tests above and below run those that need no training; all are parsed and looked up."""
    imported: dict[str, object] = {}
    for block in code_blocks(page, "python"):
        tree = ast.parse(block, str(page))
        made = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and _stored(n)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                imported |= names_of_import(node)
            elif isinstance(node, ast.Attribute):
                look_up(node, imported, {} if page.name == "code.md" else SHAPES, made)
            elif isinstance(node, ast.Call):
                check_keywords(node, imported)


def _stored(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store) and node.id not in SHAPES


def names_of_import(node: ast.Import | ast.ImportFrom) -> dict[str, object]:
    """Import what a snippet imports of this package."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names if alias.name.startswith("elites")]
        return {name: importlib.import_module(name) for name in names}
    if not (node.module or "").startswith("elites"):
        return {}
    found = {}
    for alias in node.names:
        module = importlib.import_module(node.module or "")
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(f"{node.module}.{alias.name}")
        found[alias.asname or alias.name] = getattr(module, alias.name)
    return found


def look_up(node: ast.Attribute, imported, shapes, made) -> object:
    """Follow a.b.c as far as its parts are known, and fail at a part that does not exist."""
    if isinstance(node.value, ast.Attribute):
        owner = look_up(node.value, imported, shapes, made)
    elif isinstance(node.value, ast.Name) and node.value.id not in made:
        owner = imported.get(node.value.id, shapes.get(node.value.id))
    else:
        owner = None
    if owner is None:
        return None
    if isinstance(owner, type):
        fields = {f.name for f in dataclasses.fields(owner)} if _is_record(owner) else set()
        known = fields | set(dir(owner)) | set(getattr(owner, "__annotations__", ()))
        assert node.attr in known, f"{owner.__name__} has no {node.attr}"
        return LEADS_TO.get((owner, node.attr))
    return getattr(owner, node.attr)


def _is_record(owner: type) -> bool:
    return dataclasses.is_dataclass(owner)


def check_keywords(node: ast.Call, imported) -> None:
    """Compare keywords of training calls with hyperparameters and the function's own."""
    if not isinstance(node.func, ast.Attribute):
        return
    function = look_up(node.func, imported, {}, set())
    if function in FUNCTIONS:
        hyperparameters = {f.name for f in dataclasses.fields(elites.Hyperparameters)}
        own = set(function.__code__.co_varnames)
        given = {keyword.arg for keyword in node.keywords}
        assert given <= hyperparameters | own, given - hyperparameters - own


def test_loading_a_checkpoint_with_numpy_works_as_shown(tmp_path, monkeypatch):
    """The file that the page reads, made by hand: two seeds, three cells, the last one empty."""
    where = tmp_path / "runs/walker_uni-dcg_me/checkpoints/last"
    where.mkdir(parents=True)
    fitness = np.array([[1.0, 3.0, -np.inf]] * 2)
    policies = np.arange(12.0).reshape(2, 3, 2)
    arrays = {"archive.fitness": fitness, "archive.policies": policies}
    np.savez(where / "weights.npz", **arrays)  # pyright: ignore[reportArgumentType]
    monkeypatch.chdir(tmp_path)
    (block,) = (b for b in code_blocks(DOCS / "runs.md", "python") if "np.load" in b)
    names: dict[str, object] = {}
    exec(block, names)
    np.testing.assert_array_equal(names["best"], [2.0, 3.0])


# ------------------------------------------------------------------------------ the site


class Links(HTMLParser):
    """Anchors, links and loaded files of a page."""

    def __init__(self, text: str):
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        for name in ("src", "srcset", "data", "poster"):
            if given.get(name):
                self.loaded.append(given[name])
        if tag == "link" and given.get("rel") != "canonical" and given.get("href"):
            self.loaded.append(given["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site, built as `make docs` builds it."""
    where = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", where],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return where


@pytest.fixture(scope="module")
def parsed(site) -> dict[Path, Links]:
    return {page: Links(page.read_text("utf-8")) for page in site.rglob("*.html")}


def test_site_has_the_pages(site, parsed):
    assert len(parsed) > 30
    for page in ("index.html", "concepts.html", "contributing.html", "changes.html"):
        assert (site / page).is_file()
    reference = (site / "api" / "training.html").read_text("utf-8")
    assert 'id="elites.train"' in reference
    assert "Result of a training run" in reference
    pages = "".join(page.read_text("utf-8") for page in (site / "api").glob("*.html"))
    assert not [name for name in elites.__all__ if f'id="elites.{name}"' not in pages]
    fields = (site / "api" / "hyperparameters.html").read_text("utf-8")
    assert all(field.name in fields for field in dataclasses.fields(elites.Hyperparameters))


def test_site_has_no_dead_links(site, parsed):
    for page, links in parsed.items():
        if page.name == "404.html":
            continue  # its links are absolute
        for link in links.links + links.loaded:
            parts = urlsplit(link)
            if parts.scheme or link.startswith("//"):
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            target = target / "index.html" if target.is_dir() else target
            assert target.is_file(), f"{page.relative_to(site)} links to {link}"
            if parts.fragment and target in parsed and not parts.fragment.startswith("__"):
                anchors = parsed[target].ids
                assert unquote(parts.fragment) in anchors, f"{page.relative_to(site)}: {link}"


def test_site_loads_nothing_from_other_hosts(site, parsed):
    for page, links in parsed.items():
        foreign = [url for url in links.loaded if urlsplit(url).netloc]
        assert not foreign, f"{page.relative_to(site)} loads {foreign}"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//", sheet.read_text("utf-8"))


@contextlib.contextmanager
def served(where: Path):
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format, *args):
            pass

    handler = functools.partial(Quiet, directory=str(where))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@needs_browser
def test_site_in_a_browser(site):
    """On a narrow screen, in the dark: no page is wider than the screen, and search finds."""
    options = {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"}
    with served(site) as address, browsing(**options) as (page, asked, complaints):
        for name in ("faults", "concepts", "commands", "api/core", "results", "map"):
            page.goto(f"{address}{name}.html")
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, name
        page.goto(f"{address}index.html")
        page.click("label[for=__search]")
        page.wait_for_selector(".md-search-result__meta >> text=Type to start")  # index is loaded
        page.type("input.md-search__input", "lengthscale")
        page.wait_for_selector(".md-search-result__item a")
        assert all(url.startswith((address, "data:")) for url in asked)
        assert not errors(complaints)
