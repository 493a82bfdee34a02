"""dev.py without installing anything: verbs, the stamp file, and passed-through arguments."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

DEV = Path(__file__).resolve().parents[1] / "dev.py"


@pytest.fixture
def dev(tmp_path, monkeypatch):
    """A fresh dev.py whose environment is an empty folder and which installs nothing."""
    specification = importlib.util.spec_from_file_location("dev", DEV)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    monkeypatch.setattr(module, "ENVIRONMENT", tmp_path)
    monkeypatch.setattr(module, "STAMP", tmp_path / "installed-extras.json")
    monkeypatch.setattr(module, "make_environment", lambda environment: None)
    module.installed = []
    monkeypatch.setattr(module, "install", lambda environment, *what: module.installed.append(what[-1]))
    return module


def test_arguments_and_exit_code_go_through(dev, monkeypatch):
    received = []

    def verb(arguments):
        received.extend(arguments)
        return 7

    monkeypatch.setitem(dev.VERBS, "made-up", dev.Verb(verb, frozenset({"test"}), "nothing"))
    assert dev.main(["made-up", "-k", "path"]) == 7
    assert received == ["-k", "path"]


def test_installs_once_and_keeps_earlier_extras(dev):
    dev.prepare(frozenset({"test"}))
    dev.prepare(frozenset({"test"}))
    dev.prepare(frozenset({"check"}))
    assert dev.installed == [f"{dev.ROOT}[test]", f"{dev.ROOT}[check,test]"]


def test_named_extras_are_installed_with_those_of_the_tests(dev):
    assert dev.main(["install", "gpu"]) == 0
    assert dev.installed == [f"{dev.ROOT}[gpu,test]"]


def test_unknown_extras_are_errors(dev, capsys):
    assert dev.main(["install", "gpus"]) == 2
    assert "there is no extra gpus. Choose among: plot, frames, cli" in capsys.readouterr().err
    assert dev.installed == []


def test_installs_again_when_the_declaration_changed(dev):
    dev.STAMP.write_text(json.dumps({"test": "the fingerprint of an older pyproject.toml"}))
    dev.prepare(frozenset({"test"}))
    assert len(dev.installed) == 1


def test_failed_installation_returns_the_code_of_pip(dev, monkeypatch, capsys):
    def fail(environment, *what):
        raise subprocess.CalledProcessError(3, "pip")

    monkeypatch.setattr(dev, "install", fail)
    assert dev.main(["test"]) == 3
    assert "could not install what `test` needs" in capsys.readouterr().err
    assert not dev.STAMP.exists()


def test_unknown_verb_lists_the_known_ones(dev, capsys):
    assert dev.main(["tset"]) == 2
    message = capsys.readouterr().err
    assert "no verb 'tset'" in message
    assert all(verb in message for verb in ["demo", "test", "check", "build", "bench", "reproduce"])


def test_help_succeeds_and_a_missing_verb_is_an_error(dev, capsys):
    assert dev.main(["--help"]) == 0
    assert dev.main([]) == 2
    assert capsys.readouterr().out.count("usage:") == 2


def test_demo_runs_the_command_line(dev, monkeypatch):
    commands = []
    monkeypatch.setattr(dev, "run", lambda *command, **variables: commands.append(command) or 0)
    assert dev.main(["demo", "-o", "elsewhere.html"]) == 0
    assert commands == [("-m", "annealed", "demo", "-o", "elsewhere.html")]
    assert dev.installed == [f"{dev.ROOT}[cli]"]


def test_reproduce_runs_the_experiments(dev, monkeypatch):
    commands = []
    monkeypatch.setattr(dev, "run", lambda *command, **variables: commands.append(command) or 0)
    assert dev.main(["reproduce", "melda-table2", "--resume"]) == 0
    assert commands == [("-m", "experiments", "melda-table2", "--resume")]
    assert dev.installed == [f"{dev.ROOT}[frames,plot]"]


@pytest.mark.parametrize(("codes", "code"), [((0, 0, 0), 0), ((0, 1, 0), 1), ((0, 0, -9), -9), ((2, 0, -9), 2)])
def test_check_runs_every_command_and_fails_if_any_fails(dev, monkeypatch, codes, code):
    remaining = list(codes)
    monkeypatch.setattr(dev, "run", lambda *command, **variables: remaining.pop(0))
    assert dev.main(["check"]) == code
    assert remaining == []


SLOW_TO_END = """
import pathlib, signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs ignore SIGINT by default
try:
    pathlib.Path("began").touch()
    time.sleep(30)
except KeyboardInterrupt:
    time.sleep(0.6)
    pathlib.Path("ended").touch()
"""

INTERRUPTED_VERB = """
import importlib.util, pathlib, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
specification = importlib.util.spec_from_file_location("dev", sys.argv[1])
dev = importlib.util.module_from_spec(specification)
specification.loader.exec_module(dev)
dev.ROOT, dev.prepare, dev.python_of = pathlib.Path.cwd(), lambda extras: None, lambda environment: sys.executable
dev.VERBS["made-up"] = dev.Verb(lambda arguments: dev.run("-c", sys.argv[2]) or dev.run("-c", ""), frozenset(), "")
sys.exit(dev.main(["made-up"]))
"""


@pytest.mark.skipif(os.name == "nt", reason="Ctrl-C reaches process groups differently on Windows")
def test_ctrl_c_waits_until_the_command_has_ended(tmp_path):
    command = [sys.executable, "-c", INTERRUPTED_VERB, str(DEV), SLOW_TO_END]
    process = subprocess.Popen(command, cwd=tmp_path, start_new_session=True, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "began").exists():
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, errors = process.communicate(timeout=30)
    assert (tmp_path / "ended").exists()
    assert (process.returncode, errors) == (130, "")
