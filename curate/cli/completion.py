"""curate completion."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that makes a shell complete verbs and options.

    \b
    Example:
      curate completion bash >> ~/.bashrc
      curate completion zsh >> ~/.zshrc
      curate completion fish > ~/.config/fish/completions/curate.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(context.find_root().command, {}, "curate", "_CURATE_COMPLETE").source())
