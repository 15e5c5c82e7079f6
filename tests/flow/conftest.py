"""Fixtures of the flow tests: `clusters` makes and ends clusters of real processes."""
import signal

import pytest

import cluster as c


def pytest_configure():
    """Who ends the tests by TERM ends their processes too: fixtures are torn down."""
    signal.signal(signal.SIGTERM, lambda *_: pytest.exit("ended by TERM", 143))


@pytest.fixture
def clusters(tmp_path):
    """clusters(prefill=…, decode=…, …) starts a cluster; all end with the test."""
    made = []

    def make(start=True, **options):
        folder = tmp_path / ("cluster-%d" % len(made))
        folder.mkdir()
        one = c.Cluster(folder, **options)
        made.append(one)
        return one.start() if start else one

    yield make
    for one in made:
        one.end()


@pytest.fixture(scope="module")
def module_clusters(tmp_path_factory):
    """As clusters, for tests of a module that share one."""
    made = []

    def make(**options):
        one = c.Cluster(tmp_path_factory.mktemp("cluster"), **options)
        made.append(one)
        return one.start()

    yield make
    for one in made:
        one.end()


@pytest.fixture
def lone(tmp_path):
    """lone(flags) starts an engine without proxy or agent: the truth."""
    made = []

    def make(*flags):
        folder = tmp_path / ("lone-%d" % len(made))
        folder.mkdir()
        owner = c.Cluster(folder, connector="none", prefill=0, decode=0)
        engine = owner.add(c.Engine(owner, "both", flags))
        made.append(owner)
        engine.start().wait_ready()
        return engine

    yield make
    for owner in made:
        owner.end()


@pytest.fixture
def stock(tmp_path):
    """stock(prefill=…, decode=…, …): a proxy before stub engines."""
    import stub
    made = []

    def make(start=True, **options):
        folder = tmp_path / ("stock-%d" % len(made))
        folder.mkdir()
        made.append(stub.StockCluster(folder, **options))
        return made[-1].start() if start else made[-1]

    yield make
    for one in made:
        one.end()
