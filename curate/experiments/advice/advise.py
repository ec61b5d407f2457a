"""Advice before the bill: choose by the classifier, try it in a small pilot, count the hours, and say one sentence.

Minutes instead of days: features of untrained networks and a logistic regression for the whole store, then trainings of
a few seconds each on sets of equal budget (docs/method.md, section 5).
"""

from __future__ import annotations

import shlex
import time
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from curate.config.catalogue import parse_encoder
from curate.config.schema import RunConfig, from_options
from curate.data.contact_sheet import contact_sheet
from curate.data.target import open_target
from curate.errors import NothingLeft
from curate.evaluation import output_dir
from curate.experiments.advice import page, pilot
from curate.experiments.advice.pilot import Pilot
from curate.experiments.advice.plans import Budget
from curate.experiments.advice.record import Advice, advice
from curate.experiments.advice.tried import try_out
from curate.experiments.advice.verdict import Look, by_look
from curate.experiments.sweep import one_thread, plain
from curate.ledger import ledger
from curate.ledger.metrics import seconds_spent
from curate.progress import NullProgress, Progress
from curate.runs.prepare import fresh_examples, trainable
from curate.runs.run import run
from curate.runs.run_dir import refuse_overlap
from shards.indexing.index import Index
from shards.indexing.index_file import FILE_NAME as INDEX
from shards.io.atomic import write_bytes
from shards.io.json_files import write_json
from shards.io.locks import locked
from shards.io.mirror.place import local
from shards.store import open_index

#: What a folder of advice holds first: of which store and target, and how it was asked for.
RECORD = "asked.json"
FORMAT, VERSION = "advice", 1
#: Images of a contact sheet.
SHOWN = 60


def advise(
    options: dict[str, Any], out: Path, asked: Pilot, budget: Budget, progress: Progress | None = None
) -> Advice:
    """Find out, and write ``advice.json`` and ``advice.md`` in ``out``; goes on where an earlier call was stopped.

    Args:
        options: of the classifier's run, by name: store and target, and whichever else. A store without an index gets
            one in ``out``. A target with labels scores a pilot on its val; without, the classifier alone is asked.
        out: a folder for this alone.
        asked: how the pilot is made.
        budget: of the real training, whose hours are counted; asked again with another, only these change. Asked again
            for more seeds, only the new ones are trained.

    Raises:
        Misuse: an unknown pretext; ``out`` overlaps store or target, or holds files of something else.
        RunMismatch: ``out`` holds advice on another store or target, or asked for otherwise.
        CurateError, ShardError: store or target cannot be read, or have too few images.
    """
    started, progress = time.perf_counter(), progress or NullProgress()
    pilot.check(asked)
    config = from_options({**options, "method": "classifier", "seed": asked.seed})
    parse_encoder(config.selection.encoder)  # before the folder is taken
    refuse_overlap(config, out)
    output_dir.refuse_strangers(out, RECORD, made_before=(INDEX,))
    one_thread()
    with locked(out):
        target = open_target(config.target)
        index, config = _indexed(config, out)
        output_dir.keep(out / RECORD, _record(index.fingerprint, target.fingerprint, config, asked))
        look = choose(config, out / "run", index, progress)
        tried = None if by_look(look) else try_out(config, target, out, asked, look.kept)
        found = advice(look, tried, budget, seconds_spent(out / "run"), _command(options, asked))
        seconds = round(time.perf_counter() - started, 1)
        found = replace(found, sheets=draw_sheets(out, index), page=str(out / "advice.md"), seconds=seconds)
        write_json(out / "advice.json", {"format": FORMAT, "version": VERSION, **asdict(found)})
        write_bytes(out / "advice.md", page.text(found).encode())
    return found


def _indexed(config: RunConfig, out: Path) -> tuple[Index, RunConfig]:
    """The store's index, made in ``out`` where there is none, and the configuration that knows where it is."""
    made, named = out / INDEX, local(config.index) if config.index else None
    index = open_index(config.store, named, image=config.image, cache_path=made)
    return index, replace(config, index=str(made)) if named is None and made.exists() else config


def _record(store: str, target: str, config: RunConfig, asked: Pilot) -> dict[str, Any]:
    """What a cell depends on. Not the seeds: what is undecided goes on with more of them."""
    pilot_of = {name: value for name, value in plain(asked).items() if name not in ("processes", "seeds")}
    whose = {"format": FORMAT, "version": VERSION, "store": store, "target": target}
    return {**whose, "encoder": config.selection.encoder, **pilot_of}


def choose(config: RunConfig, out: Path, index: Index, progress: Progress) -> Look:
    """The classifier's run, and what it found."""
    with suppress(NothingLeft):  # hardly one is like the target; the ledger says how few
        run(config, out, progress)
    facts = ledger.facts_of(out, 1)
    kept = int(facts["kept"])
    purity = round(facts["purity"], 4) if kept else None
    return Look(len(trainable(fresh_examples(index))), kept, facts["pi"], purity, round(facts["auroc"], 4))


def draw_sheets(out: Path, index: Index) -> tuple[str, ...]:
    """Contact sheets of the most alike, of those on both sides of the cut, and of the least alike."""
    table = ledger.read_epoch(out / "run", 1)
    usable = table["visits"].to_numpy() > 0
    rows, score, kept = (table[name].to_numpy()[usable] for name in ("row", "mean", "kept"))
    order = np.argsort(-score, kind="stable")
    few, cut = min(SHOWN, len(order)), int(kept.sum())
    at = max(0, min(len(order) - few, cut - few // 2))
    lowest = f"by a score of {score[kept].min():.2f} or more" if cut else "for none scores like the target"
    found = []
    for name, places in (
        ("most-alike", order[:few]),
        ("at-the-cut", order[at : at + few]),
        ("least-alike", order[::-1][:few]),
    ):
        title = f"{name.replace('-', ' ')}; of {len(order):,} images {cut:,} are kept, {lowest}"
        contact_sheet(out / f"{name}.png", index, rows[places], score[places], title=title)
        found.append(str(out / f"{name}.png"))
    return tuple(found)


def _command(options: dict[str, Any], asked: Pilot) -> str:
    """What makes the curated shards anew, in a folder of the user's."""
    usual = {"encoder": "untrained", "device": "auto", "seed": 0}
    given = {**options, "method": "classifier", "seed": asked.seed}
    given = {name: value for name, value in given.items() if usual.get(name) != value}
    words = [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    return shlex.join(["curate", "run", *words, "--out", "curated"])
