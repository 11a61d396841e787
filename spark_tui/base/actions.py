"""The one registry of what a person can do. Keys, footer, help, palette, README and read-only mode come from here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from enum import StrEnum
from functools import cache
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from spark_tui.base.settings import Keymap, suggestion


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
    EVENTS = "Events"
    CLUSTER = "Cluster"
    CLUSTER_DOCTOR = "Cluster doctor"
    CONNECT = "Connect"
    IMAGES = "Images"
    REFERENCES = "References"


class Action(Struct, frozen=True):
    """One action. `default_keys` are Textual key names, the first one is shown. `dangerous` ones are absent in
    read-only mode. `cli` is the command that does the same. `footer` says whether the footer shows it."""

    id: str
    default_keys: tuple[str, ...]
    label: str
    help: str
    scope: str = Scope.GLOBAL
    dangerous: bool = False
    footer: bool = True
    cli: str = ""

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that it has in this context: the person's own, else the default ones."""
        return _own_keys.get().get(self.id, self.default_keys)

    @property
    def typed(self) -> bool:
        """Whether its key writes or edits text in an input."""
        return self.keys[0] in ("space", "left", "right", "delete") or len(shown(self.keys[0])) == 1


_own_keys: ContextVar[Mapping[str, tuple[str, ...]]] = ContextVar("own_keys", default=MappingProxyType({}))
_on_screen: ContextVar[bool] = ContextVar("on_screen", default=False)


