"""Cases of a table in one test: collecting and reporting a case costs more than most of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any


def all_cases(
    names: str | Iterable[str], rows: Iterable[Any], ids: Callable[[Any], Any] | Iterable[Any] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """As `pytest.mark.parametrize`, for tests that leave nothing behind: all rows are tried, and each that fails is
    shown with its traceback and its id."""
    words = [word.strip() for word in names.split(",")] if isinstance(names, str) else list(names)
    table = [list(row) if len(words) > 1 else [row] for row in rows]
    known = [] if ids is None or callable(ids) else list(ids)

    def name_of(at: int) -> str:
        return str(known[at]) if known else "-".join(str((ids or repr)(value)) for value in table[at])  # type: ignore[operator]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        def all_rows(**given: Any) -> None:
            failed = list[Exception]()
            for at, row in enumerate(table):
                try:
                    test(**given, **dict(zip(words, row, strict=True)))
                except Exception as error:  # noqa: BLE001 - reported below
                    error.add_note(f"case {name_of(at)}")
                    failed.append(error)
            if failed:
                raise ExceptionGroup(f"{len(failed)} of {len(table)} cases", failed)
            assert table, "a table without rows proves nothing"

        signature = inspect.signature(test)
        left = [parameter for name, parameter in signature.parameters.items() if name not in words]
        all_rows.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        all_rows.__name__, all_rows.__qualname__, all_rows.__doc__ = test.__name__, test.__qualname__, test.__doc__
        all_rows.__module__ = test.__module__
        return all_rows

    return decorate
