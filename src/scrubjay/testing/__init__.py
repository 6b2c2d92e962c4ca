'''For people who write a backend: conformance suites, fault injection and fakes.

`scrubjay.ports` specifies; `conformance` turns each sentence of it into a test. A backend's author
subclasses the classes and brings a store::

    import pytest
    from scrubjay.testing.conformance import store as suite
    from scrubjay.testing.conformance.store import *  # noqa: F403 - nothing but the classes

    class Provides:
        @pytest.fixture
        def store(self, tmp_path):
            store = MyStore(tmp_path)
            yield store
            store.close()

        @pytest.fixture
        def reopen(self, store, tmp_path):
            """Another handle on the same data, as a second process would open it."""
            return lambda: MyStore(tmp_path)

    class TestJournal(Provides, suite.StoreJournal): ...
    class TestErase(Provides, suite.StoreErase): ...

`faults` has a store, an embedder and a clock that fail on purpose, from a seed or a script;
`fakes` an embedder without a model and an exact vector index. The conformance suite needs pytest;
nothing else of Scrubjay imports this package.

>>> from scrubjay.testing.fakes import HashEmbedder
>>> from scrubjay.testing.faults import FaultyEmbedder
>>> import scrubjay, tempfile
>>> down_once = FaultyEmbedder(HashEmbedder(), script=["outage"])
>>> with scrubjay.Memory(tempfile.mkdtemp(), embedder=HashEmbedder()) as memory:
...     _ = memory.add("The spare key is with Mira.", user_id="ada", wait=True)
...     memory.search("Who has the spare key?", user_id="ada")[0].content
'The spare key is with Mira.'
'''
