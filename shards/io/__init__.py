"""Files, folders, URLs, processes and file formats below the tar layer."""
