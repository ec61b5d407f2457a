"""Local copies of folders and files behind URLs of object stores, for all that works on files and folders.

`place` gives them out, and is all that others call; `copy` knows where one lies and what is recorded of it, `fetch`
makes it what the objects are, `push` the objects what it is.
"""
