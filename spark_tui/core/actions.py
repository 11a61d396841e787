"""The one registry of what a person can do. Keys, footer, help, palette, README and read-only mode come from here."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from spark_tui.domain.keymap import Keymap
from spark_tui.domain.settings import suggestion


class Scope(StrEnum):
    """Where an action applies."""

    GLOBAL = "everywhere"
    HOME = "Home"
    MODELS = "Models"
    PRESETS = "Presets"
    LOGS = "Logs"
    METRICS = "Metrics"
    CHAT = "Chat"
    BENCH = "Bench"
    DOCTOR = "Doctor"
    MEMORY = "Memory"


@dataclass(frozen=True, slots=True)
class Action:
    """One action. `default_keys` are Textual key names, the first one is shown. `dangerous` ones are absent in
    read-only mode. `cli` is the command that does the same. `footer` says whether the footer shows it."""

    id: str
    default_keys: tuple[str, ...]
    label: str
    help: str
    scope: Scope = Scope.GLOBAL
    dangerous: bool = False
    footer: bool = True
    cli: str = ""

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that it has in this context: the person's own, else the default ones."""
        return _own_keys.get().get(self.id, self.default_keys)


_own_keys: ContextVar[Mapping[str, tuple[str, ...]]] = ContextVar("own_keys", default=MappingProxyType({}))


def use_keys(own: Mapping[str, tuple[str, ...]]) -> None:
    """In this context, and in the tasks that it starts, these actions have these keys. An app calls it before it
    runs: two apps of one process, each in a task of its own, do not see each other's keys."""
    _own_keys.set(MappingProxyType(dict(own)))


