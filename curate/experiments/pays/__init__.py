"""When does curation pay? A mixed store of real images, many ways to choose from it, and what training gives."""
