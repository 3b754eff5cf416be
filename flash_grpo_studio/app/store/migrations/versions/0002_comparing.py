"""Strength and noise of videos, and blind ballots in the place of votes, of which there were none yet."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

JOBS = sa.table("jobs", sa.column("id", sa.String), sa.column("kind", sa.String), sa.column("spec", sa.JSON))
VIDEOS = sa.table(
    "videos", sa.column("job_id", sa.String), sa.column("side", sa.String), sa.column("strength", sa.Double)
)


def upgrade() -> None:
    with op.batch_alter_table("videos", schema=None) as batch_op:
        batch_op.add_column(sa.Column("strength", sa.Double(), nullable=True))
        batch_op.add_column(sa.Column("noise", sa.BigInteger(), nullable=True))
        batch_op.add_column(sa.Column("revision", sa.BigInteger(), nullable=False, server_default="0"))
        batch_op.create_index("ix_videos_side", ["job_id", "update", "revision"], unique=False)
    _note_strengths()
    op.drop_table("votes")
    op.create_table(
        "ballots",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("user_id", sa.String(length=32), nullable=False),
        sa.Column("first_side", sa.String(length=80), nullable=False),
        sa.Column("second_side", sa.String(length=80), nullable=False),
        sa.Column("key", sa.String(length=40), nullable=False),
        sa.Column("prompt", sa.String(length=4000), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("first_video_id", sa.String(length=32), nullable=True),
        sa.Column("second_video_id", sa.String(length=32), nullable=True),
        sa.Column("private", sa.Boolean(), nullable=False),
        sa.Column("first_is_before", sa.Boolean(), nullable=False),
        sa.Column("first_on_left", sa.Boolean(), nullable=False),
        sa.Column("choice", sa.String(length=16), nullable=True),
        sa.Column("undone", sa.Boolean(), nullable=False),
        sa.Column("revealed", sa.Boolean(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("chosen", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["first_video_id"], ["videos.id"], ondelete="SET NULL"),
        sa.ForeignKeyConstraint(["second_video_id"], ["videos.id"], ondelete="SET NULL"),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("user_id", "first_side", "second_side", "key", name="uq_ballots_pair"),
    )
    with op.batch_alter_table("ballots", schema=None) as batch_op:
        batch_op.create_index("ix_ballots_sides", ["first_side", "second_side"], unique=False)
        batch_op.create_index(batch_op.f("ix_ballots_first_video_id"), ["first_video_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_ballots_second_video_id"), ["second_video_id"], unique=False)


def _note_strengths() -> None:
    """Previews made before say their strength in what was asked for."""
    connection = op.get_bind()
    for job_id, spec in connection.execute(sa.select(JOBS.c.id, JOBS.c.spec).where(JOBS.c.kind == "preview")).all():
        of_the_adapter = (VIDEOS.c.job_id == job_id, VIDEOS.c.side == "after")
        strength = float(spec["task"]["strength"])
        connection.execute(sa.update(VIDEOS).where(*of_the_adapter).values(strength=strength))


def downgrade() -> None:
    op.drop_table("ballots")
    op.create_table(
        "votes",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("user_id", sa.String(length=32), nullable=False),
        sa.Column("first_video_id", sa.String(length=32), nullable=False),
        sa.Column("second_video_id", sa.String(length=32), nullable=False),
        sa.Column("first_on_left", sa.Boolean(), nullable=False),
        sa.Column("choice", sa.String(length=16), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["first_video_id"], ["videos.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["second_video_id"], ["videos.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("votes", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_votes_first_video_id"), ["first_video_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_votes_second_video_id"), ["second_video_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_votes_user_id"), ["user_id"], unique=False)
    with op.batch_alter_table("videos", schema=None) as batch_op:
        batch_op.drop_index("ix_videos_side")
        batch_op.drop_column("revision")
        batch_op.drop_column("noise")
        batch_op.drop_column("strength")