def use_screen() -> None:
    """In this context, and in the tasks that it starts, a person sees a screen, and types no commands."""
    _on_screen.set(True)


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
    (Scope.GLOBAL, "yank", "y", "Copy", "Copy from this screen: URL, model, key, command, line", "", "last-copy"),
    (Scope.GLOBAL, "help", "question_mark", "Help", "Keys of this screen; the tour is in it", "", ""),
    (Scope.GLOBAL, "help_anywhere", "f1", "Help", "Keys of this place, also while typing and in dialogs", "-", ""),
    (Scope.GLOBAL, "tour", "f12", "Tour", "Quick tour", "-", ""),
    (Scope.GLOBAL, "command_palette", "ctrl+p colon", "Palette", "Find an action, engine, preset, model", "", ""),
    (Scope.GLOBAL, "next_engine", "right_square_bracket", "Next engine", "Select the next engine", "", ""),
    (Scope.GLOBAL, "previous_engine", "left_square_bracket", "Previous", "Select the engine before", "-", ""),
    (Scope.GLOBAL, "screenshot", "ctrl+s", "Screenshot", "Save this screen as a picture (SVG)", "-", ""),
    (Scope.GLOBAL, "drop_cache", "D", "Free cache", "Free the page cache: CUDA counts it as used", "!-", "drop-caches"),
    (Scope.GLOBAL, "open_memory", "m", "Memory", "Memory by owner, guard, history", "-", "memory"),
    (Scope.GLOBAL, "open_events", "E", "Events", "What happened, with the whole text", "-", "events"),
    (Scope.GLOBAL, "open_hosts", "H", "Other hosts", "Open another host over ssh", "-", "hosts"),
    (Scope.GLOBAL, "open_cluster", "J", "Cluster", "Nodes of a cluster, and what runs on them", "-", "cluster status"),
    (Scope.GLOBAL, "suspend_process", "ctrl+z", "Suspend", "Suspend to shell (fg to return)", "-", ""),
    (Scope.GLOBAL, "quit", "q ctrl+q", "Quit", "Quit; containers keep running", "-", ""),
    # Home
    (Scope.HOME, "launch", "l", "Launch", "Choose a preset and launch it", "!", "up PRESET"),
    (Scope.HOME, "edit_engine", "e", "Edit", "Change the settings of the selected engine", "!", "edit NAME"),
    (Scope.HOME, "stop", "x", "Stop", "Stop the selected engine", "!", "down NAME"),
    (Scope.HOME, "restart", "r", "Restart", "Restart the selected engine", "!", "restart NAME"),
    (Scope.HOME, "cancel_job", "c", "Cancel", "Cancel the launch in progress", "!", ""),
    (Scope.HOME, "remove", "delete", "Remove", "Remove a stopped engine and its log", "!-", "down NAME --remove"),
    (Scope.HOME, "apply_remedy", "a", "Fix", "Relaunch with the suggested fix", "!", "explain NAME"),
    (Scope.HOME, "draft_engine", "i", "Import",
     "Draft a preset of an engine started by hand", "!", "draft CONTAINER"),
    (Scope.HOME, "secure_engine", "K", "Make a key",
     "Restart the engine open to the network, with an API key", "!-", "secure NAME"),
    (Scope.HOME, "toggle_boot", "B", "At boot", "Start the engine with the machine: on, off", "!-", "boot on NAME"),
    (Scope.HOME, "set_schedule", "Z", "Schedule", "Stop and start the engine at set times", "!-", "schedule NAME"),
    (Scope.HOME, "open_connect", "o", "Connect", "Connect a coding agent or chat front end", "", "connect CLIENT NAME"),
    (Scope.HOME, "open_logs", "enter", "Logs", "Open the selected engine's log", "", "logs NAME"),
    # Models
    (Scope.MODELS, "search_hub", "h", "Search Hub", "Search the Hub and download", "", "models search"),
    (Scope.MODELS, "get_model", "g", "Get", "Resume, repair or update", "!", "models pull MODEL"),
    (Scope.MODELS, "verify_model", "v", "Verify", "Compare every file with the Hub's hash", "", "models verify"),
    (Scope.MODELS, "open_uses", "enter", "Serve", "Presets using it; without one, draft a preset", "", "draft MODEL"),
    (Scope.MODELS, "filter_models", "slash", "Filter", "Filter the list", "", ""),
    (Scope.MODELS, "pause_download", "p", "Pause", "Pause or resume the download", "!", "models pause DOWNLOAD"),
    (Scope.MODELS, "cancel_work", "c", "Cancel", "Cancel the download or verification", "", "models cancel DOWNLOAD"),
    (Scope.MODELS, "delete_model", "delete", "Delete",
     "Delete a model, a revision or leftovers; shows the space freed first", "!", "models rm MODEL"),
    (Scope.MODELS, "move_model", "f3", "Move", "Move the model into the store or another folder of models", "!-",
     "models move MODEL"),
    (Scope.MODELS, "next_model_page", "right", "Page", "Next page: overview, files, inspect", "", ""),
    (Scope.MODELS, "previous_model_page", "left", "Page back", "Previous page", "-", ""),
    (Scope.MODELS, "limit_downloads", "R", "Bandwidth",
     "Limit the rate of all downloads together", "!-", "models downloads --limit 50m"),
    (Scope.MODELS, "open_images", "9", "Images", "Container images: disk, versions, moved tags", "", "images"),
    (Scope.MODELS, "reload_models", "ctrl+r", "Reload", "Scan the model store again", "-", ""),
    # Images
    (Scope.IMAGES, "check_images", "v", "Verify", "Ask the registries whether tags have moved", "", "images --check"),
    (Scope.IMAGES, "inspect_image", "Q", "Versions",
     "Read the versions inside, in a container without network", "!", "images --inspect NAME"),
    (Scope.IMAGES, "delete_image", "delete", "Delete",
     "Delete an image; shows the space freed first", "!", "images delete NAME"),
    (Scope.IMAGES, "reload_images", "ctrl+r", "Reload", "Read the images again", "-", "images"),
    (Scope.IMAGES, "leave_images", "escape", "Back", "Back to Models", "", ""),
    # Presets
    (Scope.PRESETS, "launch_preset", "l enter", "Launch", "Set the options and launch", "!", "up PRESET"),
    (Scope.PRESETS, "filter_presets", "slash", "Filter", "Filter the list", "", ""),
    (Scope.PRESETS, "sort_presets", "s", "Sort", "Sort by the next column", "", "presets list --sort COLUMN"),
    (Scope.PRESETS, "reverse_presets", "S", "Reverse", "Reverse the order", "-", ""),
    (Scope.PRESETS, "mark_preset", "space", "Mark", "Mark up to three presets to compare", "", ""),
    (Scope.PRESETS, "compare_presets", "C", "Compare", "Compare the marked presets", "", "presets compare A B"),
    (Scope.PRESETS, "judge_launch", "greater_than_sign less_than_sign plus minus", "Judge",
     "Judge presets with another context and number of users", "-", "presets list --context 64k --users 2"),
    (Scope.PRESETS, "next_use", "U", "Use", "Only presets for one use: coding, agent, chat, ...", "-",
     "presets list --tag coding"),
    (Scope.PRESETS, "only_tools", "T", "Tools", "Only presets that call tools", "-", "presets list --tools"),
    (Scope.PRESETS, "only_vision", "V", "Vision", "Only presets that read images", "-", "presets list --tag vision"),
    (Scope.PRESETS, "only_on_disk", "O", "On disk", "Only presets with a downloaded model", "-",
     "presets list --on-disk"),
    (Scope.PRESETS, "only_fitting", "F", "Fits", "Only presets that fit now", "-", "presets list --fits"),
    (Scope.PRESETS, "limit_need", "M", "Limit", "Limit the memory need: 16, 30, 60, 90 GiB", "-",
     "presets list --max-need 30GiB"),
    (Scope.PRESETS, "import_recipes", "i", "Import", "Import recipe files of other tools", "!-", "presets import PATH"),
    (Scope.PRESETS, "apply_fixes", "a", "Fix",
     "Launch with the fixes that fit and checks suggest", "!", "presets check PRESET"),
    (Scope.PRESETS, "pin_preset", "X", "Pin",
     "Pin the image that last served well, by its digest; again: follow its tag", "!-", "presets pin PRESET"),
    (Scope.PRESETS, "update_preset", "u", "Update",
     "Try a newer image beside the old one, then keep it or go back", "!", "update PRESET"),
    (Scope.PRESETS, "next_page", "right", "Page", "Next page: overview, command, checks, fit", "", ""),
    (Scope.PRESETS, "previous_page", "left", "Page back", "Previous page", "-", ""),
    (Scope.PRESETS, "reload_presets", "ctrl+r", "Reload", "Read the preset folders again", "-", ""),
    # Doctor
    (Scope.DOCTOR, "examine_again", "ctrl+r", "Re-run", "Re-run checks", "", "doctor"),
    (Scope.DOCTOR, "try_gpu_container", "P", "GPU container",
     "Test a container with the GPU", "!", "doctor --gpu-container"),
    (Scope.DOCTOR, "toggle_passed", "z", "Fold", "Show or hide the checks that passed", "", ""),
    # Logs
    (Scope.LOGS, "follow", "f end", "Follow", "Follow the end of the log", "", "logs NAME -f"),
    (Scope.LOGS, "search", "slash", "Search", "Search; Next and Previous jump between matches", "", ""),
    (Scope.LOGS, "next_match", "n", "Next", "Next match, or next finding", "-", ""),
    (Scope.LOGS, "previous_match", "N", "Previous", "Previous match, or previous finding", "-", ""),
    (Scope.LOGS, "filter_log", "ampersand", "Filter", "Show matching lines only", "", ""),
    (Scope.LOGS, "level", "exclamation_mark", "Level", "All levels, warnings, errors", "", ""),
    (Scope.LOGS, "fold", "z", "Fold", "Show the latest of repeating lines only: bars, requests, statistics", "", ""),
    (Scope.LOGS, "since_start", "L", "Since start", "Lines of the latest start only", "-", ""),
    (Scope.LOGS, "all_engines", "A", "All engines", "Lines of all running engines by time, or of the selected one", "",
     "logs NAME NAME"),
    (Scope.LOGS, "go_to_time", "at", "Time", "Go to a time: 14:05, -10m, start, ready", "", "logs NAME --since 14:05"),
    (Scope.LOGS, "wrap", "w", "Wrap", "Wrap long lines", "", ""),
    (Scope.LOGS, "dump", "W", "Save", "Save the log to a file", "-", "logs NAME > FILE"),
    (Scope.LOGS, "apply_log_remedy", "a", "Fix", "Relaunch with the suggested fix", "!", "explain NAME"),
    # Metrics
    (Scope.METRICS, "cursor_back", "left", "Read", "Read values: one cell earlier", "", ""),
    (Scope.METRICS, "cursor_on", "right", "Read on", "Read values: one cell later, then now", "-", ""),
    (Scope.METRICS, "cursor_far_back", "shift+left", "Far back", "Ten cells earlier", "-", ""),
    (Scope.METRICS, "cursor_far_on", "shift+right", "Far on", "Ten cells later", "-", ""),
    (Scope.METRICS, "longer_window", "minus", "Longer", "Longer window: 5 m, 15 m, 1 h, 6 h", "", ""),
    (Scope.METRICS, "shorter_window", "plus equals_sign", "Shorter", "Shorter window", "", ""),
    (Scope.METRICS, "next_graphs", "pagedown down", "Page", "Next page of graphs", "", ""),
    (Scope.METRICS, "previous_graphs", "pageup up", "Page back", "Previous page of graphs", "-", ""),
    (Scope.METRICS, "pause_metrics", "p", "Pause", "Pause the display; sampling continues", "", ""),
    (Scope.METRICS, "latency_table", "t", "Table", "p50, p95 and p99 with their bucket error", "", ""),
    # Bench
    (Scope.BENCH, "start_bench", "b", "Measure", "Benchmark one engine, or compare two", "!", "bench NAME"),
    (Scope.BENCH, "cancel_bench", "c", "Cancel", "Cancel the benchmark; results so far are kept", "", ""),
    (Scope.BENCH, "prove_engine", "I", "Prove",
     "Prove that an engine does what agents need: tool calls, reasoning, ...", "!", "prove NAME"),
    (Scope.BENCH, "mark_run", "space", "Mark", "Mark two runs, A and B, to compare", "", "results compare A B"),
    (Scope.BENCH, "export_runs", "W", "Save", "Save runs as .md or .json", "", "results export"),
    (Scope.BENCH, "filter_runs", "slash", "Filter", "Filter the list", "", ""),
    (Scope.BENCH, "delete_run", "delete", "Delete", "Delete the run, or both marked ones", "!-", "results rm"),
    (Scope.BENCH, "next_bench_page", "right", "Page", "Next page: run, conditions, compare, A/B, prove", "", ""),
    (Scope.BENCH, "previous_bench_page", "left", "Page back", "Previous page", "-", ""),
    (Scope.BENCH, "open_run", "enter", "Read", "Scroll the page; on an empty list: benchmark", "-", ""),
    (Scope.BENCH, "open_references", "t", "Table", "Published speeds, KV cache, accuracy", "", "references list"),
    # References
    (Scope.REFERENCES, "filter_references", "slash", "Filter", "Filter the list", "", "references list WORD"),
    (Scope.REFERENCES, "leave_references", "escape", "Back", "Back to the previous screen", "", ""),
    # Memory
    (Scope.MEMORY, "leave_memory", "escape", "Back", "Back to the previous screen", "", ""),
    (Scope.MEMORY, "stop_owner", "x", "Stop", "Stop the engine of this process", "!", "down NAME"),
    (Scope.MEMORY, "memory_window", "minus", "Window", "Longer history: 15 min, 1 h, 6 h", "", ""),
    # Events
    (Scope.EVENTS, "leave_events", "escape", "Back", "Back to the previous screen", "", ""),
    (Scope.EVENTS, "filter_events", "slash", "Filter", "Filter the list", "", ""),
    # Cluster
    (Scope.CLUSTER, "launch_on_nodes", "l", "Launch", "Choose a preset and launch it", "!", "up PRESET --nodes NAMES"),
    (Scope.CLUSTER, "stop_launch", "x", "Stop", "Stop the launch on all its nodes", "!", "down NAME"),
    (Scope.CLUSTER, "launch_logs", "enter", "Logs", "Open the log of the head", "", "logs NAME -f"),
    (Scope.CLUSTER, "open_cluster_doctor", "v", "Verify", "Doctor: check all nodes and the paths between them", "",
     "cluster doctor NAME"),
    (Scope.CLUSTER, "ask_nodes", "ctrl+r", "Refresh", "Ask all nodes again", "", "cluster status"),
    (Scope.CLUSTER, "leave_cluster", "escape", "Back", "Back to the previous screen", "", ""),
    # Cluster doctor
    (Scope.CLUSTER_DOCTOR, "check_cluster", "ctrl+r", "Re-run", "Re-run checks", "", "cluster doctor NAME"),
    (Scope.CLUSTER_DOCTOR, "compare_preset", "C", "Compare",
     "Compare the image and the model of a preset on all nodes", "", "cluster doctor NAME --preset PRESET"),
    (Scope.CLUSTER_DOCTOR, "measure_bandwidth", "b", "Measure",
     "Bandwidth of RDMA, TCP and NCCL; loads the fabric", "!", "cluster doctor NAME --bandwidth"),
    (Scope.CLUSTER_DOCTOR, "cancel_checks", "c", "Cancel", "Cancel the checks", "", ""),
    (Scope.CLUSTER_DOCTOR, "next_cluster", "n", "Next", "Check the next cluster", "", ""),
    (Scope.CLUSTER_DOCTOR, "leave_cluster_doctor", "escape", "Back", "Back to Cluster", "", ""),
    # Connect
    (Scope.CONNECT, "write_client", "W", "Save", "Write the client's files; a backup is kept", "!",
     "connect CLIENT --write"),
    (Scope.CONNECT, "undo_client", "delete", "Undo", "Restore the client's files", "!", "connect CLIENT --undo"),
    (Scope.CONNECT, "check_client", "v", "Verify", "Send one request with a tool call, as the client would", "",
     "connect CLIENT --check"),
    (Scope.CONNECT, "toggle_gateway", "Y", "Gateway", "Connect to the engine, or to the gateway", "",
     "connect CLIENT --gateway"),
    (Scope.CONNECT, "fix_engine", "a", "Fix", "Change the engine's settings as suggested", "!", "edit NAME"),
    (Scope.CONNECT, "leave_connect", "escape", "Back", "Back to the previous screen", "", ""),
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
    (Scope.CHAT, "go_on", "f4", "Continue", "Continue answer", "-", ""),
    (Scope.CHAT, "compare", "f5", "Compare", "Ask another engine the last question, side by side", "-", ""),
    (Scope.CHAT, "copy_code", "f6", "Code", "Copy a code block; again: the previous one", "-", ""),
    (Scope.CHAT, "make_room", "f7", "Room", "Leave older messages out of the request", "-", ""),
    (Scope.CHAT, "attach", "f8", "Attach", "Attach an image or audio to the next question", "-", ""),
    (Scope.CHAT, "save_chat", "f9", "Save", "Save the conversation as .md or .json", "-", "conversations export ID"),
    (Scope.CHAT, "follow_answer", "ctrl+end", "Follow", "Scroll to the end and follow", "-", ""),
    (Scope.CHAT, "older_lines", "pageup", "Page up", "Scroll the transcript, also from the input", "-", ""),
    (Scope.CHAT, "newer_lines", "pagedown", "Page down", "Scroll the transcript, also from the input", "-", ""),
    (Scope.CHAT, "choose_engine", "ctrl+k", "Engine", "Choose the engine to chat with", "-", ""),
)  # fmt: skip
"""Scope, id, keys, label, help, `!` dangerous and `-` absent from the footer, the command that does the same."""


