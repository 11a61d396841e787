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


_TABLE: Final = (
    # everywhere
    (Scope.GLOBAL, "show_home", "1", "Home", "Engines, boot timeline, events", "-", "status"),
    (Scope.GLOBAL, "show_models", "2", "Models", "Model store: download, verify, delete", "-", "models list"),
    (Scope.GLOBAL, "show_presets", "3", "Presets", "Recipes: check, compare, launch", "-", "presets list"),
    (Scope.GLOBAL, "show_logs", "4", "Logs", "Log of the selected engine, full screen", "-", "logs NAME -f"),
    (Scope.GLOBAL, "show_metrics", "5", "Metrics", "Metrics of the selected engine over time", "-", "metrics NAME"),
    (Scope.GLOBAL, "show_chat", "6", "Chat", "Chat with the selected engine", "-", "chat NAME"),
    (Scope.GLOBAL, "show_bench", "7", "Bench", "Benchmark and compare engines", "-", "results list"),
    (Scope.GLOBAL, "show_doctor", "8", "Doctor", "Check this machine", "-", "doctor"),
    (Scope.GLOBAL, "help", "question_mark", "Help", "Keys of this screen", "", ""),
    (Scope.GLOBAL, "tour", "f1", "Tour", "Quick tour", "-", ""),
    (Scope.GLOBAL, "command_palette", "ctrl+p", "Palette", "All commands by name", "", ""),
    (Scope.GLOBAL, "drop_cache", "D", "Free cache", "Free the page cache: CUDA counts it as used", "!-", "drop-caches"),
    (Scope.GLOBAL, "open_memory", "m", "Memory", "Memory by owner, guard, history", "-", "memory"),
    (Scope.GLOBAL, "open_hosts", "H", "Other hosts", "Open another host over ssh", "-", "hosts"),
    (Scope.GLOBAL, "suspend_process", "ctrl+z", "Suspend", "Suspend to shell (fg to return)", "-", ""),
    (Scope.GLOBAL, "quit", "q ctrl+q", "Quit", "Quit; containers keep running", "-", ""),
    # Home
    (Scope.HOME, "launch", "l", "Launch", "Choose a preset and launch it", "!", "up PRESET"),
    (Scope.HOME, "stop", "x", "Stop", "Stop the selected engine", "!", "down NAME"),
    (Scope.HOME, "restart", "r", "Restart", "Restart the selected engine", "!", "restart NAME"),
    (Scope.HOME, "cancel_job", "c", "Cancel", "Cancel the launch in progress", "!", ""),
    (Scope.HOME, "remove", "delete", "Remove", "Remove a stopped engine and its log", "!-", "down NAME --remove"),
    (Scope.HOME, "apply_remedy", "a", "Apply remedy", "Relaunch with the suggested fix", "!-", "explain NAME"),
    (Scope.HOME, "secure_engine", "K", "Make a key",
     "Restart an engine open to the network with an API key", "!-", "secure NAME"),
    (Scope.HOME, "open_logs", "enter", "Logs", "Open the selected engine's log", "", "logs NAME"),
    # Models
    (Scope.MODELS, "search_hub", "s", "Search Hub", "Search the Hub and download", "", "models search"),
    (Scope.MODELS, "get_model", "g", "Get", "Resume, repair or update", "!", "models pull MODEL"),
    (Scope.MODELS, "verify_model", "v", "Verify", "Compare every file with the Hub's hash", "", "models verify"),
    (Scope.MODELS, "open_uses", "enter", "Its presets", "Presets using it, else its checkpoint", "", ""),
    (Scope.MODELS, "filter_models", "slash", "Filter", "Filter the list", "", ""),
    (Scope.MODELS, "pause_download", "p", "Pause", "Pause or resume the download", "!", "models pause DOWNLOAD"),
    (Scope.MODELS, "cancel_work", "c", "Cancel", "Cancel the download or verification", "", "models cancel DOWNLOAD"),
    (Scope.MODELS, "delete_model", "delete", "Delete",
     "Delete a model, a revision or leftovers; shows the space freed first", "!", "models rm MODEL"),
    (Scope.MODELS, "next_model_page", "right", "Page", "Next page: overview, files, inspect", "", ""),
    (Scope.MODELS, "previous_model_page", "left", "Page back", "Previous page", "-", ""),
    (Scope.MODELS, "copy_fix", "u", "Copy fix", "Copy the command that fixes it", "-", ""),
    (Scope.MODELS, "limit_downloads", "b", "Bandwidth",
     "Limit the rate of all downloads together", "!-", "models downloads --limit 50m"),
    (Scope.MODELS, "reload_models", "ctrl+r", "Reload", "Scan the model store again", "-", ""),
    # Presets
    (Scope.PRESETS, "launch_preset", "l enter", "Launch", "Set the options and launch", "!", "up PRESET"),
    (Scope.PRESETS, "copy_command", "y", "Copy command", "Copy the docker run command", "", "up PRESET --dry-run"),
    (Scope.PRESETS, "filter_presets", "slash", "Filter", "Filter the list", "", ""),
    (Scope.PRESETS, "import_recipes", "i", "Import", "Import recipe files of other tools", "!-", "presets import PATH"),
    (Scope.PRESETS, "apply_fixes", "a", "Apply fixes",
     "Launch with the fixes that the checks suggest", "!-", "presets check PRESET"),
    (Scope.PRESETS, "next_page", "right", "Page", "Next page: overview, command, checks, fit", "", ""),
    (Scope.PRESETS, "previous_page", "left", "Page back", "Previous page", "-", ""),
    (Scope.PRESETS, "reload_presets", "ctrl+r", "Reload", "Read the preset folders again", "-", ""),
    # Doctor
    (Scope.DOCTOR, "examine_again", "r", "Re-run", "Re-run checks", "", "doctor"),
    (Scope.DOCTOR, "try_gpu_container", "t", "GPU container",
     "Test a container with the GPU", "!", "doctor --gpu-container"),
    (Scope.DOCTOR, "copy_remedy", "y", "Copy remedy", "Copy the remedy", "", ""),
    # Logs
    (Scope.LOGS, "follow", "f end", "Follow", "Follow the end of the log", "", "logs NAME -f"),
    (Scope.LOGS, "search", "slash", "Search", "Search; Next and Previous jump between matches", "", ""),
    (Scope.LOGS, "next_match", "n", "Next", "Next match, or next finding", "-", ""),
    (Scope.LOGS, "previous_match", "p N", "Previous", "Previous match, or previous finding", "-", ""),
    (Scope.LOGS, "filter_log", "ampersand", "Filter", "Show matching lines only", "", ""),
    (Scope.LOGS, "level", "v", "Level", "All levels, warnings, errors", "", ""),
    (Scope.LOGS, "wrap", "w", "Wrap", "Wrap long lines", "", ""),
    (Scope.LOGS, "copy_line", "y", "Copy", "Copy the line or the marked lines", "", ""),
    (Scope.LOGS, "copy_traceback", "Y", "Traceback", "Copy the whole traceback of the line", "-", ""),
    (Scope.LOGS, "dump", "s", "Save", "Save the log to a file", "", "logs NAME > FILE"),
    (Scope.LOGS, "apply_log_remedy", "a", "Apply remedy", "Relaunch with the suggested fix", "!-", "explain NAME"),
    (Scope.LOGS, "next_engine", "right_square_bracket", "Next engine", "Next engine", "-", ""),
    # Metrics
    (Scope.METRICS, "cursor_back", "left", "Read", "Read values: one cell earlier", "", ""),
    (Scope.METRICS, "cursor_on", "right", "Read on", "Read values: one cell later, then now", "-", ""),
    (Scope.METRICS, "cursor_far_back", "shift+left", "Far back", "Ten cells earlier", "-", ""),
    (Scope.METRICS, "cursor_far_on", "shift+right", "Far on", "Ten cells later", "-", ""),
    (Scope.METRICS, "longer_window", "minus", "Longer", "Longer window: 5 m, 15 m, 1 h, 6 h", "", ""),
    (Scope.METRICS, "shorter_window", "plus equals_sign", "Shorter", "Shorter window", "", ""),
    (Scope.METRICS, "next_graphs", "pagedown down", "Page", "Next page of graphs", "", ""),
    (Scope.METRICS, "previous_graphs", "pageup up", "Page back", "Previous page of graphs", "-", ""),
    (Scope.METRICS, "pause_metrics", "space p", "Pause", "Pause the display; sampling continues", "", ""),
    (Scope.METRICS, "latency_table", "t", "Table", "p50, p95 and p99 with their bucket error", "", ""),
    (Scope.METRICS, "copy_values", "y", "Copy", "Copy the values at the cursor, or the latest", "", ""),
    (Scope.METRICS, "graph_kind", "g", "Marks", "Draw with dots, blocks or plain characters", "-", ""),
    (Scope.METRICS, "metrics_of_next", "right_square_bracket", "Next engine", "Next engine", "-", ""),
    # Bench
    (Scope.BENCH, "start_bench", "b", "Measure", "Benchmark one engine, or compare two", "!", "bench NAME"),
    (Scope.BENCH, "cancel_bench", "c", "Cancel", "Cancel the benchmark; results so far are kept", "", ""),
    (Scope.BENCH, "mark_run", "space", "Mark", "Mark two runs, A and B, to compare", "", "results compare A B"),
    (Scope.BENCH, "export_runs", "e", "Export", "Export runs to .md, .csv or .json", "", "results export"),
    (Scope.BENCH, "copy_run", "y", "Copy", "Copy the run, or both marked ones, as Markdown", "", ""),
    (Scope.BENCH, "filter_runs", "slash", "Filter", "Filter the list", "", ""),
    (Scope.BENCH, "delete_run", "delete", "Delete", "Delete the run, or both marked ones", "!-", "results rm"),
    (Scope.BENCH, "next_bench_page", "right", "Page", "Next page: run, conditions, compare, A/B", "", ""),
    (Scope.BENCH, "previous_bench_page", "left", "Page back", "Previous page", "-", ""),
    (Scope.BENCH, "open_run", "enter", "Read", "Scroll the page; on an empty list: benchmark", "-", ""),
    # Memory
    (Scope.MEMORY, "leave_memory", "escape", "Back", "Back to the previous screen", "", ""),
    (Scope.MEMORY, "memory_window", "w", "Window", "Longer history: 15 min, 1 h, 6 h", "", ""),
    # Chat
    (Scope.CHAT, "stop_answer", "escape", "Stop", "Stop the answer, or leave the input, or the screen", "", ""),
    (Scope.CHAT, "write", "enter", "Write", "Move to the input", "", ""),
    (Scope.CHAT, "regenerate", "ctrl+g", "Retry", "Ask the last question again", "", ""),
    (Scope.CHAT, "new_chat", "ctrl+n", "New", "New conversation; again: back to the last one", "", ""),
    (Scope.CHAT, "toggle_reasoning", "ctrl+t", "Reasoning", "Show or hide the reasoning", "", ""),
    (Scope.CHAT, "copy_answer", "ctrl+y", "Copy", "Copy the last answer", "", ""),
    (Scope.CHAT, "chat_settings", "ctrl+o", "Settings", "System prompt, sampling, reasoning, tools", "", ""),
    (Scope.CHAT, "open_conversation", "ctrl+l", "History",
     "Saved conversations: open, search, rename, delete", "", "conversations list"),
    (Scope.CHAT, "edit_question", "f2", "Edit", "Edit and resend the last question", "-", ""),
    (Scope.CHAT, "fork_chat", "f3", "Fork", "Fork the conversation; the original is unchanged", "-", ""),
    (Scope.CHAT, "go_on", "f4", "Continue", "Continue answer", "-", ""),
    (Scope.CHAT, "compare", "f5", "Compare", "Ask another engine the last question, side by side", "-", ""),
    (Scope.CHAT, "copy_code", "f6", "Code", "Copy a code block; again: the previous one", "-", ""),
    (Scope.CHAT, "make_room", "f7", "Room", "Leave older messages out of the request", "-", ""),
    (Scope.CHAT, "token_chances", "ctrl+r", "Tokens", "Show token probabilities", "-", ""),
    (Scope.CHAT, "attach", "f8", "Attach", "Attach an image or audio to the next question", "-", ""),
    (Scope.CHAT, "save_chat", "f9", "Save", "Save the conversation as .md or .json", "-", "conversations export ID"),
    (Scope.CHAT, "follow_answer", "ctrl+end", "Follow", "Scroll to the end and follow", "-", ""),
    (Scope.CHAT, "older_lines", "pageup", "Page up", "Scroll the transcript, also from the input", "-", ""),
    (Scope.CHAT, "newer_lines", "pagedown", "Page down", "Scroll the transcript, also from the input", "-", ""),
    (Scope.CHAT, "talk_to_next", "right_square_bracket", "Next engine", "Chat with the next serving engine", "-", ""),
)  # fmt: skip
"""Scope, id, keys, label, help, `!` dangerous and `-` absent from the footer, the command that does the same."""

