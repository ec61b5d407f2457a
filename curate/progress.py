"""What a long job tells a person while it runs: rate, losses, kept share and remaining time.

On a terminal that is a bar. Elsewhere, and in a log file, it is a line every half minute at most.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType
from typing import Any, Protocol, Self

from tqdm import tqdm

from curate import console
from curate.types import EpochReport
from shards.io.parallel import on_progress


class Progress(Protocol):
    """What a long job reports to while it runs. An implementation shows it or ignores it."""

    def note(self, text: str) -> None:
        """Show a line of text, such as a warning."""

    def begin(self, epochs: int, done: int) -> None:
        """The job starts, or goes on after ``done`` epochs."""

    def epoch(self, epoch: int, images: int, examples: int) -> None:
        """An epoch over ``images`` of the store's ``examples`` starts."""

    def step(self, images: int, numbers: dict[str, float]) -> None:
        """A step over ``images`` is done; ``numbers`` has means over the epoch, now and then."""

    def skip(self, images: int) -> None:
        """So many images of the epoch were trained on by an earlier call."""

    def report(self, report: EpochReport) -> None:
        """An epoch is done and written."""

    def shards(self, label: str) -> AbstractContextManager[None]:
        """A block of work on shards."""

    def images(self, label: str, total: int, done: int) -> AbstractContextManager[Callable[[int], None]]:
        """A block of work on ``total`` images, of which some are done; call what it yields with how many more are."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class NullProgress:
    """Ignores everything: the default of every call."""

    def note(self, text: str) -> None: ...

    def begin(self, epochs: int, done: int) -> None: ...

    def epoch(self, epoch: int, images: int, examples: int) -> None: ...

    def step(self, images: int, numbers: dict[str, float]) -> None: ...

    def skip(self, images: int) -> None: ...

    def report(self, report: EpochReport) -> None: ...

    def shards(self, label: str) -> AbstractContextManager[None]:
        """A context that does nothing."""
        return nullcontext()

    def images(self, label: str, total: int, done: int) -> AbstractContextManager[Callable[[int], None]]:
        """A context that does nothing."""
        return nullcontext(lambda more: None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class _Nowhere(io.TextIOBase):
    """Where a bar is drawn that nobody sees."""

    def write(self, text: str, /) -> int:
        """Nothing."""
        return len(text)


class _Bar(tqdm):  # type: ignore[misc]
    """tqdm's bar, drawn on a terminal only; how far it is, is told as a line now and then.

    Args:
        options: tqdm's. One that stays (``leave``) ends with a line.
    """

    #: What tqdm shows without its bar.
    LINE = "{desc}: {percentage:.0f}%, {n_fmt}/{total_fmt} {unit} [{elapsed}, {remaining} to go, {rate_fmt}{postfix}]"

    def __init__(self, **options: Any) -> None:
        self.told_at = time.monotonic()
        file = sys.stderr if console.draws_bars() else _Nowhere()
        super().__init__(file=file, dynamic_ncols=True, **options)

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """Draw, and tell where half a minute has gone by."""
        super().display(msg, pos)
        if msg is None and time.monotonic() - self.told_at >= console.EVERY_S:
            self._tell()

    def close(self) -> None:
        """The last of it."""
        if self.leave and not self.disable:
            self._tell()
        super().close()

    def _tell(self) -> None:
        self.told_at = time.monotonic()
        state = self.format_dict
        state |= {"prefix": (state["prefix"] or "").removesuffix(": "), "ncols": None, "bar_format": self.LINE}
        console.progress(self.format_meter(**state))


@contextmanager
def shard_bar(label: str, unit: str = "shard") -> Iterator[None]:
    """A bar over the shards of whatever is done in the block, once that takes more than a moment."""
    with _Bar(unit=unit, desc=label, delay=2, leave=False) as bar:

        def tell(n_done: int, total: int) -> None:
            bar.total = total
            bar.update(n_done - bar.n)

        with on_progress(tell):
            yield


@contextmanager
def image_bar(label: str, total: int, done: int) -> Iterator[Callable[[int], None]]:
    """A bar over images, with their rate."""
    with _Bar(total=total, initial=done, unit="img", desc=label, leave=False) as bar:

        def tell(more: int) -> None:
            bar.update(more)

        yield tell


@contextmanager
def epoch_bar(label: str) -> Iterator[Callable[[str, int, int], None]]:
    """A bar over the epochs of several trainings.

    Yields:
        A function of what is trained, the epochs done, and those in all.
    """
    with _Bar(unit="epoch", desc=label, delay=1, leave=False) as bar:

        def tell(what: str, n_done: int, total: int) -> None:
            bar.total = total
            bar.set_description(f"{label} {what}", refresh=False)
            bar.update(n_done - bar.n)

        yield tell


@contextmanager
def counting(label: str, unit: str, total: int, done: int = 0) -> Iterator[Callable[[str], None]]:
    """A bar over ``total`` equal pieces of work; call what it yields with a word on each that is finished."""
    with _Bar(total=total, initial=done, unit=unit, desc=label) as bar:

        def tell(what: str) -> None:
            bar.set_postfix_str(what, refresh=False)
            bar.update()

        yield tell


class Bar(NullProgress):
    """A bar over all images that are still to be trained on, as far as is known now.

    Args:
        label: what stands before it.
    """

    def __init__(self, label: str) -> None:
        self.label, self.epochs, self.at, self.share = label, 0, 0, 1.0
        self.bar: _Bar | None = None

    def note(self, text: str) -> None:
        """A line above the bar."""
        console.note(f"note: {text}")

    def begin(self, epochs: int, done: int) -> None:
        """Open the bar, where there is anything left to do."""
        self.epochs = epochs
        if done < epochs:
            self.bar = _Bar(total=0, unit="img", desc=self.label, mininterval=0.5, smoothing=0.05)

    def epoch(self, epoch: int, images: int, examples: int) -> None:
        """Remaining: this epoch's images once for every epoch left, since no later one has more."""
        assert self.bar is not None
        self.at, self.share = epoch, images / max(1, examples)
        self.bar.total = self.bar.n + images * (self.epochs - epoch + 1)
        self.bar.set_description(f"{self.label} epoch {epoch}/{self.epochs} kept {self.share:.0%}", refresh=False)

    def step(self, images: int, numbers: dict[str, float]) -> None:
        """Advance the bar by ``images``, and show the running means where there are some."""
        assert self.bar is not None
        if numbers:
            meta = f" meta {numbers['meta_loss']:.4g}" if numbers["meta_loss"] else ""
            self.bar.set_postfix_str(f"loss {numbers['pretext_loss']:.4g}{meta}", refresh=False)
        self.bar.update(images)

    def skip(self, images: int) -> None:
        """There is so much less to do."""
        assert self.bar is not None
        self.bar.total -= images

    def report(self, report: EpochReport) -> None:
        """What an epoch came to, as a detail."""
        console.detail(
            f"epoch {report.epoch}: {report.images:,} images, {report.kept:,} kept, {report.pruned:,} pruned; "
            + ", ".join(f"{name} {value:.4g}" for name, value in report.numbers.items() if isinstance(value, float))
            + f"; seconds: {', '.join(f'{stage} {value:.1f}' for stage, value in report.seconds.items())}"
        )

    def shards(self, label: str) -> AbstractContextManager[None]:
        """A bar of its own, gone when the block ends."""
        return shard_bar(label)

    def images(self, label: str, total: int, done: int) -> AbstractContextManager[Callable[[int], None]]:
        """A bar of its own, gone when the block ends."""
        return image_bar(label, total, done)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            if kind is None:
                self.bar.total = self.bar.n
            self.bar.close()