ACTIONS: tuple[Action, ...] = (
    # everywhere
    Action("show_home", ("1",), "Home", "Engines, boot timeline, events", footer=False, cli="status"),
    Action("show_models", ("2",), "Models", "The store: look, fetch, verify, delete", footer=False, cli="models list"),
    Action("show_presets", ("3",), "Presets", "Recipes: look, check, launch", footer=False, cli="presets list"),
    Action("show_logs", ("4",), "Logs", "The selected engine's log, full screen", footer=False, cli="logs NAME -f"),
    Action("show_metrics", ("5",), "Metrics", "The selected engine over time", footer=False, cli="metrics NAME"),
    Action("show_chat", ("6",), "Chat", "Talk to the selected engine", footer=False, cli="chat NAME"),
    Action("show_bench", ("7",), "Bench", "How fast is it: measure, compare", footer=False, cli="results list"),
    Action("show_doctor", ("8",), "Doctor", "What is wrong with this box", footer=False, cli="doctor"),
    Action("help", ("question_mark",), "Help", "Keys of this screen"),
    Action("tour", ("f1",), "Tour", "The screen in one look", footer=False),
    Action("command_palette", ("ctrl+p",), "Palette", "Everything, by name"),
    Action(
        "drop_cache",
        ("D",),
        "Free cache",
        "Free the page cache: CUDA counts it as used",
        dangerous=True,
        footer=False,
        cli="drop-caches",
    ),
    Action("open_memory", ("m",), "Memory", "Who holds the pool; guard, history", footer=False, cli="memory"),
    Action("open_hosts", ("H",), "Other hosts", "Open another host, over ssh", footer=False, cli="hosts"),
    Action("suspend_process", ("ctrl+z",), "Suspend", "To the shell for a while; fg comes back", footer=False),
    Action("quit", ("q", "ctrl+q"), "Quit", "Leave; containers keep running", footer=False),
    # home
    Action("launch", ("l",), "Launch", "Choose a preset and launch it", Scope.HOME, dangerous=True, cli="up PRESET"),
    Action("stop", ("x",), "Stop", "Stop the selected engine", Scope.HOME, dangerous=True, cli="down NAME"),
    Action("restart", ("r",), "Restart", "Restart the selected engine", Scope.HOME, dangerous=True, cli="restart NAME"),
    Action("cancel_job", ("c",), "Cancel", "Cancel the launch that is under way", Scope.HOME, dangerous=True),
    Action(
        "remove",
        ("delete",),
        "Remove",
        "Remove an ended engine and its log",
        Scope.HOME,
        dangerous=True,
        footer=False,
        cli="down NAME --remove",
    ),
    Action(
        "apply_remedy",
        ("a",),
        "Apply remedy",
        "Launch again with the change that the cause proposes",
        Scope.HOME,
        dangerous=True,
        footer=False,
        cli="explain NAME",
    ),
    Action(
        "secure_engine",
        ("K",),
        "Make a key",
        "Restart an engine that is open to the network with an API key",
        Scope.HOME,
        dangerous=True,
        footer=False,
        cli="secure NAME",
    ),
    Action("open_logs", ("enter",), "Logs", "Open the selected engine's log", Scope.HOME, cli="logs NAME"),
    # models
    Action("search_hub", ("s",), "Search Hub", "Search the Hub, look, fetch", Scope.MODELS, cli="models search"),
    Action(
        "get_model",
        ("g",),
        "Get",
        "Go on with its download, fetch what lacks or is damaged, or what is new",
        Scope.MODELS,
        dangerous=True,
        cli="models pull MODEL",
    ),
    Action(
        "verify_model", ("v",), "Verify", "Compare every file with the Hub's hash", Scope.MODELS, cli="models verify"
    ),
    Action("open_uses", ("enter",), "Its presets", "The presets that use it; else its checkpoint", Scope.MODELS),
    Action("filter_models", ("slash",), "Filter", "Filter the list", Scope.MODELS),
    Action(
        "pause_download",
        ("p",),
        "Pause",
        "Pause the download, or go on with it",
        Scope.MODELS,
        dangerous=True,
        cli="models pause DOWNLOAD",
    ),
    Action(
        "cancel_work",
        ("c",),
        "Cancel",
        "End the download, or the verification",
        Scope.MODELS,
        cli="models cancel DOWNLOAD",
    ),
    Action(
        "delete_model",
        ("delete",),
        "Delete",
        "Delete it, a revision, or leftovers: what comes free is shown first",
        Scope.MODELS,
        dangerous=True,
        cli="models rm MODEL",
    ),
    Action("next_model_page", ("right",), "Page", "The next page: overview, files, inspect", Scope.MODELS),
    Action("previous_model_page", ("left",), "Page back", "The page before", Scope.MODELS, footer=False),
    Action("copy_fix", ("u",), "Copy fix", "Copy the command that mends it", Scope.MODELS, footer=False),
    Action(
        "limit_downloads",
        ("b",),
        "Bandwidth",
        "A cap for all downloads together",
        Scope.MODELS,
        dangerous=True,
        footer=False,
        cli="models downloads --limit 50m",
    ),
    Action("reload_models", ("ctrl+r",), "Reload", "Look through the store again", Scope.MODELS, footer=False),
    # presets
    Action(
        "launch_preset",
        ("l", "enter"),
        "Launch",
        "Set the options and launch",
        Scope.PRESETS,
        dangerous=True,
        cli="up PRESET",
    ),
    Action(
        "copy_command", ("y",), "Copy command", "Copy the docker run command", Scope.PRESETS, cli="up PRESET --dry-run"
    ),
    Action("filter_presets", ("slash",), "Filter", "Filter the list", Scope.PRESETS),
    Action(
        "import_recipes",
        ("i",),
        "Import",
        "Import other tools' recipe files",
        Scope.PRESETS,
        dangerous=True,
        footer=False,
        cli="presets import PATH",
    ),
    Action(
        "apply_fixes",
        ("a",),
        "Apply fixes",
        "Launch with the changes that the checks propose",
        Scope.PRESETS,
        dangerous=True,
        footer=False,
        cli="presets check PRESET",
    ),
    Action("next_page", ("right",), "Page", "The next page: overview, command, checks, fit", Scope.PRESETS),
    Action("previous_page", ("left",), "Page back", "The page before", Scope.PRESETS, footer=False),
    Action("reload_presets", ("ctrl+r",), "Reload", "Read the preset folders again", Scope.PRESETS, footer=False),
    # doctor
    Action("examine_again", ("r",), "Look again", "Examine the box again", Scope.DOCTOR, cli="doctor"),
    Action(
        "try_gpu_container",
        ("t",),
        "GPU container",
        "Start a container with the GPU, to see whether that works",
        Scope.DOCTOR,
        dangerous=True,
        cli="doctor --gpu-container",
    ),
    Action("copy_remedy", ("y",), "Copy remedy", "Copy what to do", Scope.DOCTOR),
    # logs
    Action("follow", ("f", "end"), "Follow", "Follow the end of the log", Scope.LOGS, cli="logs NAME -f"),
    Action("search", ("slash",), "Search", "Search; Next and Previous jump between matches", Scope.LOGS),
    Action("next_match", ("n",), "Next", "Next match; without a search the next finding", Scope.LOGS, footer=False),
    Action(
        "previous_match",
        ("p", "N"),
        "Previous",
        "Previous match; without a search the previous finding",
        Scope.LOGS,
        footer=False,
    ),
    Action("filter_log", ("ampersand",), "Filter", "Show matching lines only", Scope.LOGS),
    Action("level", ("v",), "Level", "All levels, warnings, errors", Scope.LOGS),
    Action("wrap", ("w",), "Wrap", "Wrap long lines", Scope.LOGS),
    Action("copy_line", ("y",), "Copy", "Copy the line, or the marked lines", Scope.LOGS),
    Action("copy_traceback", ("Y",), "Traceback", "Copy the line's traceback, whole", Scope.LOGS, footer=False),
    Action("dump", ("s",), "Save", "Save the log to a file", Scope.LOGS, cli="logs NAME > FILE"),
    Action(
        "apply_log_remedy",
        ("a",),
        "Apply remedy",
        "Launch again with the change that the cause or a finding proposes",
        Scope.LOGS,
        dangerous=True,
        footer=False,
        cli="explain NAME",
    ),
    Action("next_engine", ("right_square_bracket",), "Next engine", "Next engine", Scope.LOGS, footer=False),
    # metrics
    Action("cursor_back", ("left",), "Read", "Read the values at a time: a cell earlier", Scope.METRICS),
    Action("cursor_on", ("right",), "Read on", "A cell later; beyond the last one is now", Scope.METRICS, footer=False),
    Action("cursor_far_back", ("shift+left",), "Far back", "Ten cells earlier", Scope.METRICS, footer=False),
    Action("cursor_far_on", ("shift+right",), "Far on", "Ten cells later", Scope.METRICS, footer=False),
    Action("longer_window", ("minus",), "Longer", "More time: 5 m, 15 m, 1 h, 6 h", Scope.METRICS),
    Action("shorter_window", ("plus", "equals_sign"), "Shorter", "Less time", Scope.METRICS),
    Action("next_graphs", ("pagedown", "down"), "Page", "The next page of graphs", Scope.METRICS),
    Action("previous_graphs", ("pageup", "up"), "Page back", "The page before", Scope.METRICS, footer=False),
    Action("pause_metrics", ("space", "p"), "Pause", "Hold the picture still; measuring goes on", Scope.METRICS),
    Action("latency_table", ("t",), "Table", "p50, p95 and p99 with the error of their bucket", Scope.METRICS),
    Action("copy_values", ("y",), "Copy", "Copy the values at the cursor, or the latest ones", Scope.METRICS),
    Action("graph_kind", ("g",), "Marks", "Draw with dots, blocks, or plain characters", Scope.METRICS, footer=False),
    Action("metrics_of_next", ("right_square_bracket",), "Next engine", "Next engine", Scope.METRICS, footer=False),
    # bench
    Action(
        "start_bench",
        ("b",),
        "Measure",
        "Measure an engine, or two in turn",
        Scope.BENCH,
        dangerous=True,
        cli="bench NAME",
    ),
    Action("cancel_bench", ("c",), "Cancel", "End the measurement; what it has is kept", Scope.BENCH),
    Action(
        "mark_run",
        ("space",),
        "Mark",
        "Mark two runs, A and B, side by side",
        Scope.BENCH,
        cli="results compare A B",
    ),
    Action("export_runs", ("e",), "Export", "Runs to a file: .md, .csv or .json", Scope.BENCH, cli="results export"),
    Action("copy_run", ("y",), "Copy", "Copy the run as Markdown; both marked ones", Scope.BENCH),
    Action("filter_runs", ("slash",), "Filter", "Filter the list", Scope.BENCH),
    Action(
        "delete_run",
        ("delete",),
        "Delete",
        "Delete the run; both marked ones",
        Scope.BENCH,
        dangerous=True,
        footer=False,
        cli="results rm",
    ),
    Action("next_bench_page", ("right",), "Page", "The next page: run, conditions, compare, A/B", Scope.BENCH),
    Action("previous_bench_page", ("left",), "Page back", "The page before", Scope.BENCH, footer=False),
    Action(
        "open_run", ("enter",), "Read", "Into the page, to scroll; on an empty list: measure", Scope.BENCH, footer=False
    ),
    # memory
    Action("leave_memory", ("escape",), "Back", "Back to where it was opened", Scope.MEMORY),
    Action("memory_window", ("w",), "Window", "A longer history: 15 min, 1 h, 6 h", Scope.MEMORY),
    # chat
    Action("stop_answer", ("escape",), "Stop", "Stop the answer; else leave the prompt, or the screen", Scope.CHAT),
    Action("write", ("enter",), "Write", "From the transcript to the prompt", Scope.CHAT),
    Action("regenerate", ("ctrl+g",), "Again", "Ask the last question again", Scope.CHAT),
    Action("new_chat", ("ctrl+n",), "New", "Start a new conversation; once more brings the last one back", Scope.CHAT),
    Action("toggle_reasoning", ("ctrl+t",), "Reasoning", "Show or fold the reasoning", Scope.CHAT),
    Action("copy_answer", ("ctrl+y",), "Copy", "Copy the last answer", Scope.CHAT),
    Action("chat_settings", ("ctrl+o",), "Settings", "System prompt, sampling, reasoning, tools", Scope.CHAT),
    Action(
        "open_conversation",
        ("ctrl+l",),
        "List",
        "Conversations: open, search, rename, delete",
        Scope.CHAT,
        cli="conversations list",
    ),
    Action("edit_question", ("f2",), "Edit", "Edit the last question and ask it anew", Scope.CHAT, footer=False),
    Action("fork_chat", ("f3",), "Fork", "Go on in a copy; this conversation stays", Scope.CHAT, footer=False),
    Action("go_on", ("f4",), "Go on", "Let a stopped or cut answer go on", Scope.CHAT, footer=False),
    Action(
        "compare", ("f5",), "Compare", "The last question to another engine, side by side", Scope.CHAT, footer=False
    ),
    Action("copy_code", ("f6",), "Code", "Copy a code block; again: the one before it", Scope.CHAT, footer=False),
    Action("make_room", ("f7",), "Room", "Leave older exchanges out of what is sent", Scope.CHAT, footer=False),
    Action("token_chances", ("ctrl+r",), "Tokens", "How sure the model was of each token", Scope.CHAT, footer=False),
    Action("attach", ("f8",), "Attach", "A picture or a sound with the next question", Scope.CHAT, footer=False),
    Action(
        "save_chat",
        ("f9",),
        "Save",
        "Write the conversation to a file, .md or .json",
        Scope.CHAT,
        footer=False,
        cli="conversations export ID",
    ),
    Action(
        "follow_answer",
        ("ctrl+end",),
        "Follow",
        "To the end of the transcript, and follow it",
        Scope.CHAT,
        footer=False,
    ),
    Action(
        "older_lines", ("pageup",), "Page up", "Scroll the transcript, from the prompt too", Scope.CHAT, footer=False
    ),
    Action(
        "newer_lines",
        ("pagedown",),
        "Page down",
        "Scroll the transcript, from the prompt too",
        Scope.CHAT,
        footer=False,
    ),
    Action(
        "talk_to_next",
        ("right_square_bracket",),
        "Next engine",
        "Talk to the next engine that serves",
        Scope.CHAT,
        footer=False,
    ),
)


