"""The host engine passes `EngineTests`."""

from forebay.engines.host import HostEngine
from forebay.testing import EngineTests


class TestHostEngine(EngineTests):
    def make_engine(self):
        return HostEngine()
