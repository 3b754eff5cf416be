"""The rooms behind `flash_grpo.plan`: architectures, work, memory, speed, and what to change. Imports no torch."""
