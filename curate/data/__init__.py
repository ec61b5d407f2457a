"""From shards to batches: decoding, augmentation, the image cache, the target."""