def allowed(actions: tuple[Action, ...], *, read_only: bool) -> tuple[Action, ...]:
    """The actions that this mode offers."""
    return tuple(action for action in actions if not (read_only and action.dangerous))


def of_scope(*scopes: Scope) -> tuple[Action, ...]:
    """The actions of these scopes, in registry order."""
    return tuple(action for action in ACTIONS if action.scope in scopes)


def action(id_: str) -> Action:
    """The action of that id; KeyError when there is none."""
    for found in ACTIONS:
        if found.id == id_:
            return found
    raise KeyError(id_)


DANGEROUS = frozenset(found.id for found in ACTIONS if found.dangerous)


def check_keymap(keymap: Keymap) -> None:
    """Raises ValueError for an action that does not exist, and for a new key that another action of the place has."""
    own = dict(keymap)
    known = {action.id for action in ACTIONS}
    for id_ in own:
        if id_ not in known:
            near = suggestion(id_, known)
            hint = f"did you mean {near}?" if near else "see the ids with: spark-tui config keys"
            raise ValueError(f"must name actions; there is no action {id_}: {hint}")
    for action in ACTIONS:
        for other in ACTIONS:
            if action.id in own and other is not action and _meet(action, other):
                _check_clash(action, own[action.id], other, own.get(other.id, other.default_keys))


