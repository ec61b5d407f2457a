"""The class of each file of a target by its folders, and its split where there are splits already.

`shards.packing.label_table` has both by a table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shards.errors import Misuse, ShardError
from shards.member_names import storable
from shards.packing.listing import FOREIGN_FOLDERS
from shards.packing.target import SPLITS

#: What folders of splits, and splits in a table, are called, in lower case.
SPLIT_NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}


@dataclass(frozen=True)
class Labelled:
    """What is known of a target's files.

    Args:
        classes: names, in the order of their numbers.
        label: the class of each file that has one.
        split: the split of each of them; None where splits are still to be drawn.
        notes: what a person should know.
    """

    classes: tuple[str, ...]
    label: Mapping[str, str]
    split: Mapping[str, str] | None = None
    notes: tuple[str, ...] = ()


def by_folders(root: Path, files: Sequence[str]) -> Labelled:
    """Labels by the folders that images lie in.

    ``cat/1.jpg`` is of class cat. Splits are kept as they are where every image lies in a folder of one:
    ``train/cat/1.jpg`` and ``test/cat/2.jpg``, or ``cat/train/1.jpg`` and ``cat/test/2.jpg``.

    Args:
        files: of all images, relative to the root; those in no class folder get no label.

    Raises:
        ShardError: no class folder holds an image, or fewer images lie in folders than beside them; a class folder is
            a link; or there are splits but no train.
        OSError: a class folder cannot be listed.
    """
    top = _folders(root, root)
    inside = [file.split("/") for file in files if "/" in file]
    if not files:
        raise ShardError("no image in the folder", shard=str(root), todo="name a folder that holds images")
    if 2 * len(inside) <= len(files):
        more = f", {len(inside):,} in folders" if inside else ""
        raise _unlabelled(root, f"{len(files) - len(inside):,} images stand side by side{more}")
    if all(is_split(parts[0]) for parts in inside):
        return _splits_above(root, inside)
    if all(len(parts) > 2 and is_split(parts[1]) for parts in inside):
        split = {"/".join(parts): SPLIT_NAMES[parts[1].lower()] for parts in inside}
        return refuse_no_train(root, Labelled(top, {file: file.split("/")[0] for file in split}, split))
    some = [parts for parts in inside if len(parts) > 2 and is_split(parts[1])]
    notes = one_class_note(top)
    if some:
        notes += (
            f"{len(some):,} of {len(inside):,} images lie in folders such as {'/'.join(some[0][:2])}, the others in no "
            "split's: splits are drawn of all; put every image into train/, val/ or test/ to keep them",
        )
    return Labelled(top, {"/".join(parts): parts[0] for parts in inside}, None, notes)


def _splits_above(root: Path, inside: Sequence[list[str]]) -> Labelled:
    """Labels where the folders of splits stand above those of classes."""
    held = [parts for parts in inside if len(parts) > 2]
    if not held:
        where = ", ".join(sorted({f"{parts[0]}/" for parts in inside}))
        raise _unlabelled(root, f"images stand side by side in {where}")
    for top in {parts[0] for parts in inside}:
        _folders(root / top, root)
    split = {"/".join(parts): SPLIT_NAMES[parts[0].lower()] for parts in held}
    label = {"/".join(parts): parts[1] for parts in held}
    return refuse_no_train(root, Labelled(tuple(sorted(set(label.values()))), label, split))


def is_split(name: str) -> bool:
    """Whether a folder is called as one of a split."""
    return name.lower() in SPLIT_NAMES


def one_class_note(classes: Sequence[str]) -> tuple[str, ...]:
    """That a single class tells nothing apart."""
    if len(classes) != 1:
        return ()
    return (f"one class alone, {storable(classes[0])}: an evaluation needs two at least; are these its folders?",)


def refuse_no_train(root: Path, found: Labelled) -> Labelled:
    """Labels with splits, where these have what a target needs."""
    found = replace(found, notes=(*found.notes, *one_class_note(found.classes)))
    counts = Counter((found.split or {}).values())
    if not counts["train"]:
        there = ", ".join(sorted(counts))
        raise ShardError("splits without a train", shard=str(root), found=there, todo="add images to train, too")
    lacking = [name for name in SPLITS if not counts[name]]
    if not lacking:
        return found
    note = (
        f"the splits that are there are kept, and no {' and no '.join(lacking)} is among them: a score needs a test; "
        "to have all three drawn, name the folder of train's classes alone"
    )
    return replace(found, notes=(*found.notes, note))


def _unlabelled(root: Path, found: str) -> ShardError:
    todo = (
        "put the images of each class into a folder of its own, or give --labels FILE with columns file, label; "
        f"a target without labels needs no packing: curate run --target {storable(str(root))}"
    )
    return ShardError("no class folder", shard=str(root), found=found, todo=todo)


def _folders(folder: Path, root: Path) -> tuple[str, ...]:
    """Sorted names of the class folders. A link is refused, as one class fewer would be another task."""
    folders = [entry for entry in folder.iterdir() if _may_be_class(entry)]
    linked = sorted(storable(found.name) for found in folders if found.is_symlink())
    if linked:
        problem, todo = "a class folder is a link, and links are not followed", "put the folder itself there"
        raise ShardError(problem, shard=str(root), found=", ".join(linked[:5]), todo=todo)
    for found in folders:
        next(found.iterdir(), None)  # one that cannot be listed is an error, not an empty class
    return tuple(sorted(found.name for found in folders))


def _may_be_class(entry: Path) -> bool:
    return entry.is_dir() and entry.name[0] != "." and entry.name not in FOREIGN_FOLDERS


def refuse_split(split: object) -> None:
    """Raise `Misuse` where shares are asked for beside splits that are there."""
    if split is not None:
        raise Misuse(
            "--split: there are splits already, and these are kept; leave it out, or name train's folder alone"
        )
