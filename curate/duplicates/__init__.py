"""Images that show the same: by their bytes, their pixels, a hash of their look, or their features."""
