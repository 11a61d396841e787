"""A container spec as `docker run` text and back, and what people write."""

from __future__ import annotations

import shlex
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from spark_tui.base.engine.container import (
    LABEL_PRESET,
    LABEL_SPEC_HASH,
    ContainerSpec,
    EnvVar,
    Gpus,
    Mount,
    PublishedPort,
    RestartPolicy,
    Ulimit,
)
from spark_tui.base.engine.docker_run import (
    canonical,
    read_argv,
    render_argv,
    render_text,
    spec_hash,
    split_text,
)
from spark_tui.base.errors import UsageError
from tests.cases import all_cases


def parse_text(text: str, home: str = "") -> ContainerSpec:
    return read_argv(split_text(text, home=home))[0]


# --- every spec there can be --------------------------------------------------------------------------

# Anything but NUL (no command can carry it) and half surrogate pairs (no file or socket can).
words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
filled = words.filter(bool)
keys = filled.filter(lambda text: "=" not in text)
paths = words.map(lambda text: "/" + text)
ids = st.from_regex(r"[A-Za-z0-9-]{1,12}", fullmatch=True)
ports = st.builds(
    PublishedPort,
    container_port=st.integers(1, 65535),
    host_port=st.integers(0, 65535),
    host_ip=st.sampled_from(("", "127.0.0.1", "0.0.0.0", "::1", "::", "fe80::1%eth0", "192.168.1.7")),
    protocol=st.sampled_from(("tcp", "udp", "sctp")),
)
gpus = st.builds(Gpus, count=st.integers(-1, 9)) | st.builds(
    Gpus, device_ids=st.lists(ids, min_size=1, max_size=3).map(tuple)
)
restarts = st.builds(RestartPolicy, name=st.sampled_from(("no", "always", "unless-stopped"))) | st.builds(
    RestartPolicy, name=st.just("on-failure"), maximum_retries=st.integers(0, 99)
)


def some(strategy: st.SearchStrategy) -> st.SearchStrategy:
    return st.lists(strategy, max_size=3).map(tuple)


specs = st.builds(
    ContainerSpec,
    name=words,
    image=words,
    command=some(words),
    entrypoint=st.none() | some(filled),
    env=some(st.builds(EnvVar, name=keys, value=words)),
    env_files=some(paths),
    mounts=some(st.builds(Mount, source=paths, target=paths, read_only=st.booleans())),
    ports=some(ports),
    gpus=st.none() | gpus,
    ipc=words,
    shm_size=st.integers(0, 2**40),
    network=words,
    user=words,
    ulimits=some(
        st.builds(
            Ulimit,
            name=st.sampled_from(("memlock", "stack", "nofile")),
            soft=st.integers(-1, 2**31),
            hard=st.integers(-1, 2**31),
        )
    ),
    restart=restarts,
    labels=some(st.tuples(keys, words)),
    oom_score_adj=st.integers(-1000, 1000),
    cap_add=some(words),
    devices=some(words),
    security_opt=some(words),
    privileged=st.booleans(),
    init=st.booleans(),
)


@settings(deadline=None)
@given(specs)
def test_text_split_and_read_gives_the_same_spec_with_the_same_fingerprint(spec: ContainerSpec) -> None:
    argv, kept = split_text(render_text(spec)), canonical(spec)
    assert argv == render_argv(spec)
    assert read_argv(argv)[0] == kept == canonical(kept)
    # Only the split of a long entrypoint is not kept.
    assert (kept.entrypoint or ()) + kept.command == (spec.entrypoint or ()) + spec.command
    assert (kept.entrypoint is None, kept.entrypoint == ()) == (spec.entrypoint is None, spec.entrypoint == ())
    assert replace(kept, entrypoint=None, command=()) == replace(spec, entrypoint=None, command=())
    labelled = replace(spec, labels=(*spec.labels, (LABEL_SPEC_HASH, "0123456789abcdef")))
    assert spec_hash(labelled) == spec_hash(spec) == spec_hash(kept)
    assert spec_hash(replace(spec, labels=spec.labels[::-1])) == spec_hash(spec)
    assert spec_hash(replace(spec, shm_size=spec.shm_size + 1)) != spec_hash(spec)


