"""All development commands. They need only Python >= 3.11 and pip.

    python dev.py VERB [arguments passed through]      for example: python dev.py test -k path

The first call creates .venv next to this file and installs the package there in editable form. Later calls install
again only if pyproject.toml has changed or a verb needs an extra that is not installed yet.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent
ENVIRONMENT = ROOT / ".venv"
STAMP = ENVIRONMENT / "installed-extras.json"

# pytest-xdist runs one worker per core; BLAS threads in each worker would oversubscribe the cores.
ONE_THREAD_EACH = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

INTERRUPTED = 130  # exit code of shells for a program ended by Ctrl-C


# --- the environment --------------------------------------------------------------------------------


def python_of(environment: Path) -> Path:
    """The interpreter of a virtual environment."""
    return environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def make_environment(environment: Path) -> None:
    venv.create(environment, clear=True, symlinks=os.name != "nt", with_pip=False)


def python_with_pip() -> str:
    """The interpreter whose pip installs into the environments, which contain no pip."""
    inside = Path(sys.prefix).resolve() == ENVIRONMENT
    return sys._base_executable if inside else sys.executable


def install(environment: Path, *requirements: str) -> None:
    options = ["-qq", "--disable-pip-version-check"]  # -qq: show errors only
    target = ["--python", str(python_of(environment))]
    subprocess.run([python_with_pip(), "-m", "pip", *target, "install", *options, *requirements], check=True)


def fingerprint() -> str:
    """Hash of the declared dependencies and of the folder that the editable install points to."""
    return hashlib.sha256((ROOT / "pyproject.toml").read_bytes() + str(ROOT).encode()).hexdigest()


def installed_extras() -> set[str]:
    """The extras installed from the current pyproject.toml."""
    if not STAMP.exists():
        return set()
    stamps = json.loads(STAMP.read_text())
    return {extra for extra, stamp in stamps.items() if stamp == fingerprint()}


def prepare(extras: frozenset[str]) -> None:
    """Create .venv if it is missing or broken, and install the package with these extras."""
    if not python_of(ENVIRONMENT).exists():
        print(f"creating {ENVIRONMENT}", flush=True)
        make_environment(ENVIRONMENT)
    present = installed_extras()
    if extras <= present:
        return
    wanted = sorted(extras | present)
    print(f"installing annealed[{','.join(wanted)}]", flush=True)
    install(ENVIRONMENT, "--editable", f"{ROOT}[{','.join(wanted)}]")
    STAMP.write_text(json.dumps(dict.fromkeys(wanted, fingerprint()), indent=2))


def run(*command: str, **variables: str) -> int:
    """Run `python command` inside .venv; variables of the caller's shell take precedence over `variables`."""
    print("$ python", *command, flush=True)
    environ = {**variables, **os.environ}
    process = subprocess.Popen([str(python_of(ENVIRONMENT)), *command], cwd=ROOT, env=environ)
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.wait()  # it receives the signal too and may print results; `subprocess.run` would kill it
        raise


# --- the verbs --------------------------------------------------------------------------------------


def demo(arguments: list[str]) -> int:
    return run("-m", "annealed", "demo", *arguments)


def test(arguments: list[str]) -> int:
    return run("-m", "pytest", "-n", "auto", *arguments, **ONE_THREAD_EACH)


def check(arguments: list[str]) -> int:
    """Run all of them even if the first fails, so that a contributor sees the whole list."""
    codes = [
        run("-m", "ruff", "check", *(arguments or ["."])),
        run("-m", "ruff", "format", "--check", *(arguments or ["."])),
        run("-m", "mypy", *(arguments or ["annealed", "tests/typed_script.py"])),
    ]
    return next((code for code in codes if code), 0)  # the code of a killed command is negative


def build(arguments: list[str]) -> int:
    """Build into dist/, then verify that the wheel is pure, contains only the package, and can be imported alone."""
    code = run("-m", "build", "--no-isolation", "--outdir", "dist", *arguments)
    if code:
        return code
    wheel = max((ROOT / "dist").glob("*.whl"), key=lambda path: path.stat().st_mtime)
    return examine_wheel(wheel)


def examine_wheel(wheel: Path) -> int:
    if not wheel.name.endswith("-py3-none-any.whl"):
        raise SystemExit(f"the wheel must be pure Python (py3-none-any). Got {wheel.name}.")
    names = zipfile.ZipFile(wheel).namelist()
    strays = [name for name in names if not name.startswith(("annealed/", "annealed-"))]
    if strays or "annealed/py.typed" not in names:
        raise SystemExit(f"the wheel must hold only the package, with py.typed. Got {strays or names}.")
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder) / "environment"
        make_environment(environment)
        install(environment, str(wheel))
        # Run in an empty folder, so that the checkout cannot be imported instead of the wheel.
        statement = "import annealed; print('imported', annealed.__file__)"
        return subprocess.run([str(python_of(environment)), "-c", statement], cwd=folder).returncode


def bench(arguments: list[str]) -> int:
    return run("-m", "benchmarks", *arguments)


def gates(arguments: list[str]) -> int:
    return run("-m", "gates", *(arguments or ["compare"]), **ONE_THREAD_EACH)


def fuzz(arguments: list[str]) -> int:
    return run("-m", "fuzz", *arguments, **ONE_THREAD_EACH)


def reproduce(arguments: list[str]) -> int:
    return run("-m", "experiments", *arguments)


def install_extras(arguments: list[str]) -> int:
    """Install further extras for the tests; tests of missing packages are skipped."""
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    unknown = sorted(set(arguments) - set(known))
    if unknown:  # pip would only warn
        print(f"there is no extra {', '.join(unknown)}. Choose among: {', '.join(known)}.", file=sys.stderr)
        return 2
    prepare(frozenset({"test", *arguments}))
    return 0


class Verb(NamedTuple):
    run: Callable[[list[str]], int]
    extras: frozenset[str]
    help: str


VERBS = {
    "demo": Verb(demo, frozenset({"cli"}), "compare classifiers on the built-in example and write report.html"),
    "test": Verb(test, frozenset({"test"}), "run the tests; arguments go to pytest"),
    "install": Verb(install_extras, frozenset(), "install further extras for the tests: install torch-tests"),
    "check": Verb(check, frozenset({"check"}), "lint, formatting and types; arguments are paths"),
    "build": Verb(build, frozenset({"build"}), "build the wheel and import it in a fresh environment"),
    "bench": Verb(bench, frozenset({"bench"}), "time the library and its peers; arguments are problems and options"),
    "gates": Verb(gates, frozenset({"bench"}), "compare results and operation counts with the recorded ones"),
    "fuzz": Verb(fuzz, frozenset({"test"}), "random trials that must not fail: fuzz models --number 300"),
    "reproduce": Verb(
        reproduce, frozenset({"plot", "frames"}), "reproduce a paper's table, such as: reproduce melda-table2"
    ),
}


def usage() -> str:
    lines = [f"  {name:9} {verb.help}" for name, verb in VERBS.items()]
    return "\n".join(["usage: python dev.py VERB [arguments]", "", *lines])


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage())
        return 0 if arguments else 2
    name, *rest = arguments
    if name not in VERBS:
        print(f"dev.py has no verb {name!r}.\n\n{usage()}", file=sys.stderr)
        return 2
    try:
        prepare(VERBS[name].extras)
        return VERBS[name].run(rest)
    except subprocess.CalledProcessError as error:
        print(f"dev.py could not install what `{name}` needs; see the output of pip above.", file=sys.stderr)
        return error.returncode
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
