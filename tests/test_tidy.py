"""Style as a test, with ratchets: what is counted here may only get better.

Each failure names the place, the rule and what to write instead. A number that has fallen is
lowered here in the same change. Exceptions stand in the lists below, each with its reason.
"""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src"
PACKAGE = SRC / "scrubjay"

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 70
MAX_MEDIAN_LINES = 150

MOST_TYPE_IGNORES = 10
MOST_NOQA = 9
SLACK = 3
"""How far a count may lie under its ratchet before the ratchet must be lowered."""

CLOCK_ALLOWED = {
    "worker.py": "leases and retries follow the real clock, whatever clock the memory was given",
    "wiring.py": "the system clock that a memory has unless it is given one",
    "life/upkeep.py": "counts jobs, whose leases follow the real clock",
    "backends/sql/journal.py": "when a job was added, by the clock that its lease follows",
    "testing/conformance/": "leases follow the real clock",
    "interchange/archive.py": "a criterion that asks for every state needs a time and ignores it",
}
STARTING_ALLOWED = {
    "evals/bench/": "the peak memory of a process is that of a process of its own",
}
ENVIRONMENT_ALLOWED = {
    "settings.py": "the one reader of settings",
    "backends/onnx/session.py": "sets ORT_DISABLE_TELEMETRY before onnxruntime is imported",
}
ONNXRUNTIME_ALLOWED = {"backends/onnx/session.py"}
BROAD_EXCEPT_ALLOWED = {
    ("worker.py", "_work"): "whatever a job does, the worker must outlive it and give it back",
    ("backends/sqlite/connection.py", "_as_errors_of"): "a signal must leave no caller waiting",
    ("backends/sqlite/connection.py", "_run"): "rolls back, hands the error to every waiting call",
    ("backends/sqlite/connection.py", "_run_one"): "one caller's error must not fail the others",
    ("backends/sqlite/connection.py", "begin_reading"): "closes and raises again",
    ("backends/sqlite/migrate.py", "migrate"): "rolls back and raises again",
    ("backends/onnx/embedder.py", "_load_tokenizer"): "the tokenizer raises bare Exceptions",
    ("testing/conformance/_base.py", "run"): "a thread's error is handed to the test",
    ("index/embedding.py", "load"): "the opener may be a stranger's; reading by words goes on",
    ("index/embedding.py", "_ask"): "the embedder may be a stranger's; it becomes ModelUnavailable",
}
DEAD_FUNCTIONS_ALLOWED: dict[str, str] = {
    "backends/postgres/vectors_wire.py:dump": "psycopg calls it",
}
"""`file:name` of public functions that nothing in src uses, with the reason to keep them."""

LATE = ("numpy", "onnxruntime", "tokenizers", "pydantic", "httpx", "rich", "onnx", "typer",
        "numkong", "Stemmer", "rjieba", "opencc", "sqlite3", "psycopg")  # fmt: skip
"""What `import scrubjay` must not import."""


# -- what there is -----------------------------------------------------------------------------


@cache
def tracked() -> tuple[Path, ...]:
    """Every file that is, or is about to be, under version control."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if listed.returncode == 0 and listed.stdout:
        found = {ROOT / name for name in listed.stdout.split("\0") if name}
    else:  # an unpacked archive
        found = {p for part in ("src", "tests", "docs") for p in (ROOT / part).rglob("*")}
        found |= set(ROOT.glob("*.*"))
    return tuple(sorted(p for p in found if p.is_file() and "__pycache__" not in p.parts))


@cache
def sources() -> tuple[Path, ...]:
    return tuple(p for p in tracked() if p.suffix == ".py" and p.is_relative_to(PACKAGE))


@cache
def python_files() -> tuple[Path, ...]:
    return tuple(p for p in tracked() if p.suffix == ".py")


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), str(path))


def name(path: Path) -> str:
    base = PACKAGE if path.is_relative_to(PACKAGE) else ROOT
    return path.relative_to(base).as_posix()


def report(problems: list[str], what_to_do: str) -> None:
    assert not problems, "\n".join([*sorted(problems), f"-> {what_to_do}"])


Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(path: Path) -> Iterator[Function]:
    for node in ast.walk(tree(path)):
        if isinstance(node, Function):
            yield node


def inside(path: Path, wanted: type[ast.AST]) -> Iterator[tuple[str, ast.AST]]:
    """(name of the innermost function around it or "", node) of each node of that type."""

    def walk(node: ast.AST, around: str) -> Iterator[tuple[str, ast.AST]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, wanted):
                yield around, child
            yield from walk(child, child.name if isinstance(child, Function) else around)

    return walk(tree(path), "")


def dotted(node: ast.AST) -> str:
    """`a.b.c` of a name or attribute, else ""."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        left = dotted(node.value)
        return f"{left}.{node.attr}" if left else ""
    return ""


