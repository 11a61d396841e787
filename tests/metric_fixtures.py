"""Real metrics pages of vLLM, and pages of other servers composed after their sources."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from spark_tui.base.engine.metrics_page import Change, MetricPage, Snapshot
from spark_tui.machine.engine_api import PageReader

FOLDER = Path(__file__).parent / "fixtures" / "metrics"
PAGES = sorted(path.stem for path in FOLDER.glob("*.txt"))

SGLANG = """\
# HELP sglang:num_running_reqs The number of running requests.
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 3.0
sglang:num_running_reqs{engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="1"} 3.0
sglang:num_queue_reqs{engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 2.0
sglang:token_usage{engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 0.25
sglang:max_total_num_tokens{engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 383872.0
sglang:gen_throughput{engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 50.5
sglang:spec_accept_length{engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 2.4
sglang:spec_accept_rate{engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 0.7
sglang:num_retracted_requests_total{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 4.0
sglang:prompt_tokens_total{engine_type="unified",model_name="m"} 1000.0
sglang:cached_tokens_total{engine_type="unified",model_name="m"} 250.0
sglang:generation_tokens_total{engine_type="unified",model_name="m"} 900.0
sglang:num_requests_total{engine_type="unified",model_name="m"} 12.0
sglang:time_to_first_token_seconds_sum{engine_type="unified",model_name="m"} 6.0
sglang:time_to_first_token_seconds_bucket{engine_type="unified",le="0.4",model_name="m"} 6.0
sglang:time_to_first_token_seconds_bucket{engine_type="unified",le="0.8",model_name="m"} 12.0
sglang:time_to_first_token_seconds_bucket{engine_type="unified",le="+Inf",model_name="m"} 12.0
sglang:time_to_first_token_seconds_count{engine_type="unified",model_name="m"} 12.0
"""
SGLANG_LIVE = """\
sglang:realtime_tokens_total{mode="prefill_compute",model_name="m",pp_rank="0",tp_rank="0"} 750.0
sglang:realtime_tokens_total{mode="prefill_cache",model_name="m",pp_rank="0",tp_rank="0"} 250.0
sglang:realtime_tokens_total{mode="decode",model_name="m",pp_rank="0",tp_rank="0"} 900.0
"""
LLAMA_CPP = """\
# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 300
llamacpp:prompt_tokens_cached_total 100
llamacpp:tokens_predicted_total 600
llamacpp:tokens_predicted_seconds_total 12.5
llamacpp:n_decode_total 640
llamacpp:requests_processing 1
llamacpp:requests_deferred 2
llamacpp:predicted_tokens_seconds 48
"""
TRTLLM = """\
trtllm_num_requests_running{engine_type="trtllm",model_name="m"} 2.0
trtllm_num_requests_waiting{engine_type="trtllm",model_name="m"} 1.0
trtllm_kv_cache_utilization{engine_type="trtllm",model_name="m"} 0.5
trtllm_kv_cache_max_blocks{engine_type="trtllm",model_name="m"} 1000.0
trtllm_kv_cache_tokens_per_block{engine_type="trtllm",model_name="m"} 32.0
trtllm_kv_cache_reused_blocks_total{engine_type="trtllm",model_name="m"} 30.0
trtllm_kv_cache_missed_blocks_total{engine_type="trtllm",model_name="m"} 10.0
trtllm_prompt_tokens_total{engine_type="trtllm",model_name="m"} 4000.0
trtllm_generation_tokens_total{engine_type="trtllm",model_name="m"} 800.0
trtllm_request_success_total{engine_type="trtllm",finished_reason="end_id",model_name="m"} 7.0
trtllm_request_error_total{engine_type="trtllm",http_code="500",model_name="m"} 1.0
trtllm_time_per_output_token_seconds_bucket{engine_type="trtllm",le="0.025",model_name="m"} 4.0
trtllm_time_per_output_token_seconds_bucket{engine_type="trtllm",le="0.05",model_name="m"} 7.0
trtllm_time_per_output_token_seconds_bucket{engine_type="trtllm",le="+Inf",model_name="m"} 7.0
trtllm_time_per_output_token_seconds_count{engine_type="trtllm",model_name="m"} 7.0
trtllm_time_per_output_token_seconds_sum{engine_type="trtllm",model_name="m"} 0.2
"""


def text(name: str) -> bytes:
    """A real page."""
    return (FOLDER / f"{name}.txt").read_bytes()


@cache
def page(name: str) -> MetricPage:
    """A real page, read."""
    return PageReader().read(text(name))


def page_of_text(body: str) -> MetricPage:
    """A composed page, read."""
    return PageReader().read(body.encode())


def between(before: MetricPage, after: MetricPage, seconds: float = 10.0) -> Change:
    """What happened from one page to a later one."""
    return Change.between(Snapshot(100.0, before), Snapshot(100.0 + seconds, after))


def vllm(**values: float) -> MetricPage:
    """A page of vLLM with these series, `generation_tokens_total=5`; what is named otherwise stays out."""
    return page_of_text(
        "".join(f'vllm:{name}{{engine="0",model_name="m"}} {value}\n' for name, value in values.items())
    )
