"""What a long job tells a person while it runs: one bar with rate, losses, kept share and remaining time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType
from typing import Protocol, Self

from tqdm import tqdm

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


@contextmanager
def shard_bar(label: str) -> Iterator[None]:
    """A bar on stderr over the shards of whatever is done in the block, once that takes more than a moment."""
    with tqdm(unit="shard", desc=label, file=sys.stderr, dynamic_ncols=True, delay=2, leave=False) as bar:

        def tell(n_done: int, total: int) -> None:
            bar.total = total
            bar.update(n_done - bar.n)

        with on_progress(tell):
            yield


@contextmanager
def image_bar(label: str, total: int, done: int) -> Iterator[Callable[[int], None]]:
    """A bar on stderr over images, with their rate."""
    with tqdm(
        total=total, initial=done, unit="img", desc=label, file=sys.stderr, dynamic_ncols=True, leave=False
    ) as bar:

        def tell(more: int) -> None:
            bar.update(more)

        yield tell


@contextmanager
def epoch_bar(label: str) -> Iterator[Callable[[str, int, int], None]]:
    """A bar on stderr over the epochs of several trainings.

    Yields:
        A function of what is trained, the epochs done, and those in all.
    """
    with tqdm(unit="epoch", desc=label, file=sys.stderr, dynamic_ncols=True, delay=1, leave=False) as bar:

        def tell(what: str, n_done: int, total: int) -> None:
            bar.total = total
            bar.set_description(f"{label} {what}", refresh=False)
            bar.update(n_done - bar.n)

        yield tell


@contextmanager
def counting(label: str, unit: str, total: int, done: int = 0) -> Iterator[Callable[[str], None]]:
    """A bar on stderr over ``total`` equal pieces of work; call what it yields with a word on each that is finished."""
    with tqdm(total=total, initial=done, unit=unit, desc=label, file=sys.stderr, dynamic_ncols=True) as bar:

        def tell(what: str) -> None:
            bar.set_postfix_str(what, refresh=False)
            bar.update()

        yield tell


class Bar(NullProgress):
    """A bar on stderr over all images that are still to be trained on, as far as is known now.

    Args:
        label: what stands before it.
    """

    def __init__(self, label: str) -> None:
        self.label, self.epochs, self.at, self.share = label, 0, 0, 1.0
        self.bar: tqdm[None] | None = None

    def note(self, text: str) -> None:
        """Print the line above the bar."""
        tqdm.write(f"note: {text}", file=sys.stderr)

    def begin(self, epochs: int, done: int) -> None:
        """Open the bar."""
        self.epochs = epochs
        self.bar = tqdm(total=0, unit="img", file=sys.stderr, dynamic_ncols=True, mininterval=0.5, smoothing=0.05)

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
