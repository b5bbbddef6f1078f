"""Calls of the library that cannot be taken in slices, such as joining, open to Ctrl-C all the same."""
from __future__ import annotations

import threading
from typing import Callable, List, Optional, TypeVar

Result = TypeVar("Result")


def interruptible(call: Callable[[], Result], interrupted: Optional[Callable[[BaseException], None]] = None) -> Result:
    """In the main thread, where Python handles signals, the call is made by a helper that an interruption leaves
    behind: it ends by its deadline, or sooner by what `interrupted` does, and its result is dropped."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    results: List[Result] = []
    errors: List[BaseException] = []
    ended = threading.Event()

    def make() -> None:
        try:
            results.append(call())
        except BaseException as error:  # raised again below
            errors.append(error)
        ended.set()

    helper = threading.Thread(target=make, name="gradsync call", daemon=True)
    try:
        helper.start()  # may be interrupted, too, with the call under way
        ended.wait()
    except BaseException as error:
        if interrupted is not None:
            interrupted(error)
        raise
    if errors:
        raise errors.pop()
    return results.pop()
