"""What the scripts in deploy/ say when something is missing."""
import os
import subprocess

import pytest

import cluster as c


@pytest.mark.parametrize("connector", ["baton", "nixl"])
def test_without_an_installation_vllm_says_what_is_missing_and_what_brings_it(tmp_path, connector):
    """Not a traceback of vLLM, minutes later."""
    def run(*argv):
        env = dict(os.environ, BATON_VLLM_VENV=str(tmp_path / "venv"), BATON_VLLM_MODELS=str(tmp_path / "models"))
        done = subprocess.run([c.ROOT / "deploy/vllm.sh", *argv], env=env, capture_output=True, text=True, timeout=60 * c.PATIENCE)
        assert (done.returncode, done.stdout) == (2, ""), done
        return done.stderr

    said = run("--no-install", "--connector", connector)
    assert "no vLLM in %s; deploy/vllm.sh install brings it" % (tmp_path / "venv") in said
    assert "no vLLM in " in run("models")
    # An environment with vLLM in it, and nothing else.
    module = tmp_path / "venv/lib/vllm"
    module.mkdir(parents=True)
    (module / "__init__.py").touch()
    python = tmp_path / "venv/bin/python"
    python.parent.mkdir()
    python.write_text('#!/bin/sh\nPYTHONPATH=%s exec python3 -S "$@"\n' % module.parent)
    python.chmod(0o755)
    said = run("--no-install", "--connector", connector)
    assert "no vLLM" not in said and "no model smollm2" in said
    assert ("no baton_vllm" if connector == "baton" else "no nixl") in said