LOOKED_FOR_AS: Final[Mapping[str, str]] = {
    "apply_remedy": "repair error failed",
    "drop_cache": "memory ram release drop",
    "edit_engine": "context users share settings change tune",
    "get_model": "download pull",
    "launch": "serve start run up",
    "launch_preset": "serve start run up",
    "open_connect": "agent client url key opencode claude webui",
    "open_hosts": "remote ssh",
    "open_memory": "ram unified guard",
    "prove_engine": "verify test tools agent",
    "quit": "exit leave close end",
    "search_hub": "download pull find hugging face",
    "secure_engine": "api password protect",
    "set_schedule": "time night timer",
    "start_bench": "speed fast throughput tokens performance",
    "stop": "end down unload",
    "toggle_boot": "autostart restart systemd",
    "update_preset": "upgrade newer image version",
}
"""Other words by which people look for an action."""


def _made(rows: Iterable[tuple[str, str, str, str, str, str, str]]) -> tuple[Action, ...]:
    return tuple(
        Action(id_, tuple(keys.split()), label, help_, scope, "!" in flags, "-" not in flags, cli)
        for scope, id_, keys, label, help_, flags, cli in rows
    )


ACTIONS: Final = _made(_TABLE)
_of_rooms: ContextVar[Callable[[], tuple[Action, ...]]] = ContextVar("of_rooms", default=tuple)


