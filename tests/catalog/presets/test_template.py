"""Templates of sparkrun recipes: expected texts were made by sparkrun 0.4.2's own renderer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spark_tui.base.engine.runtimes import Scalar
from spark_tui.catalog.presets.model.command import MAX_CHARS, placeholders, render, render_env
from tests.cases import all_cases

VALUES: dict[str, Scalar] = {
    "model": "Qwen/Qwen3-8B",
    "port": 8000,
    "utilization": 0.85,
    "eager": True,
    "k": 3,
    "base_url": "http://localhost:{port}",
    "config": '{"method":"mtp","num_speculative_tokens":3}',
    "nested": '{"n":{k}}',
    "beside": '{"n":1} {k}',
    "nothing": None,
}


@all_cases(
    ("template", "expected"),
    [
        ("vllm serve {model} --port {port}", "vllm serve Qwen/Qwen3-8B --port 8000"),
        ("--gpu-memory-utilization {utilization}", "--gpu-memory-utilization 0.85"),
        ("--x {eager}", "--x True"),
        ("""--c '{"a":{"b":1}}'""", """--c '{"a":{"b":1}}'"""),
        ("""--c '{"n":{k}}'""", """--c '{"n":3}'"""),
        ("""--c '{"m":"mtp","n":{k},"x":{"y":[{k}]}}'""", """--c '{"m":"mtp","n":3,"x":{"y":[3]}}'"""),
        ("--c '{config}'", """--c '{"method":"mtp","num_speculative_tokens":3}'"""),
        ("{base_url}/v1", "http://localhost:8000/v1"),
        ("--c '{nested}'", """--c '{"n":{k}}'"""),
        ("{beside}", '{"n":1} 3'),
        ("""--c '{{"n":{k}}}'""", """--c '{"n":3}'"""),
        ("{{model}}", "{model}"),
        ("{}", "{}"),
        ("{ port }", "{ port }"),
        ("a } b { c", "a } b { c"),
    ],
)
def test_placeholders_are_filled_and_other_braces_stay(template: str, expected: str) -> None:
    assert render(template, VALUES).text == expected


def test_a_placeholder_without_a_value_stays_and_is_reported_by_name() -> None:
    rendered = render("serve {model} --a {nowhere} --b {nothing} --c {nowhere}", VALUES)
    assert rendered.text == "serve Qwen/Qwen3-8B --a {nowhere} --b {nothing} --c {nowhere}"
    assert rendered.missing == ("nowhere", "nothing")
    assert placeholders("""{port} {model} '{"a":1}' {port} {}""") == ("port", "model"), "once, in order; JSON is none"


def test_a_value_that_grows_by_itself_ends_and_is_reported() -> None:
    assert not render("{a}", {"a": "x{a}"}).settled
    assert not render("{a}", {"a": "{b}", "b": "{a}"}).settled


def test_values_that_multiply_each_other_are_cut_off() -> None:
    laughs: dict[str, Scalar] = {f"l{i}": f"{{l{i + 1}}}" * 50 for i in range(9)}
    rendered = render("{l0}", laughs)
    assert not rendered.settled
    assert len(rendered.text) <= 2 * MAX_CHARS
    nothing: dict[str, Scalar] = {**laughs, "l9": ""}
    assert not render("{l0}", nothing).settled


def test_a_value_that_names_itself_is_left_as_it_is() -> None:
    assert render("{a}", {"a": "{a}"}).text == "{a}"


def test_environment_values_know_config_and_launch_tokens_only() -> None:
    rendered = render_env(
        "{config.port} {launch.model_path} {model} ${HOME} {config.nix}", VALUES, {"model_path": "/models/m"}
    )
    assert rendered.text == "8000 /models/m {model} ${HOME} {config.nix}"
    assert rendered.missing == ("config.nix",)


@given(st.text(st.characters(exclude_characters="{}", exclude_categories=["Cs"])))
def test_text_without_braces_is_never_changed(text: str) -> None:
    rendered = render(text, VALUES)
    assert (rendered.text, rendered.missing, rendered.settled) == (text, (), True)


scalars = st.none() | st.integers() | st.booleans() | st.text('ab{}" :,', max_size=8)


@given(st.text("ab{}\"' :", max_size=40), st.dictionaries(st.sampled_from(["a", "b", "ab"]), scalars))
def test_any_template_with_any_values_renders(template: str, values: dict[str, Scalar]) -> None:
    rendered = render(template, values)
    assert all(values.get(key) is None for key in rendered.missing)


@given(st.text("ab \"':,[]0", max_size=30), st.integers(0, 99))
def test_json_around_a_placeholder_keeps_every_brace(text: str, number: int) -> None:
    template = '{"k":{"n":{a}}, "t": "' + text + '"}'
    assert render(template, {"a": number}).text == template.replace("{a}", str(number))
