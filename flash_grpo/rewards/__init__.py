"""Rewards: one file each behind one protocol, with cards that are read without torch."""