@settings(max_examples=40, deadline=None)
@given(specs)
def test_a_real_shell_reads_the_text_as_the_same_words(spec: ContainerSpec) -> None:
    script = "docker() { printf '%s\\0' docker \"$@\"; }\n" + render_text(spec)
    done = subprocess.run(["sh"], input=script.encode(), capture_output=True, check=True)
    assert tuple(done.stdout.decode().split("\0")[:-1]) == render_argv(spec)


def test_fingerprints_stay_the_same_from_version_to_version() -> None:
    spec = ContainerSpec("qwen", "vllm/vllm-openai:v1", ("--port", "8000"), gpus=Gpus(), labels=((LABEL_PRESET, "q"),))
    assert spec_hash(spec) == "3093dca812e2d813"


@settings(deadline=None)
@given(st.text())
def test_no_text_breaks_the_parser(text: str) -> None:
    for attempt in (text, f"docker run {text}"):
        try:
            parse_text(attempt)
        except UsageError as error:
            assert error.summary and error.remedy


# --- what it looks like -------------------------------------------------------------------------------

QWEN = ContainerSpec(
    name="qwen36-35b",
    image="vllm/vllm-openai:cu130-nightly",
    command=("nvidia/Qwen3.6-35B-A3B-NVFP4", "--max-model-len", "262144", "--enable-auto-tool-choice"),
    env=(EnvVar("VLLM_NOTE", "it's $HOME"),),
    env_files=("/home/nv/.config/spark-tui/keys/qwen36-35b.env",),
    mounts=(Mount("/home/nv/vllm", "/models", read_only=True), Mount("/data/a:b,c", "/extra")),
    ports=(PublishedPort(8000, 8000),),
    gpus=Gpus(),
    shm_size=10 * 1024**3,
    ulimits=(Ulimit("memlock", -1, -1),),
    restart=RestartPolicy("on-failure", 3),
    labels=((LABEL_PRESET, "qwen36-35b"),),
    oom_score_adj=800,
)

QWEN_TEXT = """\
docker run -d \\
  --name qwen36-35b \\
  --gpus all \\
  -p 127.0.0.1:8000:8000 \\
  --shm-size 10g \\
  --ulimit memlock=-1:-1 \\
  --restart on-failure:3 \\
  -v /home/nv/vllm:/models:ro \\
  --mount 'type=bind,"source=/data/a:b,c",target=/extra' \\
  --env-file /home/nv/.config/spark-tui/keys/qwen36-35b.env \\
  -e 'VLLM_NOTE=it'"'"'s $HOME' \\
  --label io.spark-tui.preset=qwen36-35b \\
  --oom-score-adj 800 \\
  vllm/vllm-openai:cu130-nightly \\
  nvidia/Qwen3.6-35B-A3B-NVFP4 \\
  --max-model-len 262144 \\
  --enable-auto-tool-choice"""


def test_text_has_one_option_a_line_and_is_plain_shlex_once_lines_are_joined() -> None:
    assert render_text(QWEN) == QWEN_TEXT
    assert shlex.split(QWEN_TEXT.replace("\\\n", "")) == list(render_argv(QWEN))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"entrypoint": ()}, ["--entrypoint", ""]),
        ({"entrypoint": ("vllm",)}, ["--entrypoint", "vllm"]),
        ({"gpus": Gpus(2)}, ["--gpus", "2"]),
        ({"gpus": Gpus(device_ids=("0",))}, ["--gpus", "device=0"]),
        ({"gpus": Gpus(device_ids=("0", "1"))}, ["--gpus", '"device=0,1"']),
        ({"ports": (PublishedPort(8000, 0),)}, ["-p", "127.0.0.1::8000"]),
        ({"ports": (PublishedPort(8000, 0, ""),)}, ["-p", "8000"]),
        ({"ports": (PublishedPort(8000, 80, "::1", "udp"),)}, ["-p", "[::1]:80:8000/udp"]),
        ({"image": "-rf"}, ["--", "-rf"]),
    ],
)  # fmt: skip
def test_docker_spelling(changed: dict, words: list[str]) -> None:
    argv = list(render_argv(replace(ContainerSpec("", "image"), **changed)))
    assert argv[3 : 3 + len(words)] == words


