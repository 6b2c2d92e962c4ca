"""Settings in, a working memory out. The only file that names backends."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from scrubjay import settings as settings_module
from scrubjay.aio import AsyncMemoryCore
from scrubjay.backends.sqlite import FILE_NAME, SqliteStore
from scrubjay.errors import InvalidInput, SettingsError
from scrubjay.guard.crypt import PlainCodec
from scrubjay.index.cache import IndexCache
from scrubjay.index.embedding import Embedding
from scrubjay.index.large import LargePartitions
from scrubjay.interchange.moving import Moved, move
from scrubjay.keeper import Parts
from scrubjay.memory import MemoryCore
from scrubjay.model import RecallPolicy
from scrubjay.ports import Background, Clock, Embedder, Store
from scrubjay.read.options import make_policy
from scrubjay.settings import Settings
from scrubjay.text.instants import zone
from scrubjay.worker import NoWorker, Worker

if TYPE_CHECKING:
    from scrubjay.backends.postgres import PostgresStore

    Progress = Callable[[int, int, str], None]


def system_clock() -> datetime:
    """The present."""
    return datetime.now(UTC)


def open_model(settings: Settings, progress: Progress | None = None) -> Embedder:
    """The embedding model that the settings name. Raises `ModelError`."""
    if settings.embedder == "openai":
        from scrubjay.backends.openai import OpenAIEmbedder

        return OpenAIEmbedder(
            base_url=settings.openai_base_url,
            api_key=settings.openai_api_key.get_secret_value(),
            model=settings.openai_embedding_model,
        )
    from scrubjay.backends.onnx import open_embedder

    return open_embedder(
        settings.embedder,
        cache_dir=settings.model_dir,
        threads=settings.model_threads,
        progress=progress,
    )


def _assemble(
    location: str | Path | None,
    settings: Settings | None,
    clock: Clock | None,
    embedder: Embedder | str | None,
    progress: Progress | None,
) -> Parts:
    chosen = settings_module.load() if settings is None else settings
    if not isinstance(chosen, Settings):
        raise InvalidInput(f"settings is a Settings, not {type(chosen).__name__}")
    if clock is not None and not callable(clock):
        raise InvalidInput("clock is a function that returns an aware time")
    if not isinstance(embedder, (str, Embedder, type(None))):
        raise InvalidInput(
            f"embedder is a name or has model_id, dimension, embed and close, as "
            f"{type(embedder).__name__} has not"
        )
    if isinstance(embedder, str):
        chosen = chosen.model_copy(update={"embedder": embedder})
        embedder = None
    place = chosen.path if location is None else location
    with _as_settings_error("recall"):  # before the store is opened, which nobody would close
        policy = make_policy(RecallPolicy(), dict(chosen.recall))
    default_zone = zone(chosen.timezone)
    store, large = _open_parts(place, chosen)
    opener: Callable[[], Embedder] | None = None
    if embedder is not None:
        given = embedder
        opener = lambda: given  # noqa: E731
    elif chosen.embedder != "none":
        opener = lambda: open_model(chosen, progress)  # noqa: E731
    embedding = Embedding(opener, store, wait_s=chosen.model_wait_s)
    background: Background = NoWorker(store)
    if chosen.background:
        background = Worker(store, embedding, large)
    return Parts(
        store=store,
        cache=IndexCache(store, chosen.cache_mb * 1_048_576, large),
        embedding=embedding,
        large=large,
        background=background,
        clock=clock or system_clock,
        zone=default_zone,
        tenant=chosen.tenant,
        policy=policy,
    )


@contextlib.contextmanager
def _as_settings_error(name: str) -> Iterator[None]:
    try:
        yield
    except InvalidInput as exc:
        raise SettingsError(f"{name}: {exc}") from exc


def open_store(location: str | Path, settings: Settings, *, create: bool = True) -> Store:
    """The store in a directory, or at a postgresql:// URL."""
    if isinstance(location, str) and "://" in location:
        return _open_postgres(location, settings, create=create)
    folder = _directory(location)
    if not create and not (folder / FILE_NAME).exists():
        raise InvalidInput(f"there is no store in {folder}; name the one to be copied")
    return SqliteStore(
        folder,
        PlainCodec(),
        synchronous=settings.synchronous,
        write_timeout_s=settings.write_timeout_s,
    )


def _open_parts(location: str | Path, settings: Settings) -> tuple[Store, LargePartitions | None]:
    """The store, with the index of its large partitions if the settings ask for one."""
    if settings.vector_index == "none":
        return open_store(location, settings), None
    if not isinstance(location, str) or "://" not in location:
        raise SettingsError(
            "vector_index: pgvector works in the PostgreSQL database that holds the store, and a "
            "directory has none; leave it at none, or name a postgresql:// URL as the path"
        )
    store = _open_postgres(location, settings, create=True)
    return store, LargePartitions(store, store.vector_index(), settings.vector_index_from)


