"""`python -m curate`, for where the command itself is not on the path."""

from curate.cli import main

if __name__ == "__main__":
    main()