def use_actions(rows: Callable[[], Iterable[tuple[str, str, str, str, str, str, str]]]) -> None:
    """In this context, and in the tasks that it starts, there are also the actions that rooms declare."""
    _of_rooms.set(cache(lambda: _made(rows())))


def known_actions() -> tuple[Action, ...]:
    """All of them, those of rooms last."""
    return ACTIONS + _of_rooms.get()()


def allowed(actions: tuple[Action, ...], *, read_only: bool) -> tuple[Action, ...]:
    """The actions that this mode offers."""
    return tuple(action for action in actions if not (read_only and action.dangerous))


def of_scope(*scopes: str) -> tuple[Action, ...]:
    """The actions of these scopes, in registry order."""
    return tuple(action for action in known_actions() if action.scope in scopes)


_BY_ID: Final = {action.id: action for action in ACTIONS}


def action(id_: str) -> Action:
    """The action of that id; KeyError when there is none."""
    return _BY_ID.get(id_) or {each.id: each for each in _of_rooms.get()()}[id_]


DANGEROUS = frozenset(found.id for found in ACTIONS if found.dangerous)


def is_dangerous(id_: str) -> bool:
    """Whether read-only mode leaves that action out."""
    return id_ in DANGEROUS or any(each.dangerous for each in _of_rooms.get()() if each.id == id_)


