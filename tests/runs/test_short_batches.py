"""A last batch of a few images: trained on, but not where images are set against one another."""

from __future__ import annotations

import pytest
import toyset

from curate.runs.epoch import visited
from curate.runs.pretrain import pretrain

SMALL = {"network": "small", "width": 4, "size": 16, "crop": 12, "colour": "grey", "workers": 0, "device": "cpu"}


@pytest.mark.parametrize(("pretext", "images"), [("simclr", [94, 94, 47]), ("rotation", [96, 94])])
def test_two_images_are_no_batch_for_a_contrast(tmp_path, pretext, images):
    """96 images in batches of 47, five steps: two or three an epoch."""
    store = toyset.make_store(tmp_path / "store", 96)
    options = {**SMALL, "pretext": pretext, "batch": 47, "lr": 0.01, "schedule": "cosine"}
    record = pretrain(str(store), tmp_path / "net", options, 5)
    assert record.steps == 5
    assert [line["images"] for line in toyset.metrics(tmp_path / "net")] == images


@pytest.mark.parametrize("images", range(1, 70))
def test_what_is_left_out_is_less_than_half_a_batch(images):
    """And never all there is; the first steps are whole batches."""
    found = visited(images, 16, couples=True)
    rest = images % 16
    assert found == (images - rest if images > 16 and rest < 8 else images)
    assert visited(images, 16, couples=False) == images
    assert visited(images, 16, couples=True, most_steps=2) == min(found, 32)