def test_a_nul_is_refused() -> None:
    with pytest.raises(UsageError, match="NUL"):
        render_text(ContainerSpec("x", "image", env=(EnvVar("A", "a\0b"),)))


# --- what people write --------------------------------------------------------------------------------


@all_cases(
    ("written", "field", "value"),
    [
        ("-p 8000:8000", "ports", (PublishedPort(8000, 8000, ""),)),
        ("-p8000:80", "ports", (PublishedPort(80, 8000, ""),)),
        ("--publish=127.0.0.1:8000:8000/TCP", "ports", (PublishedPort(8000, 8000),)),
        ("-p [::1]:1:2", "ports", (PublishedPort(2, 1, "::1"),)),
        ("-p ::8000", "ports", (PublishedPort(8000, 0, ""),)),
        ("--gpus all", "gpus", Gpus()),
        ("--gpus=1", "gpus", Gpus(1)),
        ("""--gpus '"device=0,1"'""", "gpus", Gpus(device_ids=("0", "1"))),
        ("--gpus device=GPU-3a1f", "gpus", Gpus(device_ids=("GPU-3a1f",))),
        ("--shm-size 16gb", "shm_size", 16 * 1024**3),
        ("--shm-size=10.24g", "shm_size", int(10.24 * 1024**3)),
        ("-e A=B", "env", (EnvVar("A", "B"),)),
        ("--env A=B=C", "env", (EnvVar("A", "B=C"),)),
        ('-e "A=b c"', "env", (EnvVar("A", "b c"),)),
        ("-v /a:/b:ro", "mounts", (Mount("/a", "/b", True),)),
        ("-v /a:/b:rw", "mounts", (Mount("/a", "/b"),)),
        ("-v ~/.cache/huggingface:/root/.cache/huggingface", "mounts", (Mount("/home/nv/.cache/huggingface",
            "/root/.cache/huggingface"),)),
        ("--mount type=bind,src=/a,dst=/b,ro", "mounts", (Mount("/a", "/b", True),)),
        ("--ulimit memlock=-1", "ulimits", (Ulimit("memlock", -1, -1),)),
        ("--ulimit nofile=1024:4096", "ulimits", (Ulimit("nofile", 1024, 4096),)),
        ("--restart unless-stopped", "restart", RestartPolicy("unless-stopped")),
        ("--restart on-failure", "restart", RestartPolicy("on-failure")),
        ("--entrypoint ''", "entrypoint", ()),
        ("--entrypoint=", "entrypoint", ()),
        ("--entrypoint /bin/bash", "entrypoint", ("/bin/bash",)),
        ("--net=host", "network", "host"),
        ("--ipc=host", "ipc", "host"),
        ("-l a=b --label c", "labels", (("a", "b"), ("c", ""))),
        ("-u 1000:1000", "user", "1000:1000"),
        ("--privileged", "privileged", True),
        ("--init=false", "init", False),
        ("-d --init", "init", True),
        ("--name a --name b", "name", "b"),
        ("--cap-add IPC_LOCK --cap-add=SYS_NICE", "cap_add", ("IPC_LOCK", "SYS_NICE")),
        ("--device /dev/infiniband", "devices", ("/dev/infiniband",)),
        ("--oom-score-adj -500", "oom_score_adj", -500),
    ],
)  # fmt: skip
def test_what_people_write_is_read(written: str, field: str, value: object) -> None:
    spec = parse_text(f"docker run {written} image serve --port 1", home="/home/nv")
    assert getattr(spec, field) == value
    assert (spec.image, spec.command) == ("image", ("serve", "--port", "1"))


