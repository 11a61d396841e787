"""Conversations with an engine."""

from spark_tui.base.feature import Feature

FEATURE = Feature(
    commands={
        "chat": ("spark_tui.use.chat.command.chat", "Chat with an engine."),
        "conversations": ("spark_tui.use.chat.command.conversations", "Manage saved conversations."),
    },
    modes={"chat": "spark_tui.use.chat.screen.chat:ChatScreen"},
    real={
        "conversations": (
            "spark_tui.use.chat.adapter:FileConversations",
            lambda make, p: make(p.folders.conversations),
        ),
    },
    demo={
        "conversations": (
            "spark_tui.use.chat.adapter:FileConversations",
            lambda make, p: make(p.demo_folder.path / "conversations"),
        ),
    },
)
