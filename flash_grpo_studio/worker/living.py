"""Whether a job already has a living process on this machine: then it is adopted, never started a second time."""

from __future__ import annotations

import socket

from flash_grpo.ownership import read_owner
from flash_grpo_studio.app.jobs.leases import Claim
from flash_grpo_studio.worker.launch import Ground, speaks_in
from flash_grpo_studio.worker.processes import Found, alive, birth, eldest, tagged


def find_leader(ground: Ground, claim: Claim) -> Found | None:
    """The process that leads a job's run: as the store noted it, by its tags, or by the lock of the run folder."""
    pid, born = claim.process, claim.process_started
    if pid is not None and born is not None and alive(pid, born):
        return Found(pid, born, pid, claim.job_id, claim.attempt)
    return eldest(tagged(ground.studio, claim.job_id)) or _owner(ground, claim)


def _owner(ground: Ground, claim: Claim) -> Found | None:
    """Somebody may have gone on with the run by hand."""
    owner = read_owner(speaks_in(ground, claim)) if claim.kind == "alignment" else None
    if owner is None or owner.host != socket.gethostname() or not owner.alive():
        return None
    born = birth(owner.process)
    return None if born is None else Found(owner.process, born, owner.process, claim.job_id)