def test_a_pasted_guide_is_read() -> None:
    spec = parse_text(
        "$ sudo docker run -d --gpus all \\  \r\n".replace("\\  ", "\\")
        + '    --env "NAME=a \\\n b" \\\n    --ipc=host \\\n    vllm/vllm-openai:latest \\\n    --model Qwen/Qwen3-8B\n'
    )
    assert spec == ContainerSpec(
        "",
        "vllm/vllm-openai:latest",
        ("--model", "Qwen/Qwen3-8B"),
        env=(EnvVar("NAME", "a  b"),),
        gpus=Gpus(),
        ipc="host",
    )


@all_cases(
    ("text", "says"),
    [
        ("", "not a docker run"),
        ("podman run x", "not a docker run"),
        ("docker ps", "not a docker run"),
        ("docker run -d", "no image"),
        ("docker run --runtime runc x", "--runtime runc is not supported here"),
        ("docker run --platform linux/amd64 x", "built for arm64"),
        ("docker run --memory 100g x", "does not bound what the GPU takes"),
        ("docker run --hostname h x", "--hostname is not supported here"),
        ("docker run --name", "--name has no value"),
        ("docker run -p http x", "not a published port"),
        ("docker run -p 8000-8010:8000-8010 x", "ranges are not read"),
        ("docker run -p 70000:80 x", "no such port"),
        ("docker run -p 1:2:3:4 x", "not a published port"),
        ("docker run --gpus some x", "--gpus some is not understood"),
        ("docker run --gpus 'all,capabilities=utility' x", "not understood"),
        ("docker run --shm-size big x", "not a size"),
        ("docker run --ulimit memlock x", "--ulimit memlock is not understood"),
        ("docker run --restart sometimes x", "not a restart policy"),
        ("docker run --restart always:3 x", "not a restart policy"),
        ("docker run --oom-score-adj 5000 x", "-1000 to 1000"),
        ("docker run -e MODEL x", "--env-file"),
        ("docker run -e =1 x", "no name"),
        ("docker run -v cache:/root/.cache x", "named volume"),
        ("docker run -v ./a:/b x", "not an absolute path"),
        ("docker run -v ~/a:/b x", "uses the shell: ~"),
        ("docker run -v /a:b x", "not absolute"),
        ("docker run -v /a x", "not a bind mount"),
        ("docker run -v /a:/b:z,q x", "not a bind mount"),
        ("docker run --mount type=volume,source=a,target=/b x", "not a plain bind mount"),
        ("docker run --init=maybe x", "--init is a switch"),
        ('docker run -e "HF_TOKEN=$HF_TOKEN" x', "uses the shell: $"),
        ("docker run x | tee log", "uses the shell: |"),
        ("docker pull x\ndocker run x", "uses the shell: several lines"),
        ("docker run 'x", "never closed"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_refused_by_name(text: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_text(text)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("--rm", "an ended container is kept"),
        ("-it", "without one its log keeps"),
        ("--interactive --tty", "without one its log keeps"),
        ("--runtime=nvidia", "--runtime nvidia is --gpus all here"),
        ("--pull always", "a present one is used"),
        ("--log-opt max-size=50m", "does without it"),
        ("--health-cmd 'curl -f http://localhost:8000/health'", "does without it"),
        ("--platform linux/arm64", "what a Spark is"),
    ],
)
def test_what_a_server_does_without_is_left_out_with_the_reason(written: str, says: str) -> None:
    spec, left_out = read_argv(split_text(f"docker run {written} --gpus all image serve"))
    assert spec == ContainerSpec("", "image", ("serve",), gpus=Gpus())
    assert len(left_out) == 1
    assert says in left_out[0]


def test_the_gpu_runtime_asks_for_the_gpu_and_a_key_is_known_by_its_name_alone() -> None:
    assert parse_text("docker run --runtime nvidia x").gpus == Gpus()
    assert parse_text("docker run --gpus 1 --runtime nvidia x").gpus == Gpus(1)
    assert parse_text("docker run -e HF_TOKEN x").env == (EnvVar("HF_TOKEN", "$HF_TOKEN"),)