def _open_postgres(url: str, settings: Settings, *, create: bool) -> PostgresStore:
    scheme = url.split("://", 1)[0]
    if scheme not in ("postgresql", "postgres"):
        raise InvalidInput(
            f"there is no store for {scheme[:20]}:// URLs; pass a directory or a postgresql:// URL"
        )
    try:
        from scrubjay.backends.postgres import PostgresStore
    except ImportError as exc:
        raise SettingsError(
            f"a PostgreSQL store needs what `pip install 'scrubjay[postgres]'` brings ({exc.name} "
            "is not installed)"
        ) from exc
    return PostgresStore(
        url,
        PlainCodec(),
        synchronous=settings.synchronous,
        write_timeout_s=settings.write_timeout_s,
        statement_timeout_s=settings.statement_timeout_s,
        pool_size=settings.pool_size,
        create=create,
    )


def _directory(location: str | Path) -> Path:
    """The store's directory."""
    if not isinstance(location, (str, Path)) or not str(location).strip():
        raise InvalidInput("the path of a memory is a directory, as a string or Path")
    if re.match(r"[a-z]+:/", str(location)):
        raise InvalidInput("the URL of a store is a string; a Path has lost a part of it")
    path = Path(location).expanduser()
    if path.is_file():
        raise InvalidInput(
            f"{path} is a file; pass the directory that holds, or will hold, the store"
        )
    return path


class Memory(MemoryCore):
    """A memory in a directory of its own, or in a PostgreSQL database, made if it is not there.

    `path` is the directory or a `postgresql://` URL, and defaults to the setting of that name;
    `settings` defaults to the environment and `scrubjay.toml`. `clock` returns the present and
    lets tests replay the past. `embedder` is an object (see `ports.Embedder`) or a name that goes
    before the setting; `"none"` searches by words alone. `progress(done, total, what)` hears of
    the first preparation of a model.

    Raises `InvalidInput`, `SettingsError`, `SchemaTooNew`, `StoreDamaged`, `StoreReadOnly`,
    `StoreUnavailable`.

    >>> import tempfile
    >>> with Memory(tempfile.mkdtemp(), embedder="none") as memory:
    ...     _ = memory.add("我对花生过敏。", user_id="lin")
    ...     print(memory.context("花生", user_id="lin").hits[0].content)
    我对花生过敏。
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        settings: Settings | None = None,
        clock: Clock | None = None,
        embedder: Embedder | str | None = None,
        progress: Progress | None = None,
    ) -> None:
        super().__init__(_assemble(path, settings, clock, embedder, progress))


def migrate(
    source: str | Path,
    target: str | Path,
    *,
    settings: Settings | None = None,
    progress: Progress | None = None,
) -> Moved:
    """Copy a whole store into another of any kind: a directory, or a `postgresql://` URL.

    Turns, memories with all their versions, vectors, idempotency keys, and what was forgotten. The
    source is only read; the target is empty, or holds part of an earlier call's work, which is
    taken up. Every user's rows and vectors are then compared by their checksums. Raises
    `InvalidInput` for a target that is another store's or a source that is not there, and
    `StoreDamaged` when someone wrote meanwhile and the two differ.

    >>> import tempfile
    >>> here, there = tempfile.mkdtemp(), tempfile.mkdtemp()
    >>> with Memory(here, embedder="none") as memory:
    ...     _ = memory.add("The spare key is with Mira.", user_id="ada")
    >>> migrate(here, there).memories
    1
    """
    chosen = settings_module.load() if settings is None else settings
    with (
        contextlib.closing(open_store(source, chosen, create=False)) as here,
        contextlib.closing(open_store(target, chosen)) as there,
    ):
        return move(here, there, system_clock(), progress)


class AsyncMemory(AsyncMemoryCore):
    """The same verbs as `Memory`, to be awaited; each runs in a thread.

    >>> import asyncio, tempfile
    >>> async def main() -> str:
    ...     async with AsyncMemory(tempfile.mkdtemp(), embedder="none") as memory:
    ...         await memory.add("The spare key is with Mira.", user_id="ada")
    ...         return (await memory.search("spare key", user_id="ada"))[0].content
    >>> asyncio.run(main())
    'The spare key is with Mira.'
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        settings: Settings | None = None,
        clock: Clock | None = None,
        embedder: Embedder | str | None = None,
        progress: Progress | None = None,
    ) -> None:
        super().__init__(
            Memory(path, settings=settings, clock=clock, embedder=embedder, progress=progress)
        )
