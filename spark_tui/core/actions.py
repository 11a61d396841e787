"""The one registry of what a person can do. Keys, footer, help, palette, README and read-only mode come from here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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
    """One action. `keys` are Textual key names, the first one is shown. `dangerous` ones are absent in read-only
    mode. `cli` is the command that does the same. `footer` says whether the footer shows it."""

    id: str
    keys: tuple[str, ...]
    label: str
    help: str
    scope: Scope = Scope.GLOBAL
    dangerous: bool = False
    footer: bool = True
    cli: str = ""


ACTIONS: tuple[Action, ...] = (
    # everywhere
    Action("show_home", ("1",), "Home", "Engines, boot timeline, events", footer=False, cli="status"),
    Action("show_presets", ("3",), "Presets", "Recipes: look, check, launch", footer=False, cli="presets list"),
    Action("show_logs", ("4",), "Logs", "The selected engine's log, full screen", footer=False, cli="logs NAME -f"),
    Action("show_chat", ("6",), "Chat", "Talk to the selected engine", footer=False, cli="chat NAME"),
    Action("help", ("question_mark",), "Help", "Keys of this screen"),
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
    Action("open_logs", ("enter",), "Logs", "Open the selected engine's log", Scope.HOME, cli="logs NAME"),
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
    # logs
    Action("follow", ("f", "end"), "Follow", "Follow the end of the log", Scope.LOGS, cli="logs NAME -f"),
    Action("search", ("slash",), "Search", "Search; n and p jump between matches", Scope.LOGS),
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
    # chat
    Action("stop_answer", ("escape",), "Stop", "Stop the answer; else leave the prompt, or the screen", Scope.CHAT),
    Action("write", ("enter",), "Write", "From the transcript to the prompt", Scope.CHAT),
    Action("regenerate", ("ctrl+g",), "Again", "Ask the last question again", Scope.CHAT),
    Action("new_chat", ("ctrl+n",), "New", "Start a new conversation; once more brings the last one back", Scope.CHAT),
    Action("toggle_reasoning", ("ctrl+t",), "Reasoning", "Show or fold the reasoning", Scope.CHAT),
    Action("copy_answer", ("ctrl+y",), "Copy", "Copy the last answer", Scope.CHAT),
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
