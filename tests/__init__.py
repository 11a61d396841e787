"""What the product promises, in the rooms where it stands."""

from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parent
