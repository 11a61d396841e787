"""The KV cache's cut by what a start measured, for models whose layers are not understood."""

from __future__ import annotations

from spark_tui.domain.models.checkpoint import LayerKind
from spark_tui.domain.models.kv import DEFAULT_BLOCK, KvGroup, KvLayout
from spark_tui.domain.presets.fit_ask import Ask
from spark_tui.domain.presets.fit_types import Measured


def measured_layout(measured: Measured, ask: Ask) -> KvLayout | None:
    """So many bytes for each token, states and padding spread over them; None where that start tells nothing of this
    one: another dtype, or a longer context, over which states were spread more thinly."""
    size, tokens = measured.kv_cache, measured.kv_tokens
    if not size or not tokens or ask.context is None or measured.context is None or ask.context < measured.context:
        return None
    if ask.kv.cache_dtype not in ("auto", measured.cache_dtype):
        return None
    each = -(-size // tokens)
    return KvLayout(
        groups=(KvGroup(LayerKind.FULL, 1, DEFAULT_BLOCK),),
        block_bytes=each * DEFAULT_BLOCK,
        bytes_per_token=each,
        state_bytes=0,
        batched_tokens=ask.kv.batched_tokens,
        cache_dtype=measured.cache_dtype or ask.kv.cache_dtype,
    )
