"""Other tools' recipes and launch files: eugr version 1, sparkrun version 2, Compose, systemd, Quadlet."""