ACTIONS: tuple[Action, ...] = tuple(
    Action(id_, tuple(keys.split()), label, help_, scope, "!" in flags, "-" not in flags, cli)
    for scope, id_, keys, label, help_, flags, cli in _TABLE
)


def allowed(actions: tuple[Action, ...], *, read_only: bool) -> tuple[Action, ...]:
    """The actions that this mode offers."""
    return tuple(action for action in actions if not (read_only and action.dangerous))


def of_scope(*scopes: Scope) -> tuple[Action, ...]:
    """The actions of these scopes, in registry order."""
    return tuple(action for action in ACTIONS if action.scope in scopes)


_BY_ID: Final = {action.id: action for action in ACTIONS}


def action(id_: str) -> Action:
    """The action of that id; KeyError when there is none."""
    return _BY_ID[id_]


DANGEROUS = frozenset(found.id for found in ACTIONS if found.dangerous)


def check_keymap(keymap: Keymap) -> None:
    """Raises ValueError for an action that does not exist, and for a new key that another action of the place has."""
    own = dict(keymap)
    for id_ in own:
        if id_ not in _BY_ID:
            near = suggestion(id_, _BY_ID)
            hint = f"did you mean {near}?" if near else "see the ids with: spark-tui config keys"
            raise ValueError(f"must name actions; there is no action {id_}: {hint}")
    for action in (action for action in ACTIONS if action.id in own):
        for other in ACTIONS:
            meet = action.scope is other.scope or Scope.GLOBAL in (action.scope, other.scope)
            others = own.get(other.id, other.default_keys) if meet and other is not action else ()
            for key in own[action.id]:
                if key in others and key not in action.default_keys:
                    raise ValueError(
                        f"must give each key one meaning; {key} would be {action.id} and {other.id} "
                        f"({other.scope.value}): give {other.id} another key too"
                    )


_SHOWN: Final = {
    "question_mark": "?", "slash": "/", "ampersand": "&", "right_square_bracket": "]", "equals_sign": "=",
    "minus": "-", "plus": "+", "escape": "Esc", "enter": "Enter", "delete": "Del", "space": "Space", "end": "End",
    "up": "Up", "down": "Down", "left": "Left", "right": "Right", "shift+left": "S-Left", "shift+right": "S-Right",
    "pagedown": "PgDn", "pageup": "PgUp",
}  # fmt: skip
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
