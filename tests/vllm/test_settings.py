"""kv_connector_extra_config: what is wrong is said before anything starts."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
from baton_vllm.settings import Settings

GOOD = {"agents": "127.0.0.1:9400", "url": "http://127.0.0.1:8100"}


def test_the_defaults() -> None:
    settings = Settings.read(GOOD)
    assert settings.agents == ("127.0.0.1:9400",)
    assert settings.provider == "auto"
    assert settings.key() == b""


def test_several_proxies() -> None:
    settings = Settings.read({**GOOD, "agents": ["a:1", "b:2"]})
    assert settings.agents == ("a:1", "b:2")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"agents": None}, "agents must be"),
        ({"agents": []}, "agents must be"),
        ({"agents": "nowhere"}, "agents must be"),
        ({"url": "127.0.0.1:8100"}, "url must be"),
        ({"url": None}, "url must be"),
        ({"lease_s": "long"}, "lease_s must be"),
        ({"lease_s": 0}, "lease_s must be"),
        ({"pull_timeout_s": True}, "pull_timeout_s must be"),
        ({"max_handoffs": 0}, "max_handoffs must be"),
        ({"provider": 3}, "provider must be"),
        ({"agnets": "x"}, "'agnets' is unknown"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        Settings.read({**GOOD, **change})


def test_the_key_is_the_first_line(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "key"
    file.touch(mode=0o600)
    file.write_text("  secret \nmore\n")
    assert Settings.read({**GOOD, "key_file": str(file)}).key() == b"secret"
    file.write_text("\n")
    with pytest.raises(ValueError, match="first line is empty"):
        Settings.read({**GOOD, "key_file": str(file)}).key()
    file.chmod(0o644)
    with pytest.raises(ValueError, match="chmod 640"):
        Settings.read({**GOOD, "key_file": str(file)}).key()
