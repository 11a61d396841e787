"""A fingerprint of a container's settings: equal specs are one launch, however often it is asked for."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, fields

from spark_tui.domain.presets.container_spec import LABEL_SPEC_HASH, ContainerSpec
from spark_tui.domain.presets.docker_run import canonical

_DIGITS = 16


def spec_hash(spec: ContainerSpec) -> str:
    """16 hex digits that depend on the settings alone.

    Left out: the label that carries the fingerprint itself, the order of labels, and fields at their defaults, so
    that a field which a later version adds does not change the fingerprint of what runs already.
    """
    spec = canonical(spec)
    empty = ContainerSpec(name="", image="")
    given = {f.name: value for f in fields(spec) if (value := getattr(spec, f.name)) != getattr(empty, f.name)}
    given["labels"] = sorted(pair for pair in spec.labels if pair[0] != LABEL_SPEC_HASH)
    text = json.dumps(given, sort_keys=True, default=asdict)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