def _meet(action: Action, other: Action) -> bool:
    return action.scope is other.scope or Scope.GLOBAL in (action.scope, other.scope)


def _check_clash(action: Action, keys: tuple[str, ...], other: Action, others: tuple[str, ...]) -> None:
    for key in keys:
        if key in others and key not in action.default_keys:
            raise ValueError(
                f"must give each key one meaning; {key} would be {action.id} and {other.id} "
                f"({other.scope.value}): give {other.id} another key too"
            )


_SHOWN: Final = {
    "question_mark": "?",
    "slash": "/",
    "ampersand": "&",
    "escape": "Esc",
    "enter": "Enter",
    "delete": "Del",
    "right_square_bracket": "]",
    "end": "End",
    "right": "Right",
    "equals_sign": "=",
    "up": "Up",
    "down": "Down",
    "shift+left": "S-Left",
    "shift+right": "S-Right",
    "left": "Left",
    "space": "Space",
    "minus": "-",
    "plus": "+",
    "pagedown": "PgDn",
    "pageup": "PgUp",
}
_SCREENS: Final = ("home", "models", "presets", "logs", "metrics", "chat", "bench", "doctor")


def shown(key: str) -> str:
    """How a key is written on screen: `ctrl+p` -> `^p`, `question_mark` -> `?`, `f2` -> `F2`."""
    if key.startswith("ctrl+"):
        rest = key.removeprefix("ctrl+")
        return "^" + _SHOWN.get(rest, rest)
    if key[:1] == "f" and key[1:].isdigit():
        return key.upper()
    return _SHOWN.get(key, key)


def key_of(id_: str) -> str:
    """The key that an action has now, as it is written: `^p`. KeyError for what is no action."""
    return shown(action(id_).keys[0])


def screen_keys() -> str:
    """The keys that change the screen: `1-8`, or each of them where a person has other ones."""
    keys = [key_of(f"show_{screen}") for screen in _SCREENS]
    return "1-8" if keys == list("12345678") else " ".join(keys)
