"""The commands of `flash-grpo`, a room for each kind; `cli.py` assembles them."""