RETIRED: Final = (
    "longer_context", "shorter_context", "more_users", "fewer_users",
    "token_chances", "fork_chat", "graph_kind",
)  # fmt: skip
"""Actions of the last version: a person's settings may still name them, without effect."""


def check_keymap(keymap: Keymap) -> None:
    """Raises ValueError for an action that does not exist, and for a new key that another action of the place has."""
    own = {id_: keys for id_, keys in keymap if id_ not in RETIRED}
    actions = known_actions() if own else ()
    ids = [action.id for action in actions]
    for id_ in own:
        if id_ not in ids:
            near = suggestion(id_, ids)
            hint = f"did you mean {near}?" if near else "see the ids with: spark-tui config keys"
            raise ValueError(f"must name actions; there is no action {id_}: {hint}")
    for action in (action for action in actions if action.id in own):
        for other in actions:
            meet = action.scope == other.scope or Scope.GLOBAL in (action.scope, other.scope)
            others = own.get(other.id, other.default_keys) if meet and other is not action else ()
            for key in own[action.id]:
                if key in others and key not in action.default_keys:
                    raise ValueError(
                        f"must give each key one meaning; {key} would be {action.id} and {other.id} "
                        f"({other.scope}): give {other.id} another key too"
                    )


_SHOWN: Final = {
    "at": "@", "left_square_bracket": "[", "exclamation_mark": "!",
    "question_mark": "?", "colon": ":", "slash": "/", "ampersand": "&", "right_square_bracket": "]", "equals_sign": "=",
    "minus": "-", "plus": "+", "escape": "Esc", "enter": "Enter", "delete": "Del", "space": "Space", "end": "End",
    "up": "Up", "down": "Down", "left": "Left", "right": "Right", "shift+left": "S-Left", "shift+right": "S-Right",
    "pagedown": "PgDn", "pageup": "PgUp", "less_than_sign": "<", "greater_than_sign": ">",
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


_WRITTEN: Final = {written: key for key, written in _SHOWN.items()}


def key_written(word: str) -> str:
    """The key that is written so on screen: `^p` -> `ctrl+p`. Empty for a word that is none."""
    if word.startswith("^") and len(word) > 1:
        return "ctrl+" + _WRITTEN.get(word[1:], word[1:])
    if word[:1] == "F" and word[1:].isdigit():
        return word.lower()
    return _WRITTEN.get(word) or (word if len(word) == 1 else "")


def key_of(id_: str) -> str:
    """The key that an action has now, as it is written: `^p`. KeyError for what is no action."""
    return shown(action(id_).keys[0])


def by_front_end(screen: str, command: str) -> str:
    """What a person does next: `screen` in what an app does, `command` in what the command line does."""
    return screen if _on_screen.get() else command


def screen_keys() -> str:
    """The keys that change the screen: `1-8`, or each of them where a person has other ones."""
    keys = [key_of(f"show_{screen}") for screen in _SCREENS]
    return "1-8" if keys == list("12345678") else " ".join(keys)
