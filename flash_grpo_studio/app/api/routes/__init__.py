"""The routes by subject."""
