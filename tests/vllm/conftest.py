"""What the tests share: one zygote, and pairs of engines that last as long as
the tests of their model follow each other."""

from __future__ import annotations

import pathlib
import random
import signal
from collections.abc import Callable, Iterator
from typing import Any

import cluster
import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full", action="store_true", help="every test at its full size"
    )


def pytest_configure() -> None:
    """Who ends the tests by TERM ends engines and proxies too."""
    signal.signal(signal.SIGTERM, lambda *_: pytest.exit("ended by TERM", 143))


@pytest.fixture(scope="session")
def is_full(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--full"))


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("vllm")


@pytest.fixture(scope="session")
def zygote(folder: pathlib.Path) -> Iterator[cluster.Zygote]:
    process = cluster.Zygote(folder)
    yield process
    process.close()


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Fresh each run; the seed is shown when a test fails."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    return random.Random(seed)


class Truth:
    """What a lone engine answers."""

    def __init__(self, zygote: cluster.Zygote, folder: pathlib.Path) -> None:
        self._zygote, self._folder = zygote, folder
        self._engine: cluster.Engine | None = None

    def of(
        self, model: str, flags: list[str], dtype: str = cluster.EXACT
    ) -> cluster.Engine:
        engine = self._engine
        wanted = (model, flags, dtype)
        if engine is not None and wanted == (engine.model, engine.flags, engine.dtype):
            return engine
        self.close()
        log = self._folder / f"alone-{model}.log"
        engine = cluster.Engine(
            "alone", model, cluster.hold_port(), log, flags=flags,
            kv_bytes=512 << 20, dtype=dtype,
        )  # fmt: skip
        engine.start(self._zygote)
        engine.wait_ready()
        self._engine = engine
        return engine

    def close(self) -> None:
        if self._engine is not None:
            self._engine.stop()
            self._engine = None


@pytest.fixture(scope="session")
def truth(zygote: cluster.Zygote, folder: pathlib.Path) -> Iterator[Truth]:
    truth = Truth(zygote, folder)
    yield truth
    truth.close()


PairMaker = Callable[..., cluster.Pair]


@pytest.fixture(scope="module")
def make_pair(
    zygote: cluster.Zygote, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PairMaker]:
    """One pair at a time: a second one of other options ends the first."""
    current: list[tuple[Any, cluster.Pair]] = []

    def end() -> None:
        while current:
            current.pop()[1].stop()

    def make(model: str = "tiny-llama", **options: Any) -> cluster.Pair:
        key = (model, repr(sorted(options.items())))
        if current and current[0][0] == key:
            pair = current[0][1]
            if all(cluster.is_alive(engine.pid) for engine in pair.engines if engine.pid):
                return pair
        end()
        pair = cluster.Pair(tmp_path_factory.mktemp(model), model, **options)
        current.append((key, pair))
        try:
            pair.start(zygote)
        except BaseException:
            end()
            raise
        return pair

    yield make
    end()