# -- size --------------------------------------------------------------------------------------


def test_no_file_is_too_long() -> None:
    sizes = {name(p): len(p.read_text("utf-8").splitlines()) for p in python_files()}
    report(
        [f"{n} has {lines} lines" for n, lines in sizes.items() if lines > MAX_FILE_LINES],
        f"split it by concern; at most {MAX_FILE_LINES} lines a file",
    )


def test_the_usual_file_is_short() -> None:
    median = statistics.median(len(p.read_text("utf-8").splitlines()) for p in sources())
    assert median <= MAX_MEDIAN_LINES, f"the median file of src has {median} lines; split some"


def length(function: Function) -> int:
    """Lines of a function without its docstring, which is welcome to be long."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function, clean=False) is not None and first.end_lineno is not None:
        lines -= first.end_lineno - first.lineno + 1
    return lines


def test_no_function_is_too_long() -> None:
    report(
        [
            f"{name(p)}:{f.lineno} {f.name} has {length(f)} lines"
            for p in python_files()
            for f in functions(p)
            if length(f) > MAX_FUNCTION_LINES
        ],
        f"take a step out of it; at most {MAX_FUNCTION_LINES} lines, docstring not counted",
    )


# -- what is written differently here ----------------------------------------------------------

_SURFACES = {"surfaces/": "a surface is where a program ends and where its words appear"}
_DEMO = {"demo/__main__.py": "a program of its own"}
BANNED = (
    # (pattern of the called name, files and folders where it is right, what to write instead)
    (r"print", {}, "`console.print` of rich, in a surface; src itself says nothing"),
    (r"time\.(time|time_ns)|time_ns", CLOCK_ALLOWED, "the `clock` in `Parts`"),
    (r"(datetime|date)\.(now|utcnow|today)", CLOCK_ALLOWED, "the `clock` in `Parts`"),
    (r"os\.(getenv|putenv|environ\..*)", ENVIRONMENT_ALLOWED, "a field of `settings.Settings`"),
    (r"(pickle|marshal|shelve)\..*", {}, "JSON, or the arrays of `index.segments`"),
    (r"eval|exec|compile", {}, "a table of functions"),
    (r"breakpoint|pdb\..*", {}, "a test"),
    (r"logging\.(basicConfig|info|debug|warning|error)", {}, "a note in the result, or an error"),
    (r"sys\.exit|exit|quit", {**_SURFACES, **_DEMO}, "a `ScrubjayError`"),
    (r"input", _SURFACES, "an option of the command line, so that scripts can give it"),
    (r"subprocess\..*|os\.(system|popen)", STARTING_ALLOWED, "a library; src starts nothing"),
    (r"tempfile\.mktemp", {}, "`tempfile.mkdtemp` or `TemporaryDirectory`"),
)


def test_banned_calls() -> None:
    found = []
    for path in sources():
        for _, node in inside(path, ast.Call):
            assert isinstance(node, ast.Call)
            called = dotted(node.func)
            for pattern, allowed, instead in BANNED:
                if re.fullmatch(pattern, called) and not name(path).startswith(tuple(allowed)):
                    found.append(f"{name(path)}:{node.lineno} {called}(): write {instead}")
    report(found, "or add the file to the list in tests/test_tidy.py, with the reason")


def test_only_settings_reads_the_environment() -> None:
    found = [
        f"{name(path)}:{getattr(node, 'lineno', 0)} os.environ"
        for path in sources()
        if name(path) not in ENVIRONMENT_ALLOWED
        for _, node in inside(path, ast.Attribute)
        if dotted(node) == "os.environ"
    ]
    report(found, "add a field to `settings.Settings` and pass its value down")


def test_onnxruntime_is_imported_in_one_place() -> None:
    """Its wheel reports to its maker unless a variable is set before the first import."""
    found = [
        f"{name(path)}:{getattr(node, 'lineno', 0)}"
        for path in python_files()
        if name(path) not in ONNXRUNTIME_ALLOWED
        for node in ast.walk(tree(path))
        if "onnxruntime" in imported_roots(node)
    ]
    report(found, "call `backends.onnx.session.load_onnxruntime`, which turns telemetry off first")


def imported_roots(node: ast.AST) -> set[str]:
    """The top packages that a statement or call imports."""
    if isinstance(node, ast.Import):
        return {alias.name.split(".")[0] for alias in node.names}
    if isinstance(node, ast.ImportFrom) and node.module:
        return {node.module.split(".")[0]}
    if isinstance(node, ast.Call) and dotted(node.func) in (
        "import_module", "importlib.import_module", "__import__", "pytest.importorskip"
    ):  # fmt: skip
        first = node.args[0] if node.args else None
        if isinstance(first, ast.Constant):
            return {str(first.value).split(".")[0]}
    return set()


def is_broad(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(k is None or dotted(k) in ("Exception", "BaseException") for k in kinds)


def test_broad_excepts_are_listed() -> None:
    places = Counter(
        (name(path), around)
        for path in sources()
        for around, node in inside(path, ast.ExceptHandler)
        if isinstance(node, ast.ExceptHandler) and is_broad(node)
    )
    report(
        [f"{file}: {function}" for file, function in places if (file, function)
         not in BROAD_EXCEPT_ALLOWED],
        "name the errors that can come, or list the place here with its reason",
    )  # fmt: skip
    gone = [f"{file}: {function}" for file, function in BROAD_EXCEPT_ALLOWED
            if (file, function) not in places]  # fmt: skip
    report(gone, "these are gone: take them off the list in tests/test_tidy.py")


@pytest.mark.parametrize(
    ("mark", "most"), [("type: ignore", MOST_TYPE_IGNORES), ("noqa", MOST_NOQA)]
)
def test_exceptions_to_the_tools_only_fall(mark: str, most: int) -> None:
    comment = re.compile(rf"#\s*{mark}\b")
    found = {name(p): len(comment.findall(p.read_text("utf-8"))) for p in sources()}
    total = sum(found.values())
    where = ", ".join(f"{file} {n}" for file, n in sorted(found.items()) if n)
    assert total <= most, f"{total} `# {mark}` in src, at most {most}: {where}"
    assert total >= most - SLACK, f"only {total} `# {mark}` are left: lower the number to that"


def test_every_module_says_what_it_is() -> None:
    silent = [name(p) for p in python_files()
              if p.read_text("utf-8").strip() and not ast.get_docstring(tree(p))]  # fmt: skip
    report(silent, "open the file with its contract: what it does, in a line or three")


# -- nothing dead ------------------------------------------------------------------------------


def module_of(path: Path) -> str:
    parts = list(path.relative_to(SRC).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def entry_points() -> frozenset[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return frozenset(v.split(":")[0] for v in project.get("scripts", {}).values())


def named_modules(path: Path) -> set[str]:
    """Every module that a file imports, at any depth, or names in a string."""
    found: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and str(node.value).startswith("scrubjay."):
            found.add(str(node.value))
    return found


def test_no_module_is_dead() -> None:
    named: set[str] = set(entry_points())
    for path in sources():
        named |= named_modules(path) - {module_of(path)}
    parents = {m for used in named for m in (used, *(used[:i] for i in dots_of(used)))}
    dead = [
        name(p)
        for p in sources()
        if module_of(p) not in parents
        and p.name != "__main__.py"
        # `testing` is for people who write a backend; `scrubjay` itself is the front door.
        and not module_of(p).startswith("scrubjay.testing")
        and module_of(p) != "scrubjay"
    ]
    report(dead, "nothing imports it: use it or delete it")


def dots_of(module: str) -> Iterator[int]:
    return (i for i, c in enumerate(module) if c == ".")


_PASSIVE = {"property", "staticmethod", "classmethod", "cache", "lru_cache", "functools.cache",
            "functools.lru_cache", "contextlib.contextmanager", "contextmanager",
            "abstractmethod"}  # fmt: skip
"""Decorators that do not put a function to use by themselves."""


def public_functions(path: Path) -> Iterator[Function]:
    """Functions and methods that others may call, protocols and overrides of libraries apart."""
    for node in ast.walk(tree(path)):
        if not isinstance(node, (ast.Module, ast.ClassDef)):
            continue
        bases = [dotted(b) for b in node.bases] if isinstance(node, ast.ClassDef) else []
        if "Protocol" in bases or any(b.startswith(("pydantic", "BaseSettings")) for b in bases):
            continue
        for child in node.body:
            if not isinstance(child, Function) or child.name.startswith("_"):
                continue
            decorators = {dotted(d.func if isinstance(d, ast.Call) else d)
                          for d in child.decorator_list}  # fmt: skip
            if decorators <= _PASSIVE:
                yield child


def test_no_function_is_dead() -> None:
    used: Counter[str] = Counter()
    for path in sources():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Name):
                used[node.id] += 1
            elif isinstance(node, ast.Attribute):
                used[node.attr] += 1
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                used[node.value] += 1
            elif isinstance(node, ast.alias) and node.asname:
                used[node.name] += 1
    used.update(promised_names())
    dead = [
        f"{name(path)}:{function.name}"
        for path in sources()
        if not name(path).startswith("testing/")
        for function in public_functions(path)
        if not used[function.name] and f"{name(path)}:{function.name}" not in DEAD_FUNCTIONS_ALLOWED
    ]
    report(dead, "nothing in src uses it: delete it, or list it here with the reason to keep it")


def promised_names() -> set[str]:
    """What users call: the verbs, and the properties of the values that they get."""
    public = ("memory.py", "keeper.py", "model.py", "read/pack.py", "life/upkeep.py", "errors.py")
    return {
        child.name
        for path in sources()
        if name(path) in public
        for node in tree(path).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        for child in node.body
        if isinstance(child, Function)
    }


# -- nothing of the workplace, nothing of a registry -------------------------------------------

_HOSTS = (
    r"[p]ypi\.(org|python)", r"[p]ythonhosted\.", r"[r]egistry\.npmjs", r"[h]uggingface\.co",
    r"[h]f-mirror\.", r"[p]roxy\.golang", r"[c]rates\.io", r"[a]naconda\.org",
    r"--(extra-)?[i]ndex-url", r"[P]IP_INDEX_URL",
)  # fmt: skip
_WORKPLACE = (
    r"(?<![\w./])/[w]ork/", r"\.\./[s]hared\b", r"\b[s]hared/(data|cases|hooks|[A-Za-z]+\.md)",
    r"\b[i]ssues (show|list|close|note)\b", r"\b[i]ssue #?\d+ of\b", r"\b[p]art \d of \d\b",
    r"\b[D]ESIGN\.md", r"\b[e]ngines\.md", r"\b[a]nchors\.md", r"(?<![\w-])[m]odels\.md",
    r"\b(?i:[s]ub-?agents?)\b", r"\b(?i:the|this|a|my) [h]elper session", r"\b[s]ession was cut",
    r"\b(?i:the|my|your) [b]rief (says|asks|names)", r"/[r]oot/", r"/home/\w+/", r"\.[l]ibrary/",
)  # fmt: skip


@pytest.mark.parametrize(
    ("patterns", "what_to_do"),
    [
        (_HOSTS, "registries are the user's choice: let pip and the hub libraries find them"),
        (_WORKPLACE, "files speak of the project alone"),
    ],
    ids=["registries", "workplace"],
)
def test_no_file_names(patterns: tuple[str, ...], what_to_do: str) -> None:
    pattern = re.compile("|".join(patterns))
    found = []
    for path in tracked():
        try:
            lines = path.read_text("utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(lines, 1):
            match = pattern.search(line)
            if match:
                found.append(f"{path.relative_to(ROOT)}:{number} {match[0]!r}")
    report(found, what_to_do)


# -- a quick import ----------------------------------------------------------------------------


def run_python(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout


def test_import_is_light() -> None:
    code = f"import sys, scrubjay; print(*(m for m in {LATE!r} if m in sys.modules))"
    heavy = run_python(code).split()
    assert not heavy, f"`import scrubjay` imports {heavy}; import them where they are used"


def test_import_takes_less_than_numpy_alone() -> None:
    """A ratio, since machines differ: what Scrubjay adds to Python against what numpy adds."""

    def seconds(code: str) -> float:
        times = []
        for _ in range(5):
            began = time.perf_counter()
            run_python(code)
            times.append(time.perf_counter() - began)
        return min(times)

    bare = seconds("pass")
    ours, numpys = seconds("import scrubjay") - bare, seconds("import numpy") - bare
    assert ours < 0.9 * numpys, f"import scrubjay {ours * 1e3:.0f} ms, numpy {numpys * 1e3:.0f} ms"
